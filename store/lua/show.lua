-- The task becomes visible for good, whatever its agent answers later. Its lists are written before.
-- KEYS task   -> shown|answered|absent, now, hooks
local h = redis.call('HMGET', KEYS[1], 'state', 'hooks')
local state = h[1]
if not state then return {'absent', now} end
if state == ANSWERED then return {'answered', now} end
redis.call('HSET', KEYS[1], 'shown', '1')
return {'shown', now, num(h[2])}
