-- KEYS: the entry, events; see `entry.lua`.
-- ARGV: fingerprint.
-- Returns the number of the attempt that a claim would be, minus the remaining microseconds if another one lasts,
-- otherwise the state. Changes nothing.
local ENTRY, EVENTS = unpack(KEYS)
local fingerprint = ARGV[1]

local text = redis.call('GET', ENTRY)
if text == 'k' then
  text = redis.call('HGET', EVENTS, ENTRY:match('}:id:(.*)$'))
end
if not text then
  return 1
end

local state, known = text:sub(1, 1), text:sub(2, 18)
if known:sub(1, 1) == 'f' and fingerprint:sub(1, 1) == 'f' and fingerprint ~= known then
  return 'conflict'
end
if state == 'p' then
  return 'parked'
end
if state == 'd' then
  return 'done'
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local attempts, due = text:match('^(%d+) (%d+)', 35)
if tonumber(due) > now then
  return now - due
end
return math.min(attempts + 1, 4294967295)
