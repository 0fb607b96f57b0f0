-- Whoever took a delivery holds it longer, puts it back or strikes it off; unless its lease was over, and another took it since.
-- KEYS due   ARGV member ends new_score('' = strike off)   -> ok|announced|lost, now
local score = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '-1')
if math.floor(score) ~= tonumber(ARGV[2]) then return {'lost', now} end
if ARGV[3] ~= '' then
  redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
elseif score ~= math.floor(score) then
  return {'announced', now}
else
  redis.call('ZREM', KEYS[1], ARGV[1])
end
return {'ok', now}
