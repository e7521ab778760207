-- Puts messages whose retry is due back into their queues, by Dramatiq's script, each exactly once: it leaves the
-- waiting ones in the same step.
-- KEYS: namespace, retries, retries.msgs, budgets
-- ARGV: how many at most
-- Returns {now, how many were moved, how many were put off, when the next is due or '', why some could not be moved}
local NAMESPACE, RETRIES, DATA, BUDGETS = {KEYS[1]}, KEYS[2], KEYS[3], KEYS[4]
local now = store_ms()
local buckets = {}
local moved, put_off, failed = 0, 0, ''

local function is_call(call)
  return type(call) == 'table' and #call > 0
end

local function move(key, about, data)
  drop_score(RETRIES, key)
  drop_field(DATA, key)
  for _, call in ipairs(about.calls) do
    for i = 1, #call do
      if type(call[i]) == 'number' then
        call[i] = data
      end
    end
    dispatch(NAMESPACE, call, spy)
  end
end

-- Nearly all looks find nothing, and are made each second by each process.
local first = next_due(RETRIES)
if first == '' or tonumber(first) > now then
  return {string.format('%.0f', now), 0, 0, first, ''}
end

local due = redis.call('zrangebyscore', RETRIES, '-inf', string.format('%.0f', now), 'WITHSCORES', 'LIMIT', 0, ARGV[1])
for i = 1, #due, 2 do
  local key, by_hand = due[i], tonumber(due[i + 1]) == 0
  local about, data = parts_of(redis.call('hget', DATA, key))
  local again = about and not by_hand and take_token(BUDGETS, buckets, about.budget, now)
  if not about or type(about.calls) ~= 'table' or not is_call(about.calls[1]) then
    -- Its message is gone, or is none of ours: it must not hold up the others. What there is of it stays.
    redis.call('zadd', RETRIES, string.format('%.0f', now + 3600000), key)
    failed = 'the message of ' .. key .. ' is gone or cannot be read'
    if not redis.call('hget', DATA, key) then
      redis.call('zrem', RETRIES, key)
    end
  elseif again then
    put_off = put_off + 1
    redis.call('zadd', RETRIES, again, key)
  else
    local failure = atomically(move, key, about, data)
    if failure then
      failed = failure
      redis.call('zadd', RETRIES, later(now, i), key)
    else
      moved = moved + 1
    end
  end
end
save_buckets(BUDGETS, buckets)
return {string.format('%.0f', now), moved, put_off, next_due(RETRIES), failed}
