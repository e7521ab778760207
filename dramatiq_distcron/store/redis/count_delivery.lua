-- Counts a delivery before it runs, so that one which kills its worker is counted too.
-- KEYS: deliveries:<message>
-- ARGV: how long it is remembered in ms
local count = redis.call('incr', KEYS[1])
redis.call('pexpire', KEYS[1], ARGV[1])
return count
