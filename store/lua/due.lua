-- Takes what is due for delivery: its score becomes the end of the lease.
-- KEYS due   ARGV lease limit   -> ok, now, {member, ...}, the end of their leases, ms until the next is due (-1: none)
local out, ends = {}, now + tonumber(ARGV[1])
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', '(' .. now + 1, 'BYSCORE', 'LIMIT', 0, ARGV[2])) do
  redis.call('ZADD', KEYS[1], ends, member)
  out[#out + 1] = member
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
return {'ok', now, out, ends, first and math.max(0, math.ceil(tonumber(first) - now)) or -1}
