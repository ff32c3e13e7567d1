-- token, retention
local entry = read()
if entry and entry.state == 'd' then
  return entry.token == ARGV[3] and 1 or 0
end
if not is_held(entry, ARGV[3]) then
  return 0
end
finish(entry, 'd', tonumber(ARGV[4]))
return 1
