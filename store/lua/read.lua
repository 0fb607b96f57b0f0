-- The task as it is, at one moment: its newest snapshot and the log after it.
-- With `head`, without its artifacts: the head of a snapshot is what stands before them.
-- KEYS task log   ARGV [head]
-- -> absent | ok, now, owner ctx state ts seq mark turn done run attempt shown cancel snapshot snapshot_seq input entries
local h = redis.call('HMGET', KEYS[1], 'owner', 'ctx', 'state', 'ts', 'seq', 'mark', 'turn', 'done', 'run', 'attempt',
  'shown', 'cancel', 'base', 'base_seq', 'snap', 'snap_seq', 'base_head', 'snap_head')
if not h[1] then return {'absent', now} end
local snapshot, at, head = h[13], tonumber(h[14]), h[17]
if h[16] and tonumber(h[16]) > at then snapshot, at, head = h[15], tonumber(h[16]), h[18] end
local entries = {}
if at < tonumber(h[5]) then entries = redis.call('XRANGE', KEYS[2], (at + 1) .. '-0', '+') end
if ARGV[1] == 'head' then
  if snapshot ~= '' then snapshot = string.sub(snapshot, 1, tonumber(head) - 1) .. '}' end
  local rest = {}
  for _, entry in ipairs(entries) do
    if entry[2][4] ~= 'artifact' then rest[#rest + 1] = entry end
  end
  entries = rest
end
return {'ok', now, h[1], h[2], h[3], h[4], tonumber(h[5]), h[6], tonumber(h[7]), tonumber(h[8]), h[9], tonumber(h[10]),
  h[11], h[12], snapshot, at, entries}
