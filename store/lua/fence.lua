-- Takes the task away from whoever runs it: from here on that run cannot append. `end` may follow.
-- KEYS task   ARGV control_channel task_id   -> fenced|idle|terminal|absent, now
local h = redis.call('HMGET', KEYS[1], 'state', 'run', 'turn', 'done', 'fence')
if not h[1] then return {'absent', now} end
if TERMINAL[h[1]] then return {'terminal', now} end
if (h[2] or '') == '' or num(h[4]) >= num(h[3]) then return {'idle', now} end
redis.call('HSET', KEYS[1], 'fence', num(h[5]) + 1, 'run', '')
redis.call('PUBLISH', ARGV[1], 'fence ' .. ARGV[2])
return {'fenced', now}
