-- Shared by the scripts that write: a script is not rolled back on an error, so every write notes how to undo it.
local journal = {}

local function noted(...)
  journal[#journal + 1] = {...}
end

local function roll_back()
  for i = #journal, 1, -1 do
    pcall(redis.call, unpack(journal[i]))
  end
  journal = {}
end

local function why(err)
  if type(err) == 'table' then
    err = err.err or 'unknown error'
  end
  return tostring(err)
end

-- Either all of `work` or nothing of it. Returns nil, or why it failed.
local function atomically(work, ...)
  journal = {}
  local ok, err = pcall(work, ...)
  if ok then
    return nil
  end
  roll_back()
  return why(err)
end

local function put_field(key, field, value)
  local before = redis.call('hget', key, field)
  redis.call('hset', key, field, value)
  if before then
    noted('hset', key, field, before)
  else
    noted('hdel', key, field)
  end
end

local function drop_field(key, field)
  local before = redis.call('hget', key, field)
  if before then
    redis.call('hdel', key, field)
    noted('hset', key, field, before)
  end
end

local function put_score(key, name, score)
  local before = redis.call('zscore', key, name)
  redis.call('zadd', key, score, name)
  if before then
    noted('zadd', key, before, name)
  else
    noted('zrem', key, name)
  end
end

local function drop_score(key, name)
  local before = redis.call('zscore', key, name)
  if before then
    redis.call('zrem', key, name)
    noted('zadd', key, before, name)
  end
end

-- The redis table given to Dramatiq's script: it does what is asked and notes how to undo it.
local spy = setmetatable({}, {__index = redis})
local removed = 0

function spy.call(command, ...)
  local reply = redis.call(command, ...)
  local verb = string.lower(command)
  local key, field = ...
  if verb == 'hset' and reply == 1 then
    noted('hdel', key, field)
  elseif verb == 'rpush' then
    noted('lrem', key, -1, field)
  elseif verb == 'srem' then
    removed = removed + reply
  end
  return reply
end
