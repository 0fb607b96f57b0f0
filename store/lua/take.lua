-- Takes due jobs: lapsed and released ones first, then the waiting. The score in the queue becomes the end of the lease.
-- Where the queue is on the tasks' own Redis, each turn begins in the same step: a round trip less per run.
-- KEYS queue running   ARGV lease limit token job_prefix in_progress_prefix [task_key_format run_seed [id not to begin]...]
-- -> ok, now, {id, new, answer of begin or nil, ...}, ms; the nth from the end of the limit runs as run_seed .. n
--    new: '1' for one that nobody has had yet, else ''.  ms: until the next is due, -1 if there is none
local lease, left, ends = tonumber(ARGV[1]), tonumber(ARGV[2]), now + tonumber(ARGV[1])
local out, mine = {}, {}
for i = 8, #ARGV do mine[ARGV[i]] = true end
local function take(id, new)
  if redis.call('EXISTS', ARGV[4] .. id) == 0 then
    redis.call('ZREM', KEYS[1], id); redis.call('ZREM', KEYS[2], id)
    return
  end
  redis.call('ZADD', KEYS[1], ends, id); redis.call('ZADD', KEYS[2], ends, id)
  redis.call('SET', ARGV[5] .. id, ARGV[3], 'PX', lease)
  local begun, task, turn = false, string.match(id, '^run:(.+):(%d+)$')
  if ARGV[6] and task and not mine[id] then
    -- One that cannot be begun must not keep the others: its worker tries by itself, and learns why.
    local could, answer = pcall(begin, {string.format(ARGV[6], task)}, {turn, ARGV[7] .. left, ends, new})
    begun = could and answer
  end
  out[#out + 1] = id; out[#out + 1] = new; out[#out + 1] = begun
  left = left - 1
end
-- A score may have a fraction: what became due within this millisecond is due.
for _, id in ipairs(redis.call('ZRANGE', KEYS[2], '-inf', '(' .. now + 1, 'BYSCORE', 'LIMIT', 0, left)) do take(id, '') end
if left > 0 then
  for _, id in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', '(' .. now + 1, 'BYSCORE', 'LIMIT', 0, left)) do take(id, '1') end
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
return {'ok', now, out, first and math.max(0, math.ceil(tonumber(first) - now)) or -1}
