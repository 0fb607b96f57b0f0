-- A job enters the queue once (arq's key layout), and the bell rings. With `running`, it is one that a worker has had.
-- KEYS queue job [running]   ARGV job_id blob ttl bell   -> queued|known, now
-- Two within a millisecond keep their order.
local due = string.format('%.3f', clock[1] * 1000 + clock[2] / 1000)
local made = redis.call('SET', KEYS[2], ARGV[2], 'NX', 'PX', ARGV[3])
local added = redis.call('ZADD', KEYS[1], 'NX', due, ARGV[1])
if KEYS[3] then redis.call('ZADD', KEYS[3], 'NX', due, ARGV[1]) end
redis.call('PUBLISH', ARGV[4], '1')
return {(made or added == 1) and 'queued' or 'known', now}
