-- What follows a position (seq, mark), if that position is still good: its entry, or the hash for the last, bears its mark.
-- 0 and `*` are the position before the first entry, good as long as that is there.
-- KEYS task log   ARGV seq mark limit bytes   -> absent | bad | good, now, state, seq, mark, entries
local h = redis.call('HMGET', KEYS[1], 'state', 'seq', 'mark')
if not h[1] then return {'absent', now} end
local seq, last = tonumber(ARGV[1]), tonumber(h[2])
local start = seq == 0 and ARGV[2] == '*'
if seq > last or (seq < 1 and not start) then return {'bad', now} end
if seq == last then
  if h[3] ~= ARGV[2] then return {'bad', now} end
  return {'good', now, h[1], last, h[3], {}}
end
local at = start and '1-0' or seq .. '-0'
local first = redis.call('XRANGE', KEYS[2], at, at)[1]
if not first then return {'bad', now} end
for i = 1, #first[2], 2 do
  if not start and first[2][i] == 'm' and first[2][i + 1] ~= ARGV[2] then return {'bad', now} end
end
local entries, bytes, from = {}, 0, seq + 1
while #entries < tonumber(ARGV[3]) and bytes < tonumber(ARGV[4]) and from <= last do
  local rows = redis.call('XRANGE', KEYS[2], from .. '-0', '+', 'COUNT', 16)
  if #rows == 0 then break end -- never, or this would be for ever
  for _, entry in ipairs(rows) do
    if bytes >= tonumber(ARGV[4]) then break end
    entries[#entries + 1] = entry
    bytes = bytes + #entry[2][2]
  end
  from = seq + #entries + 1
end
return {'good', now, h[1], last, h[3], entries}
