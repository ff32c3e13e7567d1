-- token, lease
local entry = read()
if not is_held(entry, ARGV[3]) then
  return 0
end
entry.due = now + tonumber(ARGV[4])
write_open(entry)
return 1
