-- fingerprint
--
-- Returns the number of the attempt that a claim would be, minus the remaining microseconds if another one lasts,
-- otherwise the state. Changes nothing.
local asked = ARGV[1]
if text == '' then
  return 1
end
if fingerprint:sub(1, 1) == 'f' and asked:sub(1, 1) == 'f' and asked ~= fingerprint
  and (is_kept or state == 'd' or tonumber(due) > now) then
  return 'conflict'
end
if state == 'p' then
  return 'parked'
end
if state == 'd' then
  return 'done'
end
if tonumber(due) > now then
  return now - due
end
return math.min(attempts + 1, 4294967295)
