-- token, fingerprint or '', lease, retention
local token, fingerprint = ARGV[3], ARGV[4] ~= '' and ARGV[4] or nil
local lease, retention = tonumber(ARGV[5]), tonumber(ARGV[6])

local entry = read()
if not entry then
  local claim = {
    state = 'c', fingerprint = fingerprint, token = token,
    attempts = 1, due = now + lease, retention = retention,
  }
  local lifetime = math.max(1, math.ceil((lease + retention) / 1000))
  redis.call('SET', ENTRY, encode(claim), 'NX', 'PX', digits(lifetime))
  return { 'fresh', 1 }
end
if conflicts(entry, fingerprint) then
  return { 'conflict', 0 }
end
if entry.state == 'p' then
  return { 'parked', 0 }
end
if not is_open(entry) then
  return { 'done', 0 }
end
if entry.due > now then
  if is_held(entry, token) then
    return { 'fresh', entry.attempts }
  end
  return { 'in progress', entry.due - now }
end
entry.state = 'c'
entry.token = token
entry.fingerprint = entry.fingerprint or fingerprint
entry.attempts = next_attempt(entry.attempts)
entry.due = now + lease
entry.retention = retention
entry.reason = nil
write_open(entry)
return { 'fresh', entry.attempts }
