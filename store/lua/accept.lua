-- A message arrives: it makes a task, or the next turn of an interrupted one. The sender may repeat it.
-- KEYS task log push sent
-- ARGV new|more owner context('' any) digest renewable mark kind event input ts shown ttl channel most [config_id config]...
-- -> new|more|known|ended|absent|context|terminal|busy|full, now, ...
local want, owner, context, digest, renewable = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
local mark, kind, event, input, ts, ttl = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[12]
local h = redis.call('HMGET', KEYS[1], 'owner', 'ctx', 'state', 'turn', 'seq', 'mark', 'cancel', 'shown', 'c:' .. digest)

-- after: the position behind which its configs are told of the task.
local function keep(after)
  for i = 15, #ARGV, 2 do
    if redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) == 1 then redis.call('HSET', KEYS[4], ARGV[i], after) end
  end
  if #ARGV >= 15 then redis.call('HSET', KEYS[1], 'hooks', '1') end
  for i = 1, (want == 'new' and #ARGV < 15) and 2 or 4 do redis.call('PEXPIRE', KEYS[i], ttl) end
end

if not h[1] then
  if want == 'more' then return {'absent', now} end
  redis.call('HSET', KEYS[1], 'v', WRITES, 'owner', owner, 'ctx', context, 'state', SUBMITTED, 'ts', ts, 'seq', 1, 'top_seq', 1, 'mark', mark,
    'turn', 1, 'done', 0, 'attempt', 0, 'fence', 0, 'run', '', 'n', 0, 'shown', ARGV[11], 'in', input,
    'base', '', 'base_seq', 0, 'claim', digest, 'c:' .. digest, '1 1 ' .. mark)
  redis.call('XADD', KEYS[2], '1-0', 'e', event, 'k', kind, 's', SUBMITTED, 't', 1, 'm', mark)
  keep('0 *')
  return {'new', now, 1, 1, mark, SUBMITTED}
end

if h[1] ~= owner then return {'absent', now} end
if h[9] then
  local turn, seq, made = string.match(h[9], '^(%d+) (%d+) (.+)$')
  local over = renewable and (tonumber(turn) < tonumber(h[4]) or h[7])
  if not over then return {'known', now, tonumber(turn), tonumber(seq), made, h[3], h[8]} end
  if want == 'new' then return {'ended', now} end
end
if want == 'new' then return {'ended', now} end
if h[8] ~= '1' then return {'absent', now} end
if context ~= '' and context ~= h[2] then return {'context', now} end
if TERMINAL[h[3]] then return {'terminal', now, h[3]} end
if not INTERRUPTED[h[3]] then return {'busy', now, h[3]} end

for i = 15, #ARGV, 2 do
  if redis.call('HEXISTS', KEYS[3], ARGV[i]) == 0 and redis.call('HLEN', KEYS[3]) >= tonumber(ARGV[14]) then return {'full', now} end
end

local turn, seq = tonumber(h[4]) + 1, tonumber(h[5]) + 1
redis.call('HSET', KEYS[1], 'state', WORKING, 'ts', ts, 'seq', seq, 'top_seq', seq, 'mark', mark, 'turn', turn, 'attempt', 0,
  'run', '', 'in', input, 'claim', digest, 'c:' .. digest, turn .. ' ' .. seq .. ' ' .. mark)
redis.call('HDEL', KEYS[1], 'snap', 'snap_seq', 'snap_top')
write(KEYS[2], seq, mark, kind, WORKING, turn, event)
announce(ARGV[13])
keep(seq .. ' ' .. mark)
return {'more', now, turn, seq, mark, WORKING}
