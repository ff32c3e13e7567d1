-- The scripts about one entry that are not run for each delivery begin with this.
--
-- KEYS: the entry, events, bodies, claimed, waiting, parked, and the key of this call. Each script names its
-- arguments. Times are microseconds of the server's clock. Durations are microseconds, too,
-- unless a script says that they are milliseconds.
--
-- An entry that expires by itself (done, or open without a body) is the text at its own key. If an entry stays (with
-- a body, or parked), the text at its own key is 'k', for "kept". Its text is then a field of the hash `events`, its body
-- is a field of `bodies`, and its id is a member of one of the sorted sets `waiting` and `claimed` (score: when it is due)
-- and `parked` (score: 0).
--
-- The text of an entry: its state ('c' claimed, 'w' waiting, 'p' parked, 'd' done), the fingerprint ('f' and 16 bytes, or
-- '-' and 16 others if it is not known), the token of the newest claim (16 bytes), and unless it is done: attempts, due
-- (since when, if parked), retention and reason, parted by spaces.
--
-- The first write of a script frees memory where it can: a server that is full refuses a script whose first write takes
-- memory, but lets it write after that.

local ENTRY, EVENTS, BODIES, CLAIMED, WAITING, PARKED, CALL = unpack(KEYS)
local ID = ENTRY:match('}:id:(.*)$')
local NO_TOKEN = string.rep('\0', 16)

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local text = redis.call('GET', ENTRY)
local is_kept = text == 'k'
if is_kept then
  text = redis.call('HGET', EVENTS, ID)
end
text = text or ''
local state, fingerprint, token = text:sub(1, 1), text:sub(2, 18), text:sub(19, 34)
local attempts, due, retention, reason = text:match('^(%d+) (%d+) (%d+) (.*)$', 35)

local function is_held_by(holder)
  return state == 'c' and token == holder
end

local function encode()
  return state .. fingerprint .. token .. attempts .. ' ' .. string.format('%.0f', due) .. ' ' .. retention .. ' ' .. reason
end

-- Deletes what is kept of an event, except its body.
local function delete_kept()
  redis.call('HDEL', EVENTS, ID)
  redis.call('ZREM', CLAIMED, ID)
  redis.call('ZREM', WAITING, ID)
  redis.call('ZREM', PARKED, ID)
end

local function write_kept()
  delete_kept()
  redis.call('DEL', ENTRY)
  redis.call('SET', ENTRY, 'k')
  redis.call('HSET', EVENTS, ID, encode())
  if state == 'p' then
    redis.call('ZADD', PARKED, 0, ID)
  else
    redis.call('ZADD', state == 'c' and CLAIMED or WAITING, due, ID)
  end
end

-- Writes an open entry where it belongs.
local function write_open()
  if is_kept then
    return write_kept()
  end
  redis.call('DEL', ENTRY)
  local lifetime = math.ceil((due - now + retention) / 1000)
  if lifetime > 0 then
    redis.call('SET', ENTRY, encode(), 'PX', lifetime)
  end
end

-- Returns whether this call was made before, and its response was lost. Whatever happened to the event since, it
-- succeeded then.
local function is_repeat()
  return redis.call('EXISTS', CALL) == 1
end

-- A call is made again within seconds, if at all.
local function succeed()
  redis.call('SET', CALL, '', 'PX', 30000)
  return 1
end
