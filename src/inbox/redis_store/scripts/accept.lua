-- fingerprint, body
local fingerprint = ARGV[3]
local entry = read()
if entry then
  if conflicts(entry, fingerprint) then
    return { 'conflict', 0 }
  end
  if entry.kept or not is_open(entry) then
    return { 'duplicate', 0 }
  end
  if entry.due > now then
    return { 'in progress', entry.due - now }
  end
end
-- The body first: if the server is full, nothing else happens.
redis.call('HSET', BODIES, ID, ARGV[4])
redis.call('DEL', ENTRY)
write_kept(ID, {
  state = 'w', fingerprint = fingerprint, attempts = entry and entry.attempts or 0, due = now, retention = 0,
})
return { 'accepted', 0 }
