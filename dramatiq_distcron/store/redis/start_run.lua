-- A worker takes up a tick's message.
-- KEYS: runs
-- ARGV: message id, worker
-- Returns {} if no run of that message is known, else
-- {state before, when it was enqueued, now, fire time enqueued before it or ''}.
local text = redis.call('hget', KEYS[1], ARGV[1])
if not text then
  return {}
end
local time = redis.call('time')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local run = cjson.decode(text)
local before = run.state
run.state, run.worker = 'running', ARGV[2]
run.started_at = run.started_at or now
redis.call('hset', KEYS[1], ARGV[1], cjson.encode(run))
return {before, run.at, now, run.previous or ''}
