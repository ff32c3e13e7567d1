-- no other arguments
local entry = read()
if not entry or entry.state ~= 'p' then
  return IS_REPEAT and entry and entry.state == 'w' and entry.attempts == 0 and 1 or 0
end
if redis.call('HEXISTS', BODIES, ID) == 0 then
  -- Without a body there is nothing to hand to a worker: the next claim is the first again.
  delete_kept()
  return 1
end
entry.state = 'w'
entry.token = nil
entry.attempts = 0
entry.due = now
entry.reason = nil
write_kept(ID, entry)
return 1
