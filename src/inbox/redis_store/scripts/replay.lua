-- no arguments
if is_repeat() then
  return 1
end
if state ~= 'p' then
  return 0
end
if redis.call('HEXISTS', BODIES, ID) == 1 then
  state, token, attempts, due, reason = 'w', NO_TOKEN, 0, now, ''
  write_kept()
else
  -- Without a body there is nothing to hand to a worker: the next claim is the first again.
  delete_kept()
  redis.call('DEL', ENTRY)
end
return succeed()
