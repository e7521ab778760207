-- Some of Dramatiq's dead messages, at one instant: between two commands somebody else may take them over.
-- KEYS: Dramatiq's sorted set, Dramatiq's hash
-- ARGV: how many of the first are left out, how many at most
-- Returns for each: id, time of death in ms, message; the latter is nothing where there is only the id
local rows = redis.call('zrangebyscore', KEYS[1], '-inf', '+inf', 'WITHSCORES', 'LIMIT', ARGV[1], ARGV[2])
local found = {}
for i = 1, #rows, 2 do
  found[#found + 1] = {rows[i], rows[i + 1], redis.call('hget', KEYS[2], rows[i])}
end
return found
