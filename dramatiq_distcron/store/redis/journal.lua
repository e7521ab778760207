-- Shared by the scripts that write: a script is not rolled back on an error, so every write notes how to undo it.
-- The journal is one flat list, four places a note (command, key, two arguments): a table for each note would cost
-- more than the write it is for.
local journal = {}
local noted_up_to = 0

local function noted(command, key, first, second)
  journal[noted_up_to + 1], journal[noted_up_to + 2] = command, key
  journal[noted_up_to + 3], journal[noted_up_to + 4] = first, second or false
  noted_up_to = noted_up_to + 4
end

local function roll_back()
  for at = noted_up_to - 3, 1, -4 do
    if journal[at + 3] then
      pcall(redis.call, journal[at], journal[at + 1], journal[at + 2], journal[at + 3])
    else
      pcall(redis.call, journal[at], journal[at + 1], journal[at + 2])
    end
  end
  noted_up_to = 0
end

local function why(err)
  if type(err) == 'table' then
    err = err.err or 'unknown error'
  end
  return tostring(err)
end

-- Either all of `work` or nothing of it. Returns nil, or why it failed.
local function atomically(work, ...)
  noted_up_to = 0
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
local lower = setmetatable({}, {__index = function(known, command)
  known[command] = string.lower(command)
  return known[command]
end})

function spy.call(command, key, ...)
  local reply = redis.call(command, key, ...)
  local verb = lower[command]
  if verb == 'hset' then
    if reply == 1 then
      noted('hdel', key, (...))
    end
  elseif verb == 'rpush' then
    noted('lrem', key, -1, (...))
  elseif verb == 'srem' then
    removed = removed + reply
  end
  return reply
end

local function now_ms()
  local time = redis.call('time')
  return string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
