-- Gives the lease back if it is ours, and wakes the standbys.
-- KEYS: lease, wake
-- ARGV: holder
-- Returns 1 if it was ours.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('del', KEYS[1])
redis.call('xadd', KEYS[2], 'MAXLEN', 1, '*', 'why', 'released')
return 1
