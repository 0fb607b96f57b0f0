-- Takes a task out of lists it has left, unless it came back there since (status times only grow).
-- KEYS lists   ARGV task_id score
for i = 1, #KEYS do
  local score = redis.call('ZSCORE', KEYS[i], ARGV[1])
  if score and tonumber(score) <= tonumber(ARGV[2]) then redis.call('ZREM', KEYS[i], ARGV[1]) end
end
return {'ok', now}
