-- A job leaves its worker: done for good, or back to the front of the queue (due at once, or after a delay).
-- KEYS queue running job in_progress   ARGV job_id token delay('' = done) bell   -> ok|lost, now
local held = redis.call('GET', KEYS[4])
if held ~= ARGV[2] then return {'lost', now} end
redis.call('DEL', KEYS[4])
if ARGV[3] == '' then
  redis.call('ZREM', KEYS[1], ARGV[1]); redis.call('ZREM', KEYS[2], ARGV[1]); redis.call('DEL', KEYS[3])
else
  local due = now + tonumber(ARGV[3])
  redis.call('ZADD', KEYS[1], due, ARGV[1]); redis.call('ZADD', KEYS[2], due, ARGV[1])
  redis.call('PUBLISH', ARGV[4], '1')
end
return {'ok', now}
