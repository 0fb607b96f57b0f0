-- Takes due jobs: lapsed and released ones first, then the waiting. The score in the queue becomes the end of the lease.
-- KEYS queue running   ARGV lease limit token job_prefix in_progress_prefix   -> ok, now, {id, blob, ...}
local lease, left, ends = tonumber(ARGV[1]), tonumber(ARGV[2]), now + tonumber(ARGV[1])
local out = {}
local function take(id)
  local blob = redis.call('GET', ARGV[4] .. id)
  if not blob then
    redis.call('ZREM', KEYS[1], id); redis.call('ZREM', KEYS[2], id)
    return
  end
  redis.call('ZADD', KEYS[1], ends, id); redis.call('ZADD', KEYS[2], ends, id)
  redis.call('SET', ARGV[5] .. id, ARGV[3], 'PX', lease)
  out[#out + 1] = id; out[#out + 1] = blob
  left = left - 1
end
for _, id in ipairs(redis.call('ZRANGE', KEYS[2], '-inf', now, 'BYSCORE', 'LIMIT', 0, left)) do take(id) end
if left > 0 then
  for _, id in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', 0, left)) do take(id) end
end
return {'ok', now, out}
