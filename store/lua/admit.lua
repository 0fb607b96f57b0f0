-- What a caller may begin now: a send, a stream, or both. All or nothing: whoever is refused has used nothing up.
-- A bucket holds at most `burst` tokens and gains `rate` a second; a send takes one of its caller's and one of its tenant's.
-- KEYS caller_bucket tenant_bucket caller_tasks tenant_tasks caller_streams
-- ARGV task_id stream_id "rate burst tenant_rate tenant_burst tasks tenant_tasks streams lives lease"
--    an id that is '' asks for none; a rate, a number of tasks or of streams that is 0 is no limit
-- -> ok|rate|tasks|streams, now, limit, remaining, ms until it is worth trying again, whether the task is new here
local task, stream, given = ARGV[1], ARGV[2], {}
for word in ARGV[3]:gmatch('%S+') do given[#given + 1] = tonumber(word) end
local sends, wait, limit, remaining = task ~= '', 0, 0, 0
local filled = {}
for i = 1, 2 do
  local rate, burst = given[2 * i - 1], given[2 * i]
  if sends and rate > 0 then
    local held = redis.call('HMGET', KEYS[i], 'tokens', 'at')
    local gained = math.max(0, now - num(held[2])) / 1000 * rate
    local tokens = held[1] and math.min(burst, num(held[1]) + gained) or burst
    filled[i] = tokens
    if tokens < 1 then wait = math.max(wait, math.ceil((1 - tokens) / rate * 1000)) end
    local left = math.max(0, math.floor(tokens) - 1)
    if limit == 0 or left < remaining then limit, remaining = burst, left end
  end
end
if wait > 0 then return {'rate', now, limit, 0, wait, 0} end
local is_new = sends and not redis.call('ZSCORE', KEYS[3], task)
for i = 1, 2 do
  local most = given[4 + i]
  if is_new and most > 0 and redis.call('ZCARD', KEYS[2 + i]) >= most then return {'tasks', now, most, 0, 1000, 0} end
end
local streams, lease = stream ~= '' and given[7] or 0, given[9]
if streams > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', now)
  if redis.call('ZCARD', KEYS[5]) >= streams then return {'streams', now, streams, 0, 1000, 0} end
  redis.call('ZADD', KEYS[5], now + lease, stream)
  redis.call('PEXPIRE', KEYS[5], lease)
end
for i = 1, 2 do
  if filled[i] then
    redis.call('HSET', KEYS[i], 'tokens', filled[i] - 1, 'at', now)
    redis.call('PEXPIRE', KEYS[i], math.ceil(given[2 * i] / given[2 * i - 1] * 1000) + 1000)
  end
  if is_new and given[5] + given[6] > 0 then
    redis.call('ZADD', KEYS[2 + i], now, task)
    redis.call('PEXPIRE', KEYS[2 + i], given[8])
  end
end
return {'ok', now, limit, remaining, 0, is_new and 1 or 0}
