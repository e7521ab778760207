-- Shared by the scripts that end runs. A run is in `runs` from the tick's commit until it is over, by the id of its
-- message; its end is a record in the stream of the history, and frees the schedule if that waits for it.

-- Ends the run of a message. Returns whether somebody may wait for that. One that was given up has its end already.
local function end_run(keys, cap, message_id, run, state, err, now)
  drop_field(keys.runs, message_id)
  if run.given_up then
    return false
  end
  local id = redis.call('xadd', keys.ticks, 'MAXLEN', '~', cap, '*',
    'run', message_id, 'schedule', run.schedule, 'fire_time', run.fire_time, 'state', state,
    'started_at', run.started_at or '', 'finished_at', now, 'error', err, 'first', run.first or '')
  noted('xdel', keys.ticks, id)
  if redis.call('hget', keys.outstanding, run.schedule) ~= message_id then
    return false
  end
  drop_field(keys.outstanding, run.schedule)
  return true
end

-- Frees the schedule of a run that takes too long. Of a message of another broker its entry stays: it is the ticket, and
-- without that neither a retry nor a letter would come of it.
local function give_up(keys, cap, message_id, run, now)
  end_run(keys, cap, message_id, run, 'dropped', 'overlap_timeout', now)
  if run.place == '' then
    run.given_up = '1'
    put_field(keys.runs, message_id, cjson.encode(run))
  end
end

-- The message lies in the hash of its queue from its enqueue until it is acked, wherever it is meanwhile, or among those
-- that wait for their retry, which are `waiting`.
local function is_there(run, waiting)
  if run.place == '' or redis.pcall('hexists', waiting, run.rid) == 1 then
    return true
  end
  local reply = redis.pcall('hexists', run.place, run.rid)
  -- A place that cannot be looked into says nothing, and must not keep others from being looked for.
  return type(reply) == 'table' or reply == 1
end

local function wake_up(wake, why)
  pcall(redis.call, 'xadd', wake, 'MAXLEN', 1, '*', 'why', why)
end
