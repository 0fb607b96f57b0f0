-- The reconciler is done with an id: it looks again later, or never; unless somebody has spoken of it meanwhile.
-- KEYS open   ARGV task_id score_read new_score('' = remove)   -> ok|moved, now
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not score or tonumber(score) ~= tonumber(ARGV[2]) then return {'moved', now} end
if ARGV[3] == '' then redis.call('ZREM', KEYS[1], ARGV[1]) else redis.call('ZADD', KEYS[1], 'XX', ARGV[3], ARGV[1]) end
return {'ok', now}
