-- token, reason
local entry = read()
if not is_held(entry, ARGV[3]) then
  return IS_REPEAT and entry and entry.state == 'p' and entry.token == ARGV[3] and 1 or 0
end
redis.call('DEL', ENTRY)
entry.state = 'p'
entry.due = now
entry.reason = ARGV[4]
write_kept(ID, entry)
return 1
