-- Takes the lease if nobody holds it, and raises the term.
-- KEYS: lease, term, term.since
-- ARGV: holder, time to live in ms
-- Returns {'acquired', term, now} or {'held', holder, ms left}.
local holder = redis.call('get', KEYS[1])
if holder and holder ~= ARGV[1] then
  local left = redis.call('pttl', KEYS[1])
  if left < 0 or left > tonumber(ARGV[2]) then
    -- The server's clock stepped back: without this cut nobody is on duty for the length of the step.
    redis.call('pexpire', KEYS[1], ARGV[2])
    left = tonumber(ARGV[2])
  end
  return {'held', holder, left}
end

local time = redis.call('time')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
-- Read before the first write: a wrong type must fail before the lease is ours.
local term = redis.call('get', KEYS[2])
redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
if holder and term then
  -- It is ours already: the reply to our first attempt was lost.
  return {'acquired', term, now}
end
-- A first term is the time, so that a flush of the database never lowers it.
local raised = term and string.format('%.0f', term + 1) or now
redis.call('set', KEYS[2], raised)
redis.call('set', KEYS[3], now)
return {'acquired', raised, now}
