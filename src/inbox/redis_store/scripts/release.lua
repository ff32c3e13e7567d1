-- token, delay, retention, reason
if is_repeat() then
  return 1
end
if not is_held_by(ARGV[1]) then
  return 0
end
state, token = 'w', NO_TOKEN
due = now + ARGV[2]
retention = ARGV[3]
reason = is_kept and ARGV[4] or ''
write_open()
return succeed()
