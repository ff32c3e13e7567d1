-- the id before the first one or '', limit. Returns the id, body or false, attempts, reason and age.
local after = ARGV[3] == '' and '-' or '(' .. ARGV[3]
local parked = {}
for _, id in ipairs(redis.call('ZRANGEBYLEX', PARKED, after, '+', 'LIMIT', 0, ARGV[4])) do
  local text = redis.call('HGET', EVENTS, id)
  if text then
    local entry = decode(text)
    parked[#parked + 1] =
      { id, redis.call('HGET', BODIES, id), entry.attempts, entry.reason, math.max(0, now - entry.due) }
  end
end
return parked
