-- A worker that holds the lease of a turn begins an attempt: it raises the fence, so that it alone can append.
-- KEYS task   ARGV turn run_mark lease_deadline new('1' = the queue says that nobody has had the job yet)
-- -> absent|newer|stale|late|held|unreadable, now | begun, now, fence attempt owner ctx state ts seq shown cancel base base_seq claim input hooks
local turn, run = tonumber(ARGV[1]), ARGV[2]
local h = redis.call('HMGET', KEYS[1], 'state', 'turn', 'done', 'run', 'fence', 'attempt', 'v')
if not h[1] then return {'absent', now} end
if num(h[7]) > READS then return {'newer', now} end
local now_turn, done, fence, attempt = tonumber(h[2]), tonumber(h[3]), tonumber(h[5]), tonumber(h[6])
if not (now_turn and done and h[4] and fence and attempt) then return {'unreadable', now} end
if TERMINAL[h[1]] or turn ~= now_turn or done >= turn then return {'stale', now, h[1]} end
if h[4] ~= run then
  -- A worker that slept past its lease must not fence out the one that took over.
  if now > tonumber(ARGV[3]) then return {'late', now} end
  -- The queue has lost its memory, and somebody has queued anew what runs. Its worker puts its own job back; should it
  -- be dead, too, the reconciler finds the turn.
  if h[4] ~= '' and ARGV[4] == '1' then return {'held', now} end
  fence, attempt = fence + 1, attempt + 1
  redis.call('HSET', KEYS[1], 'fence', fence, 'attempt', attempt, 'run', run, 'n', 0)
end
local out = redis.call('HMGET', KEYS[1], 'owner', 'ctx', 'state', 'ts', 'seq', 'shown', 'cancel', 'base', 'base_seq',
  'claim', 'in', 'hooks')
return {'begun', now, fence, attempt, unpack(out)}
