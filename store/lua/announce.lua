-- There may be something to deliver of these: new members are due at once; what is there already stays due when it was, but half a
-- millisecond says to whoever took it that it may not strike it off.
-- KEYS due   ARGV bell member...   -> ok, now
local rings = false
for i = 2, #ARGV do
  local score = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or '-1')
  if score < 0 then
    redis.call('ZADD', KEYS[1], now, ARGV[i])
    rings = true
  elseif score == math.floor(score) then
    redis.call('ZADD', KEYS[1], score + 0.5, ARGV[i])
  end
end
if rings then redis.call('PUBLISH', ARGV[1], '1') end
return {'ok', now}
