-- The heart: the run that holds the fence appends its next events, numbered by itself, so that a repeat is harmless.
-- KEYS task log push
-- ARGV fence run first_n channel ttl ttl_end ttl_log ttl_answered show snapshot_field snapshot top trim
--      then per event: kind state ts bytes
-- -> ok|terminal|fenced|shown|lost, now, seq, hooks: 1 if somebody is to be told of it by webhook
local fence, run, first = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local count = (#ARGV - 13) / 4
local h = redis.call('HMGET', KEYS[1], 'fence', 'run', 'n', 'state', 'seq', 'turn', 'shown', 'hooks')
-- 'lost': the store knows less than it once answered, so it went back in time (a failover, an older save).
if not h[1] then return {'lost', now, 0} end
local theirs, seq = tonumber(h[1]), tonumber(h[5])
if theirs ~= fence or h[2] ~= run then
  if theirs >= fence then return {'fenced', now, seq} end
  return {'lost', now, seq}
end
local have = tonumber(h[3])
if first + count - 1 <= have then return {'ok', now, seq, num(h[8])} end
if TERMINAL[h[4]] then return {'terminal', now, seq} end
if first > have + 1 then return {'lost', now, seq} end
if ARGV[14] == 'message' and h[7] == '1' then return {'shown', now, seq} end

local state, ts, top = h[4], nil, nil
for i = have - first + 1, count - 1 do
  local at = 14 + 4 * i
  seq = seq + 1
  if ARGV[at] ~= 'artifact' then top = seq end
  if ARGV[at + 1] ~= '' then state, ts = ARGV[at + 1], ARGV[at + 2] end
  write(KEYS[2], seq, run, ARGV[at], ARGV[at + 1], h[6], ARGV[at + 3])
end
announce(ARGV[4])
local set = {'seq', seq, 'mark', run, 'n', first + count - 1}
if ts then
  set[#set + 1] = 'state'; set[#set + 1] = state; set[#set + 1] = 'ts'; set[#set + 1] = ts
  if TERMINAL[state] or INTERRUPTED[state] then set[#set + 1] = 'done'; set[#set + 1] = h[6] end
end
if top then set[#set + 1] = 'top_seq'; set[#set + 1] = top end
if ARGV[9] == '1' then set[#set + 1] = 'shown'; set[#set + 1] = '1' end
if ARGV[10] ~= '' then
  set[#set + 1] = ARGV[10]; set[#set + 1] = ARGV[11]; set[#set + 1] = ARGV[10] .. '_seq'; set[#set + 1] = seq
  set[#set + 1] = ARGV[10] .. '_top'; set[#set + 1] = ARGV[12]
end
redis.call('HSET', KEYS[1], unpack(set))
if ARGV[10] == 'base' then redis.call('HDEL', KEYS[1], 'snap', 'snap_seq', 'snap_top') end
if ARGV[13] ~= '' then redis.call('XTRIM', KEYS[2], 'MINID', ARGV[13]) end
if state == ANSWERED then
  for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[8]) end
elseif TERMINAL[state] then
  redis.call('PEXPIRE', KEYS[1], ARGV[6]); redis.call('PEXPIRE', KEYS[2], ARGV[7]); redis.call('PEXPIRE', KEYS[3], ARGV[6])
else
  for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[5]) end
end
return {'ok', now, seq, num(h[8])}
