-- KEYS: events, bodies, claimed, waiting. ARGV: token, lease, limit.
-- Returns the id, body, attempt and overdue of each event. The bodies of all but the last one have up to 4 MiB, so that
-- the response arrives before its caller gives up: the events would be claimed by nobody.
local EVENTS, BODIES, CLAIMED, WAITING = unpack(KEYS)
local token, lease, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local due_then = string.format('%.0f', now + lease)

local function due_in(set)
  return redis.call('ZRANGEBYSCORE', set, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
end

local waiting, lapsed = due_in(WAITING), due_in(CLAIMED)
local at_waiting, at_lapsed = 1, 1
local taken, bytes = {}, 0
while #taken < limit and bytes < 4194304 do
  local due_waiting, due_lapsed = tonumber(waiting[at_waiting + 1]), tonumber(lapsed[at_lapsed + 1])
  local set, id, due
  if due_waiting and (not due_lapsed or due_waiting <= due_lapsed) then
    set, id, due, at_waiting = WAITING, waiting[at_waiting], due_waiting, at_waiting + 2
  elseif due_lapsed then
    set, id, due, at_lapsed = CLAIMED, lapsed[at_lapsed], due_lapsed, at_lapsed + 2
  else
    break
  end
  local text, body = redis.call('HGET', EVENTS, id), redis.call('HGET', BODIES, id)
  redis.call('ZREM', set, id)
  -- Otherwise somebody deleted a part of it by hand.
  if text and body then
    local attempts, retention = text:match('^(%d+) %d+ (%d+)', 35)
    attempts = math.min(attempts + 1, 4294967295)
    redis.call('HSET', EVENTS, id,
      'c' .. text:sub(2, 18) .. token .. attempts .. ' ' .. due_then .. ' ' .. retention .. ' ')
    redis.call('ZADD', CLAIMED, due_then, id)
    taken[#taken + 1] = { id, body, attempts, now - due }
    bytes = bytes + #body
  end
end
return taken
