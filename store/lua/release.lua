-- A run gives its turn back unfinished. After a drain or an outage the attempt does not count.
-- KEYS task   ARGV fence run uncount   -> released|fenced, now
local h = redis.call('HMGET', KEYS[1], 'fence', 'run', 'turn', 'done', 'attempt')
if h[1] ~= ARGV[1] or h[2] ~= ARGV[2] or tonumber(h[4]) >= tonumber(h[3]) then return {'fenced', now} end
redis.call('HDEL', KEYS[1], '') -- as in renew.lua: also with the memory full
redis.call('HSET', KEYS[1], 'run', '', 'attempt', math.max(0, tonumber(h[5]) - tonumber(ARGV[3])))
return {'released', now}
