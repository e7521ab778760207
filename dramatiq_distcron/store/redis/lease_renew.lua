-- Prolongs the lease if it is still ours and, if asked, says how large the state is.
-- KEYS: lease, schedules, due
-- ARGV: holder, time to live in ms, '1' to count
-- Returns {'renewed', now[, number of schedules, number of cursors]} or {'lost'}.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return {'lost'}
end
redis.call('pexpire', KEYS[1], ARGV[2])
local time = redis.call('time')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
if ARGV[3] ~= '1' then
  return {'renewed', now}
end
return {'renewed', now, redis.call('hlen', KEYS[2]), redis.call('zcard', KEYS[3])}
