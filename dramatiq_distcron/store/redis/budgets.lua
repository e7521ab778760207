-- Shared by the scripts that know retry budgets: token buckets, one hash, a JSON text each.

--- A key that is no hash must hold nobody up: each step has a full bucket then.
local function bucket(key, name, floor, burst, now)
  local read, text = pcall(redis.call, 'hget', key, name)
  local ok, b = pcall(cjson.decode, read and text or 'null')
  if not ok or type(b) ~= 'table' or not tonumber(b.tokens) or not tonumber(b.at) then
    b = {tokens = burst, at = now}
  end
  b.taken, b.put_off, b.line = tonumber(b.taken) or 0, tonumber(b.put_off) or 0, tonumber(b.line) or 0
  -- A clock that stepped back earns nothing and costs nothing.
  b.tokens = math.min(burst, b.tokens + math.max(0, now - b.at) / 1000 * floor)
  b.at = now
  return b
end

local function save_buckets(key, buckets)
  for name, b in pairs(buckets) do
    pcall(redis.call, 'hset', key, name, cjson.encode(b))
  end
end

-- Takes a token of the budget `given` (name, floor, burst). If there is none: when to ask again. Those that are put off
-- form a line, so that however many wait, they ask one after the other.
local function take_token(key, buckets, given, now)
  if type(given) ~= 'table' or type(given[1]) ~= 'string' or not tonumber(given[2]) or not tonumber(given[3]) then
    return nil
  end
  local name = given[1]
  buckets[name] = buckets[name] or bucket(key, name, tonumber(given[2]), tonumber(given[3]), now)
  local b = buckets[name]
  if b.tokens >= 1 then
    b.tokens, b.taken = b.tokens - 1, b.taken + 1
    return nil
  end
  b.put_off = b.put_off + 1
  local place = math.max(b.line, now + 1000)
  if place > now + 60000 then
    -- The line is long: it is walked faster, so that nobody waits for more than a minute before asking.
    return string.format('%.0f', now + 1000 + (b.put_off * 37) % 59000)
  end
  b.line = place + 2
  return string.format('%.0f', place)
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

-- Those that could not be moved are tried again after a while, not all at the same time.
local function later(now, count)
  return string.format('%.0f', now + 5000 + (count * 37) % 4000)
end

local function store_ms()
  local time = redis.call('time')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function next_due(key)
  local found = redis.call('zrangebyscore', key, '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return found[2] or ''
end
