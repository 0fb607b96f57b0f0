-- The task as it is, at one moment: its newest snapshot and the log after it.
-- With `top`, without its artifacts: what these weigh is not touched then. `top_seq` is the last entry that is none.
-- KEYS task log   ARGV owner('' any) [top]
-- -> absent | newer | ok, now, owner ctx state ts seq mark turn done run attempt shown cancel snapshot snapshot_seq entries missing
--    missing: how many entries between snapshot and end are not there, though they should be
local h = redis.call('HMGET', KEYS[1], 'owner', 'ctx', 'state', 'ts', 'seq', 'mark', 'turn', 'done', 'run', 'attempt',
  'shown', 'cancel', 'base_seq', 'snap_seq', 'top_seq', 'v')
if not h[1] or (ARGV[1] ~= '' and h[1] ~= ARGV[1]) then return {'absent', now} end
if num(h[16]) > READS then return {'newer', now} end
if not h[3] then return {'absent', now} end
local field, at, last = 'base', num(h[13]), num(h[5])
if num(h[14]) > at then field, at = 'snap', num(h[14]) end
local snapshot
if ARGV[2] == 'top' then
  last = num(h[15])
  snapshot = redis.call('HGET', KEYS[1], field .. '_top')
end
if not snapshot or snapshot == '' then snapshot = redis.call('HGET', KEYS[1], field) end
local entries = {}
if at < last then entries = redis.call('XRANGE', KEYS[2], (at + 1) .. '-0', last .. '-0') end
local missing = math.max(last - at, 0) - #entries
if ARGV[2] == 'top' then
  local rest = {}
  for _, entry in ipairs(entries) do
    if entry[2][4] ~= 'artifact' then rest[#rest + 1] = entry end
  end
  entries = rest
end
return {'ok', now, h[1], h[2] or '', h[3], num(h[4]), num(h[5]), h[6] or '', num(h[7]), num(h[8]), h[9], num(h[10]),
  h[11], h[12], snapshot, at, entries, missing}
