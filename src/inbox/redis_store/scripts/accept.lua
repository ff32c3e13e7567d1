-- KEYS: the entry, events, bodies, claimed, waiting. ARGV: fingerprint, body.
-- Returns the remaining microseconds if a claim lasts, otherwise the state.
local ENTRY, EVENTS, BODIES, _, WAITING = unpack(KEYS)
local fingerprint, body = unpack(ARGV)
local id = ENTRY:match('}:id:(.*)$')

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local attempts = '0'

-- Most events are new. A server that is full refuses this even if the entry exists.
local set = redis.pcall('SET', ENTRY, 'k', 'NX')
if not set or set.err then
  local text = redis.call('GET', ENTRY)
  local is_kept = text == 'k'
  if is_kept then
    text = redis.call('HGET', EVENTS, id)
  end
  if text then
    local conflicts = text:sub(2, 2) == 'f' and text:sub(2, 18) ~= fingerprint
    if is_kept or text:sub(1, 1) == 'd' then
      return conflicts and 'conflict' or 'duplicate'
    end
    local due
    attempts, due = text:match('^(%d+) (%d+)', 35)
    if tonumber(due) > now then
      return conflicts and 'conflict' or due - now
    end
  end
  redis.call('SET', ENTRY, 'k')
end

local due = string.format('%.0f', now)
redis.call('HSET', BODIES, id, body)
redis.call('HSET', EVENTS, id, 'w' .. fingerprint .. string.rep('\0', 16) .. attempts .. ' ' .. due .. ' 0 ')
redis.call('ZADD', WAITING, due, id)
return 'accepted'
