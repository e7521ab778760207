-- Prolongs the lease if it is still ours, and says how large the state is.
-- KEYS: lease, schedules, due
-- ARGV: holder, time to live in ms
-- Returns {'renewed', now, number of schedules, number of cursors} or {'lost', now}.
local time = redis.call('time')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return {'lost', now}
end
redis.call('pexpire', KEYS[1], ARGV[2])
return {'renewed', now, redis.call('hlen', KEYS[2]), redis.call('zcard', KEYS[3])}
