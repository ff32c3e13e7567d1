-- retention in milliseconds
if is_repeat() then
  return 1
end
if state ~= 'p' then
  return 0
end
redis.call('HDEL', BODIES, ID)
delete_kept()
redis.call('DEL', ENTRY)
if ARGV[1] ~= '0' then
  redis.call('SET', ENTRY, 'd' .. fingerprint .. NO_TOKEN, 'PX', ARGV[1])
end
return succeed()
