-- Shared by the scripts that know retry budgets: token buckets, one hash, a JSON text each.

local function bucket(key, name, floor, burst, now)
  local ok, b = pcall(cjson.decode, redis.call('hget', key, name) or 'null')
  if not ok or type(b) ~= 'table' or not tonumber(b.tokens) or not tonumber(b.at) then
    b = {tokens = burst, at = now, taken = 0, put_off = 0}
  end
  -- A clock that stepped back earns nothing and costs nothing.
  b.tokens = math.min(burst, b.tokens + math.max(0, now - b.at) / 1000 * floor)
  b.at = now
  return b
end

local function save_buckets(key, buckets)
  for name, b in pairs(buckets) do
    redis.call('hset', key, name, cjson.encode(b))
  end
end

-- Takes a token of the budget `given` (name, floor, burst). False: there is none.
local function take_token(key, buckets, given, now)
  local name = given[1]
  buckets[name] = buckets[name] or bucket(key, name, tonumber(given[2]), tonumber(given[3]), now)
  local b = buckets[name]
  if b.tokens < 1 then
    b.put_off = b.put_off + 1
    return false
  end
  b.tokens, b.taken = b.tokens - 1, b.taken + 1
  return true
end

-- A waiting message as it is stored: what can be told of it, and the message. Nothing if it is none of ours.
local function parts_of(text)
  local line = text and string.find(text, '\n', 1, true)
  if not line then
    return nil
  end
  local ok, about = pcall(cjson.decode, string.sub(text, 1, line - 1))
  if not ok or type(about) ~= 'table' then
    return nil
  end
  return about, string.sub(text, line + 1)
end

-- Those whose budget is spent ask again after a while, not all at the same time.
local function later(now, count)
  return string.format('%.0f', now + 1000 + (count * 37) % 4000)
end

local function store_ms()
  local time = redis.call('time')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function next_due(key)
  local found = redis.call('zrangebyscore', key, '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return found[2] or ''
end
