-- token, lease
if not is_held_by(ARGV[1]) then
  return 0
end
due = now + ARGV[2]
write_open()
return 1
