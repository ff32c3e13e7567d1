-- KEYS: events, bodies, claimed, waiting, parked. ARGV: the id before the first one or '', limit.
-- Returns the id, body or false, attempts, reason and age of each event.
local EVENTS, BODIES, _, _, PARKED = unpack(KEYS)

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local after = ARGV[1] == '' and '-' or '(' .. ARGV[1]
local parked = {}
for _, id in ipairs(redis.call('ZRANGEBYLEX', PARKED, after, '+', 'LIMIT', 0, ARGV[2])) do
  local text = redis.call('HGET', EVENTS, id)
  if text then
    local attempts, since, reason = text:match('^(%d+) (%d+) %d+ (.*)$', 35)
    parked[#parked + 1] =
      { id, redis.call('HGET', BODIES, id), tonumber(attempts), reason, math.max(0, now - since) }
  end
end
return parked
