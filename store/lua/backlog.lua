-- What waits for a worker: how many runs are due and in nobody's hands, and since when the first of them is.
-- KEYS queue   -> ok, now, runs, ms that the first has waited
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
if not first or tonumber(first) >= now + 1 then return {'ok', now, 0, 0} end
return {'ok', now, redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. now + 1), math.max(0, now - tonumber(first))}
