-- token, delay, retention, reason
local entry = read()
if not is_held(entry, ARGV[3]) then
  return IS_REPEAT and entry and entry.state == 'w' and entry.token == ARGV[3] and 1 or 0
end
entry.state = 'w'
entry.due = now + tonumber(ARGV[4])
entry.retention = tonumber(ARGV[5])
entry.reason = entry.kept and ARGV[6] or nil
write_open(entry)
return 1
