-- Takes messages whose retry is due, for the caller to publish: where the broker is not on this Redis. Until it says
-- that they are published they stay, and are due again after a while.
-- KEYS: retries, retries.msgs, budgets
-- ARGV: how many at most, after how many ms they are due again
-- Returns {now, how many were taken, how many were put off, when the next is due or '', why some could not be taken,
-- key, stored text, ...}
local RETRIES, DATA, BUDGETS = KEYS[1], KEYS[2], KEYS[3]
local now = store_ms()
local buckets = {}
local put_off, failed = 0, ''
local taken = {}

-- Nearly all looks find nothing, and are made each second by each process.
local first = next_due(RETRIES)
if first == '' or tonumber(first) > now then
  return {string.format('%.0f', now), 0, 0, first, ''}
end

local due = redis.call('zrangebyscore', RETRIES, '-inf', string.format('%.0f', now), 'WITHSCORES', 'LIMIT', 0, ARGV[1])
for i = 1, #due, 2 do
  local key, by_hand = due[i], tonumber(due[i + 1]) == 0
  local text = redis.call('hget', DATA, key)
  local about = parts_of(text)
  local again = about and not by_hand and take_token(BUDGETS, buckets, about.budget, now)
  if not text then
    redis.call('zrem', RETRIES, key)
    failed = 'the message of ' .. key .. ' is gone'
  elseif again then
    put_off = put_off + 1
    redis.call('zadd', RETRIES, again, key)
  else
    redis.call('zadd', RETRIES, string.format('%.0f', now + ARGV[2]), key)
    taken[#taken + 1], taken[#taken + 2] = key, text
  end
end
save_buckets(BUDGETS, buckets)
return {string.format('%.0f', now), #taken / 2, put_off, next_due(RETRIES), failed, unpack(taken)}
