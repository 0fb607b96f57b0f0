-- Compare-and-set of a claim: '' as the new value takes it back.
-- KEYS claim   ARGV old new ttl   -> the value that holds now
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return {'ok', now, held} end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) return {'ok', now, false} end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return {'ok', now, ARGV[2]}
