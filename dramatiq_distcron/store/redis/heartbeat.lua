-- Publishes a process, and drops those that were not heard of for too long (killed, or in a crash loop).
-- KEYS: instances, instances.data
-- ARGV: holder, data, how long a silent process is kept in ms
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local silent = redis.call('zrangebyscore', KEYS[1], '-inf', string.format('(%.0f', now - ARGV[3]), 'limit', 0, 1000)
if #silent > 0 then
  redis.call('zrem', KEYS[1], unpack(silent))
  redis.call('hdel', KEYS[2], unpack(silent))
end
redis.call('zadd', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('hset', KEYS[2], ARGV[1], ARGV[2])
