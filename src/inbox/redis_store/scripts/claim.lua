-- KEYS: the entry. If it is kept, the script returns 'kept' and is run again with all keys of `entry.lua`.
-- ARGV: token, fingerprint, lease, retention, both together in milliseconds.
-- Returns the number of the attempt if the claim was made, minus the remaining microseconds if another one lasts,
-- otherwise the state.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local due = string.format('%.0f', now + ARGV[3])

-- Most claims are the first of their event. A server that is full refuses this even if the entry exists.
local first = 'c' .. ARGV[2] .. ARGV[1] .. '1 ' .. due .. ' ' .. ARGV[4] .. ' '
local set = redis.pcall('SET', KEYS[1], first, 'PX', ARGV[5], 'NX')
if set and set.ok then
  return 1
end

local ENTRY, EVENTS, _, CLAIMED, WAITING = unpack(KEYS)
local token, fingerprint, _, retention, lifetime = unpack(ARGV)
local id = ENTRY:match('}:id:(.*)$')
local text = redis.call('GET', ENTRY)
local is_kept = text == 'k'
if is_kept then
  if not EVENTS then
    return 'kept'
  end
  text = redis.call('HGET', EVENTS, id)
end
if not text then
  -- Fails as the first time, or replaces an entry of which somebody deleted a part by hand.
  redis.call('SET', ENTRY, first, 'PX', lifetime)
  return 1
end

local state, known = text:sub(1, 1), text:sub(2, 18)
local attempts, due_before = text:match('^(%d+) (%d+)', 35)
if known:sub(1, 1) == '-' then
  known = fingerprint
end
if fingerprint:sub(1, 1) == 'f' and fingerprint ~= known then
  if is_kept or state == 'd' or tonumber(due_before) > now then
    return 'conflict'
  end
  known = fingerprint
end
if state == 'p' then
  return 'parked'
end
if state == 'd' then
  return 'done'
end
if tonumber(due_before) > now then
  if state == 'c' and text:sub(19, 34) == token then
    return tonumber(attempts)
  end
  return now - due_before
end

attempts = math.min(attempts + 1, 4294967295)
local again = 'c' .. known .. token .. attempts .. ' ' .. due .. ' ' .. retention .. ' '
if is_kept then
  redis.call('ZREM', WAITING, id)
  redis.call('ZREM', CLAIMED, id)
  redis.call('HSET', EVENTS, id, again)
  redis.call('ZADD', CLAIMED, due, id)
else
  redis.call('DEL', ENTRY)
  redis.call('SET', ENTRY, again, 'PX', lifetime)
end
return attempts
