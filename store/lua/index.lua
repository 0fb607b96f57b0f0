-- Puts a task into its owner's lists, before the write that they announce (a list may hold too much, never too little).
-- What is older than any task can be is dropped now and then: readers do not look there.
-- KEYS lists   ARGV task_id score oldest ttl
for i = 1, #KEYS do
  redis.call('ZADD', KEYS[i], 'GT', ARGV[2], ARGV[1])
  redis.call('PEXPIRE', KEYS[i], ARGV[4])
  if now % 16 == 0 then redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', '(' .. ARGV[3]) end
end
return {'ok', now}
