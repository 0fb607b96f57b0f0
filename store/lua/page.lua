-- One page of a list, newest first: ids strictly after the cursor (score, id), and how many the list holds.
-- KEYS list   ARGV cursor_score('' = from the top) cursor_id limit least_score
local out, limit, least, cursor, after = {}, tonumber(ARGV[3]), ARGV[4], ARGV[1], ARGV[2]
local max, offset = cursor == '' and '+inf' or cursor, 0
while #out < limit * 2 do
  local rows = redis.call('ZRANGE', KEYS[1], max, least, 'BYSCORE', 'REV', 'LIMIT', offset, limit + 8, 'WITHSCORES')
  if #rows == 0 then break end
  for i = 1, #rows, 2 do
    if cursor == '' or tonumber(rows[i + 1]) < tonumber(cursor) or rows[i] < after then
      out[#out + 1] = rows[i]; out[#out + 1] = rows[i + 1]
      if #out >= limit * 2 then break end
    end
  end
  offset = offset + limit + 8
end
return {'ok', now, redis.call('ZCOUNT', KEYS[1], least, '+inf'), out}
