-- The end of a delivery: what becomes of the tick's run is recorded, and the message is acked by Dramatiq's script, or
-- neither. The record is kept only if the ack took the message from this very worker: one that lost it (taken for
-- dead, or this script sent twice) records nothing.
-- KEYS: namespace, runs, outstanding, ticks, wake
-- ARGV[1]: JSON [message id, verdict, state, error, history cap, place, id in Redis, attempt, claim]; the verdict is
--          'over' (the run ends with `state`) or 'goes on' (as `state`, with a message of that place, id and attempt).
--          With a claim, only the delivery that made it last decides over the run; another one records nothing.
-- ARGV[2...]: arguments of Dramatiq's script; none where the ack is somebody else's
-- Returns {'settled'}, {'acked'} (no run of that message is known), {'lost'} or {'failed ...'}.
local keys = {runs = KEYS[2], outstanding = KEYS[3], ticks = KEYS[4]}
local message_id, verdict, state, err, cap, place, rid, attempt, claim = unpack(cjson.decode(ARGV[1]))
local text = redis.call('hget', keys.runs, message_id)
local waited_for = false
local call = {unpack(ARGV, 2)}

local LOST = 'not ours any more'

-- Of an attempt first its retry is made, then that leaves the delay queue: without a state of its own.
local moved = state == '' and '1' or ''

-- Whether a later step of the message is recorded already. It was told by another worker, or on another connection.
local function is_told_late(run)
  local known, told = tonumber(run.attempt or 0), tonumber(attempt)
  return told < known or (told == known and run.moved == '1' and moved == '')
end

local function settle()
  if text then
    local run = cjson.decode(text)
    if claim ~= '' and run.claim ~= claim then
      error(LOST, 0)
    end
    if verdict == 'over' then
      waited_for = end_run(keys, cap, message_id, run, state, err, now_ms())
    elseif not is_told_late(run) then
      if state ~= '' then
        run.state = state
      end
      run.place, run.rid, run.attempt, run.claim = place, rid, attempt, ''
      run.moved = moved
      put_field(keys.runs, message_id, cjson.encode(run))
    end
  end
  if #call > 0 then
    dispatch({KEYS[1]}, call, spy)
    if removed == 0 then
      error(LOST, 0)
    end
  end
end

local failure = atomically(settle)
if failure then
  return {string.find(failure, LOST, 1, true) and 'lost' or 'failed ' .. failure}
end
if waited_for then
  wake_up(KEYS[5], 'run over')
end
return {text and 'settled' or 'acked'}
