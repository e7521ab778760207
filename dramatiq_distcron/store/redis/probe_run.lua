-- Asks whether a run that holds its schedule up is still there, and ends it if it is not: its queue was flushed, its
-- message lost, or nothing was heard of it for too long.
-- KEYS: lease, runs, outstanding, ticks, wake, retries.msgs
-- ARGV: holder, schedule, message id, longest age in ms or '', history cap
-- Returns {'lost'} (the lease), {'there'}, {'over'} (it ended meanwhile), {'dropped'} or {'failed ...'}.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return {'lost'}
end
local keys = {runs = KEYS[2], outstanding = KEYS[3], ticks = KEYS[4]}
local schedule, message_id, longest, cap = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local text = redis.call('hget', keys.runs, message_id)
local now = now_ms()

local function drop()
  if text then
    local run = cjson.decode(text)
    if is_there(run, KEYS[6]) then
      give_up(keys, cap, message_id, run, now)
    else
      end_run(keys, cap, message_id, run, 'dropped', 'its message is gone', now)
    end
  elseif redis.call('hget', keys.outstanding, schedule) == message_id then
    drop_field(keys.outstanding, schedule)
  end
end

if text then
  local run = cjson.decode(text)
  if run.given_up then
    return {'over'}
  end
  local too_old = longest ~= '' and now - run.at > tonumber(longest)
  if is_there(run, KEYS[6]) and not too_old then
    return {'there'}
  end
elseif redis.call('hget', keys.outstanding, schedule) ~= message_id then
  return {'over'}
end
local failure = atomically(drop)
return {failure and 'failed ' .. failure or 'dropped'}
