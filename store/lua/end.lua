-- Ends a task that nobody runs (cancel, attempts spent, aged out), if it still stands where the caller folded it.
-- KEYS task log push   ARGV seq mark event state ts snapshot ttl_end ttl_log channel top
-- -> ended|absent|terminal|moved|running, now, seq, hooks
local h = redis.call('HMGET', KEYS[1], 'state', 'seq', 'mark', 'run', 'turn', 'done', 'fence', 'hooks')
if not h[1] then return {'absent', now, 0} end
local seq, turn = num(h[2]), num(h[5])
if h[3] == ARGV[2] then return {'ended', now, seq, num(h[8])} end
if TERMINAL[h[1]] then return {'terminal', now, seq} end
if (h[4] or '') ~= '' and num(h[6]) < turn then return {'running', now, 0} end
if seq ~= tonumber(ARGV[1]) then return {'moved', now, 0} end
seq = seq + 1
write(KEYS[2], seq, ARGV[2], 'status', ARGV[4], turn, ARGV[3])
announce(ARGV[9])
redis.call('HSET', KEYS[1], 'state', ARGV[4], 'ts', ARGV[5], 'seq', seq, 'mark', ARGV[2], 'turn', turn, 'done', turn, 'run', '',
  'fence', num(h[7]) + 1, 'base', ARGV[6], 'base_seq', seq, 'base_top', ARGV[10], 'top_seq', seq, 'shown', '1')
redis.call('HDEL', KEYS[1], 'snap', 'snap_seq', 'snap_top')
redis.call('PEXPIRE', KEYS[1], ARGV[7]); redis.call('PEXPIRE', KEYS[2], ARGV[8]); redis.call('PEXPIRE', KEYS[3], ARGV[7])
return {'ended', now, seq, num(h[8])}
