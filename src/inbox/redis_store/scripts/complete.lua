-- KEYS: the entry, events, bodies, claimed. ARGV: token, retention in milliseconds.
local text = redis.call('GET', KEYS[1])
if text and text:sub(1, 1) == 'c' and text:sub(19, 34) == ARGV[1] then
  -- Most events expire by themselves. This fails if the server is full, or the retention is zero.
  local set = redis.pcall('SET', KEYS[1], 'd' .. text:sub(2, 34), 'PX', ARGV[2])
  if set.ok then
    return 1
  end
end

local ENTRY, EVENTS, BODIES, CLAIMED = unpack(KEYS)
local token, retention = unpack(ARGV)
local id = ENTRY:match('}:id:(.*)$')
local is_kept = text == 'k'
if is_kept then
  text = redis.call('HGET', EVENTS, id)
end
if not text or text:sub(19, 34) ~= token then
  return 0
end
local state = text:sub(1, 1)
if state ~= 'c' then
  return state == 'd' and 1 or 0
end
if is_kept then
  redis.call('HDEL', BODIES, id)
  redis.call('HDEL', EVENTS, id)
  redis.call('ZREM', CLAIMED, id)
end
redis.call('DEL', ENTRY)
if retention ~= '0' then
  redis.call('SET', ENTRY, 'd' .. text:sub(2, 34), 'PX', retention)
end
return 1
