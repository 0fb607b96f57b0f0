-- Keeps a push config with its task; both live equally long.
-- KEYS task push   ARGV config_id config most   -> ok|absent|full, now
local left = redis.call('PTTL', KEYS[1])
if left == -2 then return {'absent', now} end
local known = redis.call('HEXISTS', KEYS[2], ARGV[1])
if known == 0 and redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[3]) then return {'full', now} end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], left)
return {'ok', now}
