-- retention
local entry = read()
if not entry or entry.state ~= 'p' then
  return IS_REPEAT and entry and entry.state == 'x' and 1 or 0
end
finish(entry, 'x', tonumber(ARGV[3]))
return 1
