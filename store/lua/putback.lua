-- A run outlived the queue's memory of it: its worker writes the job back, under its own lease.
-- KEYS queue running job in_progress   ARGV job_id blob ttl lease token   -> held|lost, now
local held = redis.call('GET', KEYS[4])
if held and held ~= ARGV[5] then return {'lost', now} end
local ends = now + tonumber(ARGV[4])
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3]); redis.call('SET', KEYS[4], ARGV[5], 'PX', ARGV[4])
redis.call('ZADD', KEYS[1], ends, ARGV[1]); redis.call('ZADD', KEYS[2], ends, ARGV[1])
return {'held', now}
