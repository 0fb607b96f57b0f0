-- Whoever took a delivery holds it longer, puts it back or strikes it off; unless its lease was over, and another took it since.
-- KEYS due   ARGV member ends new_score('' = strike off)   -> ok|announced|lost, now
local score = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '-1')
local whole = math.floor(score)
if ARGV[3] ~= '' then
  if whole ~= tonumber(ARGV[2]) and whole ~= tonumber(ARGV[3]) then return {'lost', now} end
  redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
  return {'ok', now}
end
if whole ~= tonumber(ARGV[2]) then return {'lost', now} end
if score ~= whole then return {'announced', now} end
redis.call('ZREM', KEYS[1], ARGV[1])
return {'ok', now}
