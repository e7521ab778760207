-- Runs Dramatiq's script with a redis that only writes down what it is asked: which keys it would touch, and
-- whether we may.
-- KEYS: namespace
-- ARGV: arguments of Dramatiq's script
-- Returns {{command, key, type of the key now ('' if we may not ask), 'yes' | 'no' | 'unknown', rest...}, ...}
local calls = {}
local fake = setmetatable({}, {__index = redis})

-- What a real server would answer to an enqueue or an ack of a message that is there.
local replies = {srem = 1, hset = 1, rpush = 1, hexists = 1, hdel = 1, hget = 'a message'}

local function allowed(...)
  if not redis.acl_check_cmd then
    return 'unknown'
  end
  return redis.acl_check_cmd(...) and 'yes' or 'no'
end

local function kind(key)
  local reply = redis.pcall('type', key)
  return type(reply) == 'table' and reply.ok or ''
end

function fake.call(command, key, ...)
  calls[#calls + 1] = {string.lower(command), key, kind(key), allowed(command, key, ...), ...}
  return replies[string.lower(command)] or {}
end

dispatch({KEYS[1]}, ARGV, fake)
return calls
