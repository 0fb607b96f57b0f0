-- The store went back in time under a run: its worker writes the task anew, above all that was ever numbered.
-- KEYS task log push   ARGV fence run new_run seq done ttl channel claim turn, then field value ... of the hash
-- -> restored|fenced, now, fence, seq
local h = redis.call('HMGET', KEYS[1], 'fence', 'run', 'seq')
local fence, theirs = tonumber(ARGV[1]), tonumber(h[1] or -1)
if h[1] then
  if h[2] == ARGV[3] then return {'restored', now, theirs, tonumber(h[3])} end
  if theirs >= fence and not (theirs == fence and h[2] == ARGV[2]) then return {'fenced', now, theirs, 0} end
end
local seq = math.max(tonumber(ARGV[4]), tonumber(h[3] or 0)) + 1
fence = math.max(fence, theirs) + 1
-- What the hash still knows of its senders (claims, a cancel) stays good.
redis.call('DEL', KEYS[2])
redis.call('HDEL', KEYS[1], 'snap', 'snap_seq', 'snap_top')
redis.call('HSETNX', KEYS[1], 'c:' .. ARGV[8], ARGV[9] .. ' 0 ' .. ARGV[3])
local set = {'v', WRITES, 'claim', ARGV[8], 'fence', fence, 'run', ARGV[3], 'n', 0, 'seq', seq, 'mark', ARGV[3], 'top_seq', seq}
set[#set + 1] = ARGV[5] == '1' and 'base_seq' or 'snap_seq'
set[#set + 1] = seq
for i = 10, #ARGV do set[#set + 1] = ARGV[i] end
if redis.call('EXISTS', KEYS[3]) == 1 then set[#set + 1] = 'hooks'; set[#set + 1] = '1' end
redis.call('HSET', KEYS[1], unpack(set))
redis.call('PEXPIRE', KEYS[1], ARGV[6]); redis.call('PEXPIRE', KEYS[3], ARGV[6])
-- Followers ask the log, find their position gone, and end: their clients come back and get the Task.
redis.call('PUBLISH', ARGV[7], seq .. ' ' .. ARGV[3] .. ' task - 0 -\n')
return {'restored', now, fence, seq}
