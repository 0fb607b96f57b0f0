-- What follows a position (seq, mark), if that position is still good: its entry, or the hash for the last, bears its mark.
-- KEYS task log   ARGV seq mark limit   -> absent | bad | good, now, state, seq, mark, entries
local h = redis.call('HMGET', KEYS[1], 'state', 'seq', 'mark')
if not h[1] then return {'absent', now} end
local seq, last = tonumber(ARGV[1]), tonumber(h[2])
if seq > last or seq < 1 then return {'bad', now} end
if seq == last then
  if h[3] ~= ARGV[2] then return {'bad', now} end
  return {'good', now, h[1], last, h[3], {}}
end
local entries = redis.call('XRANGE', KEYS[2], seq .. '-0', '+', 'COUNT', tonumber(ARGV[3]) + 1)
local first = entries[1]
if not first or first[1] ~= seq .. '-0' then return {'bad', now} end
local fields = first[2]
for i = 1, #fields, 2 do
  if fields[i] == 'm' and fields[i + 1] ~= ARGV[2] then return {'bad', now} end
end
table.remove(entries, 1)
return {'good', now, h[1], last, h[3], entries}
