-- There may be something to deliver of these: new members are due at once; what is there already moves by so little that it stays
-- due when it was, but whoever took it sees that it may not strike it off.
-- KEYS due   ARGV bell member...   -> ok, now
local rings = false
for i = 2, #ARGV do
  if redis.call('ZADD', KEYS[1], 'NX', now, ARGV[i]) == 1 then rings = true
  else redis.call('ZINCRBY', KEYS[1], '0.015625', ARGV[i]) end
end
if rings then redis.call('PUBLISH', ARGV[1], '1') end
return {'ok', now}
