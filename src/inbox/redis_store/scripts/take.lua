-- token, lease, limit. Returns the id, body, attempt and overdue of each event.
local token, lease, limit = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local function due_in(set)
  return redis.call('ZRANGEBYSCORE', set, '-inf', digits(now), 'WITHSCORES', 'LIMIT', 0, limit)
end

local waiting, lapsed = due_in(WAITING), due_in(CLAIMED)
local at_waiting, at_lapsed = 1, 1
local taken = {}
while #taken < limit do
  local due_waiting, due_lapsed = tonumber(waiting[at_waiting + 1]), tonumber(lapsed[at_lapsed + 1])
  local id, due
  if due_waiting and (not due_lapsed or due_waiting <= due_lapsed) then
    id, due, at_waiting = waiting[at_waiting], due_waiting, at_waiting + 2
  elseif due_lapsed then
    id, due, at_lapsed = lapsed[at_lapsed], due_lapsed, at_lapsed + 2
  else
    break
  end
  local text, body = redis.call('HGET', EVENTS, id), redis.call('HGET', BODIES, id)
  if text and body then
    local entry = decode(text)
    entry.state, entry.token, entry.reason = 'c', token, nil
    entry.attempts = next_attempt(entry.attempts)
    entry.due = now + lease
    write_kept(id, entry)
    taken[#taken + 1] = { id, body, entry.attempts, now - due }
  else
    -- Somebody deleted a part of it by hand.
    redis.call('ZREM', WAITING, id)
    redis.call('ZREM', CLAIMED, id)
  end
end
return taken
