-- Ends runs whose message is gone, a few at a time: their queue was flushed, or a worker without our middleware acked
-- them.
-- KEYS: lease, runs, outstanding, ticks, wake, retries.msgs
-- ARGV: holder, cursor, how many to look at, history cap
-- Returns {'lost'} (the lease) or {next cursor, how many were ended}.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return {'lost'}
end
local keys = {runs = KEYS[2], outstanding = KEYS[3], ticks = KEYS[4]}
local found = redis.call('hscan', keys.runs, ARGV[2], 'count', ARGV[3])
local now = #found[2] > 0 and now_ms()
local ended = 0
-- A ticket that was given up and never asked for again. Dramatiq keeps dead messages for so long.
local WEEK = 7 * 86400000
for i = 1, #found[2], 2 do
  local ok, run = pcall(cjson.decode, found[2][i + 1])
  local forgotten = ok and run.given_up and now - run.at > WEEK
  if ok and (forgotten or not is_there(run, KEYS[6])) then
    local failure = atomically(end_run, keys, ARGV[4], found[2][i], run, 'dropped', 'its message is gone', now)
    if not failure then
      ended = ended + 1
    end
  end
end
if ended > 0 then
  wake_up(KEYS[5], 'run over')
end
return {found[1], ended}
