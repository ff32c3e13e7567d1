-- What all scripts begin with.
--
-- KEYS: events, bodies, waiting, claimed, parked, and for one event its own key.
-- ARGV[1]: the id of the event, or '' if the script is about all events of an endpoint.
-- ARGV[2]: '1' if the same call was made before and its response may have been lost, otherwise '0'.
-- Each script names its other arguments, from ARGV[3] on.
-- Times are microseconds of the server's clock. Durations are microseconds, too.
--
-- An entry that expires by itself (done, or open without a body) is a string at its own key. An entry that
-- stays (with a body, or parked) is a field of the hash `events`; its body is a field of `bodies`, and its id
-- is a member of one of the sorted sets `waiting` and `claimed` (score: when it is due) and `parked` (score: 0).
--
-- The text of an entry: its state ('c' claimed, 'w' waiting, 'p' parked, 'd' done, 'x' discarded), 'f' if the
-- fingerprint is known or else '-', the fingerprint and the token of the newest claim (16 bytes each), and
-- unless it is done: attempts, due (since when, if parked), retention and reason, parted by spaces.

local EVENTS, BODIES, WAITING, CLAIMED, PARKED, ENTRY = unpack(KEYS)
local ID, IS_REPEAT = ARGV[1], ARGV[2] == '1'
local NO_BYTES = string.rep('\0', 16)

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function digits(number)
  return string.format('%.0f', number)
end

local function encode(entry)
  local head = entry.state
    .. (entry.fingerprint and 'f' .. entry.fingerprint or '-' .. NO_BYTES)
    .. (entry.token or NO_BYTES)
  if entry.state == 'd' or entry.state == 'x' then
    return head
  end
  return head .. digits(entry.attempts) .. ' ' .. digits(entry.due) .. ' ' .. digits(entry.retention)
    .. ' ' .. (entry.reason or '')
end

local function decode(text)
  local entry = {
    state = text:sub(1, 1),
    fingerprint = text:sub(2, 2) == 'f' and text:sub(3, 18) or nil,
    token = text:sub(19, 34),
  }
  local attempts, due, retention, reason = text:match('^(%d+) (%d+) (%d+) (.*)$', 35)
  entry.attempts, entry.due, entry.retention = tonumber(attempts), tonumber(due), tonumber(retention)
  entry.reason = reason
  return entry
end

local function read()
  local kept = redis.call('HGET', EVENTS, ID)
  local text = kept or redis.call('GET', ENTRY)
  if not text then
    return nil
  end
  local entry = decode(text)
  entry.kept = kept and true or false
  return entry
end

local function is_open(entry)
  return entry.state == 'c' or entry.state == 'w'
end

local function is_held(entry, token)
  return entry and entry.state == 'c' and entry.token == token
end

local function conflicts(entry, fingerprint)
  return entry.fingerprint and fingerprint and entry.fingerprint ~= fingerprint
end

local function next_attempt(attempts)
  return math.min(attempts + 1, 4294967295)
end

-- Writes an entry that expires by itself. Deletes first: a server that is full refuses a script whose first
-- write takes memory, but one that changes an entry must succeed.
local function write_expiring(entry, lifetime)
  redis.call('DEL', ENTRY)
  if lifetime > 0 then
    redis.call('SET', ENTRY, encode(entry), 'PX', digits(math.ceil(lifetime / 1000)))
  end
end

-- Writes an entry that stays. Deletes first, for the same reason.
local function write_kept(id, entry)
  redis.call('ZREM', WAITING, id)
  redis.call('ZREM', CLAIMED, id)
  redis.call('ZREM', PARKED, id)
  redis.call('HSET', EVENTS, id, encode(entry))
  if entry.state == 'p' then
    redis.call('ZADD', PARKED, 0, id)
  else
    redis.call('ZADD', entry.state == 'c' and CLAIMED or WAITING, digits(entry.due), id)
  end
end

-- Writes an open entry where it belongs.
local function write_open(entry)
  if entry.kept then
    write_kept(ID, entry)
  else
    write_expiring(entry, entry.due - now + entry.retention)
  end
end

-- Deletes what stays of an event: its entry, its body, its place in the sets.
local function delete_kept()
  redis.call('HDEL', BODIES, ID)
  redis.call('HDEL', EVENTS, ID)
  redis.call('ZREM', WAITING, ID)
  redis.call('ZREM', CLAIMED, ID)
  redis.call('ZREM', PARKED, ID)
end

-- Makes an event done and deletes its body.
local function finish(entry, state, retention)
  delete_kept()
  entry.state = state
  write_expiring(entry, retention)
end
