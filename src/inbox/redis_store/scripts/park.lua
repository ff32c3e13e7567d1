-- token, reason
if is_repeat() then
  return 1
end
if not is_held_by(ARGV[1]) then
  return 0
end
-- Without a token, the old holder cannot complete the event after it was discarded.
state, token, due, reason = 'p', NO_TOKEN, now, ARGV[2]
write_kept()
return succeed()
