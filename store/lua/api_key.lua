-- Keeps the record of an API key, or forgets the key (an empty record); a repeat changes nothing. The gateways are told.
-- KEYS keys   ARGV id record mark most channel   -> ok|taken|full|absent, now
local known = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[2] == '' then
  if not known then return {'absent', now} end
  redis.call('HDEL', KEYS[1], ARGV[1])
elseif not known then
  if redis.call('HLEN', KEYS[1]) > tonumber(ARGV[4]) then return {'full', now} end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
elseif known ~= ARGV[2] then
  return {'taken', now}
end
redis.call('HSET', KEYS[1], 'mark', ARGV[3])
redis.call('PUBLISH', ARGV[5], ARGV[1])
return {'ok', now}
