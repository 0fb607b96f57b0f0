-- Puts a task into its owner's lists, before the write that they announce (a list may hold too much, never too little).
-- KEYS lists   ARGV task_id score oldest ttl
for i = 1, #KEYS do
  redis.call('ZADD', KEYS[i], 'GT', ARGV[2], ARGV[1])
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', '(' .. ARGV[3])
  redis.call('PEXPIRE', KEYS[i], ARGV[4])
end
return {'ok', now}
