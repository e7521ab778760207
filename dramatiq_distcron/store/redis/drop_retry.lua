-- Takes a waiting message out. If it was cancelled, the run of its tick is over.
-- KEYS: retries, retries.msgs, runs, outstanding, ticks, wake
-- ARGV: key, history cap, whether it was cancelled (1 or 0)
-- Returns 1, or 0 if it does not wait any more.
local keys = {runs = KEYS[3], outstanding = KEYS[4], ticks = KEYS[5]}
local text = redis.call('hget', KEYS[2], ARGV[1])
if not text or not redis.call('zscore', KEYS[1], ARGV[1]) then
  return 0
end

local function drop()
  drop_score(KEYS[1], ARGV[1])
  drop_field(KEYS[2], ARGV[1])
  if ARGV[3] ~= '1' then
    return
  end
  local ok, about = pcall(cjson.decode, string.match(text, '^[^\n]*'))
  local run = ok and type(about) == 'table' and about.id and redis.call('hget', keys.runs, about.id)
  if run then
    end_run(keys, ARGV[2], about.id, cjson.decode(run), 'dropped', 'its retry was cancelled', now_ms())
  end
end

local failure = atomically(drop)
if failure then
  return redis.error_reply(failure)
end
wake_up(KEYS[6], 'run over')
return 1
