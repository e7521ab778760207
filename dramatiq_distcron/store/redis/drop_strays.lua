-- Drops cursors that have no schedule: somebody else wrote them, or a schedule was deleted by hand.
-- KEYS: lease, schedules, due
-- ARGV: holder
-- Returns {'lost'} (the lease) or {'done', how many}.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return {'lost'}
end
local dropped = 0
for _, name in ipairs(redis.call('zrangebyscore', KEYS[3], '-inf', '+inf')) do
  if redis.call('hexists', KEYS[2], name) == 0 then
    redis.call('zrem', KEYS[3], name)
    dropped = dropped + 1
  end
end
return {'done', dropped}
