-- A cancel is asked for: the flag is durable, the publish wakes the worker at once.
-- KEYS task   ARGV owner control_channel task_id   -> absent|terminal|idle|running, now, state
local h = redis.call('HMGET', KEYS[1], 'owner', 'state', 'shown', 'run', 'turn', 'done')
if h[1] ~= ARGV[1] or h[3] ~= '1' then return {'absent', now} end
if TERMINAL[h[2]] then return {'terminal', now, h[2]} end
redis.call('HSET', KEYS[1], 'cancel', now)
if (h[4] or '') == '' or num(h[6]) >= num(h[5]) then return {'idle', now, h[2]} end
redis.call('PUBLISH', ARGV[2], 'cancel ' .. ARGV[3])
return {'running', now, h[2]}
