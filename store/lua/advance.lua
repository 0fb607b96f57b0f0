-- What is known of a config's deliveries changes, if it still is what the caller read; it lives as long as its task.
-- KEYS task push sent   ARGV config_id record_read record   -> ok|gone|moved, now
local left, is = redis.call('PTTL', KEYS[1]), redis.call('HGET', KEYS[3], ARGV[1]) or ''
if left == -2 or redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then return {'gone', now} end
if is == ARGV[3] then return {'ok', now} end
if is ~= ARGV[2] then return {'moved', now} end
redis.call('HSET', KEYS[3], ARGV[1], ARGV[3])
redis.call('PEXPIRE', KEYS[3], left)
return {'ok', now}
