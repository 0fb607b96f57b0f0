-- Keeps a push config with its task; both live equally long. What is delivered begins behind where the log stands now; a config
-- that replaces another goes on where that was, unless it had been given up.
-- KEYS task push sent   ARGV config_id config most   -> ok|absent|full, now
local left = redis.call('PTTL', KEYS[1])
if left == -2 then return {'absent', now} end
local known = redis.call('HEXISTS', KEYS[2], ARGV[1])
if known == 0 and redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[3]) then return {'full', now} end
local record = redis.call('HGET', KEYS[3], ARGV[1])
if known == 0 or not record or string.find(record, '^%d+ %S+ dead ') then
  local h = redis.call('HMGET', KEYS[1], 'seq', 'mark')
  redis.call('HSET', KEYS[3], ARGV[1], h[1] .. ' ' .. h[2])
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[1], 'hooks', '1')
redis.call('PEXPIRE', KEYS[2], left); redis.call('PEXPIRE', KEYS[3], left)
return {'ok', now}
