-- The end of a delivery: what becomes of the message and of its tick's run is recorded, and the message is acked by
-- Dramatiq's script, or nothing of it. The record is kept only if the ack took the message from this very worker: one
-- that lost it (taken for dead, or this script sent twice) records nothing.
-- KEYS: namespace, runs, outstanding, ticks, wake, retries, retries.msgs, dead, dead.msgs, dead.groups
-- ARGV[1]: JSON with message_id, verdict, state, error, cap (of the history), place, rid, attempt, claim, ack, calls
--          and, if there is a retry, retry (its key), delay (ms) and waiting (index of the ARGV with what is stored).
--          The verdict is 'over' (the run ends with `state`) or 'goes on' (as `state`, with a message of that place, id
--          and attempt). With a claim, only the delivery that made it last decides over the run; another one records
--          nothing. `ack` is given to Dramatiq's script last, and is empty where the ack is somebody else's. `calls`
--          put further messages into queues; a number in one is the index of an ARGV. A message that died has a letter
--          (its id), kept (index of the ARGV with what is stored), indexes and index_prefix.
-- Returns {'settled'}, {'acked'} (no run of that message is known), {'lost'} or {'failed ...'}.
local keys = {runs = KEYS[2], outstanding = KEYS[3], ticks = KEYS[4]}
local given = cjson.decode(ARGV[1])
local text = redis.call('hget', keys.runs, given.message_id)
local waited_for = false
local now = now_ms()

local LOST = 'not ours any more'

-- Of an attempt first its retry is made, then that leaves the delay queue: without a state of its own.
local moved = given.state == '' and '1' or ''

-- Whether a later step of the message is recorded already. It was told by another worker, or on another connection.
local function is_told_late(run)
  local known, told = tonumber(run.attempt or 0), tonumber(given.attempt)
  return told < known or (told == known and run.moved == '1' and moved == '')
end

local function settle_run()
  local run = cjson.decode(text)
  if given.claim ~= '' and run.claim ~= given.claim then
    error(LOST, 0)
  end
  if given.verdict == 'over' then
    waited_for = end_run(keys, given.cap, given.message_id, run, given.state, given.error, now)
    return
  end
  if is_told_late(run) then
    return
  end
  if given.state ~= '' then
    run.state = given.state
  end
  run.place, run.rid, run.attempt, run.claim = given.place, given.rid, given.attempt, ''
  run.moved = moved
  put_field(keys.runs, given.message_id, cjson.encode(run))
end

local function dispatch_all()
  for _, call in ipairs(given.calls) do
    for i = 1, #call do
      if type(call[i]) == 'number' then
        call[i] = ARGV[call[i]]
      end
    end
    dispatch({KEYS[1]}, call, spy)
  end
  if #given.ack == 0 then
    return
  end
  removed = 0
  dispatch({KEYS[1]}, given.ack, spy)
  if removed == 0 then
    error(LOST, 0)
  end
end

local function settle()
  if text then
    settle_run()
  elseif given.claim ~= '' then
    -- The run is over, and what came of it may have been redriven by now.
    error(LOST, 0)
  end
  if given.retry then
    put_score(KEYS[6], given.retry, string.format('%.0f', now + given.delay))
    put_field(KEYS[7], given.retry, ARGV[given.waiting])
  end
  if given.letter then
    put_letter({dead = KEYS[8], data = KEYS[9], groups = KEYS[10], by = given.index_prefix}, {
      id = given.letter, at = now, text = ARGV[given.kept], indexes = given.indexes,
    })
  end
  dispatch_all()
end

local failure = atomically(settle)
if failure then
  return {string.find(failure, LOST, 1, true) and 'lost' or 'failed ' .. failure}
end
if waited_for then
  wake_up(KEYS[5], 'run over')
end
return {text and 'settled' or 'acked'}
