-- Renews leases. A job that another holds is lost; one the queue forgot (emptied, failed over) is gone, also if somebody
-- has queued it anew and no worker has it yet. One that lapsed is still ours if nobody took it: then it does not
-- stand in `running` with a later end than we left there.
-- KEYS queue running   ARGV lease token in_progress_prefix job_prefix, then id and end of its lease ...
-- -> ok, now, {held|lost|gone ...}
-- Of a store that went back in time `running` knows an earlier end than ours; another's would be later.
local out, ends = {}, now + tonumber(ARGV[1])
-- With the memory full, a script may go on writing if its first write takes none. Renewing lets nothing grow.
redis.call('ZREM', KEYS[2], '')
for i = 5, #ARGV, 2 do
  local id = ARGV[i]
  local held, running = redis.call('GET', ARGV[3] .. id), redis.call('ZSCORE', KEYS[2], id)
  if held and held ~= ARGV[2] then out[#out + 1] = 'lost'
  elseif not running or not redis.call('ZSCORE', KEYS[1], id) or redis.call('EXISTS', ARGV[4] .. id) == 0 then
    out[#out + 1] = 'gone'
  elseif not held and tonumber(running) > tonumber(ARGV[i + 1]) then out[#out + 1] = 'lost'
  else
    redis.call('SET', ARGV[3] .. id, ARGV[2], 'PX', ARGV[1])
    redis.call('ZADD', KEYS[1], ends, id); redis.call('ZADD', KEYS[2], ends, id)
    out[#out + 1] = 'held'
  end
end
return {'ok', now, out}
