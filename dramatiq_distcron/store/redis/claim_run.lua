-- A worker of a broker that may deliver copies asks whether it may run a tick's message. The run's entry is the ticket:
-- it is there as long as the run is outstanding, and no longer.
-- KEYS: runs, instances
-- ARGV: message id, worker ('': nobody who runs it), attempt, how long a silent worker is believed to live in ms, id of
-- this claim, ids of claims whose answer did not come and that were given up ...
-- Returns {'copy'}, {'busy', worker that has it} or {'run', state before, when it was enqueued, now,
-- fire time enqueued before it or ''}.
local text = redis.call('hget', KEYS[1], ARGV[1])
if not text then
  return {'copy'}
end
local time = redis.call('time')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local run = cjson.decode(text)
local before = run.state

-- A copy of an earlier attempt, whose retry is on its way, or begun: if its worker is dead, the broker brings that again.
if tonumber(ARGV[3]) < (tonumber(run.attempt) or 0) then
  return {'copy'}
end
local is_given_up = false
for i = 6, #ARGV do
  is_given_up = is_given_up or ARGV[i] == run.claim
end
if before == 'running' and not is_given_up then
  local seen = redis.call('zscore', KEYS[2], run.worker)
  if seen and now - seen <= tonumber(ARGV[4]) then
    return {'busy', run.worker}
  end
end
run.state, run.worker, run.attempt, run.claim = 'running', ARGV[2], ARGV[3], ARGV[5]
run.started_at = run.started_at or now
redis.call('hset', KEYS[1], ARGV[1], cjson.encode(run))
-- Whoever claims is alive, also one that had no time yet to tell of itself.
if ARGV[2] ~= '' then
  redis.call('zadd', KEYS[2], now, ARGV[2])
end
return {'run', before, run.at, now, run.previous or ''}
