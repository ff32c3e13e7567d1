-- KEYS: events, bodies, claimed, waiting, parked.
-- Returns how many events wait, are in progress and are parked, and how long the first has been due.
local _, _, CLAIMED, WAITING, PARKED = unpack(KEYS)

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local lapsed = redis.call('ZCOUNT', CLAIMED, '-inf', now)
local lag = 0
for _, set in ipairs({ WAITING, CLAIMED }) do
  local first = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')
  lag = math.max(lag, now - (tonumber(first[2]) or now))
end
return {
  redis.call('ZCARD', WAITING) + lapsed,
  redis.call('ZCARD', CLAIMED) - lapsed,
  redis.call('ZCARD', PARKED),
  lag,
}
