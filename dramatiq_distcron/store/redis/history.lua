-- Shared by the scripts that decide ticks: how an outcome is remembered.
-- An outcome that sent no message opens a run of equal outcomes, kept in `last` until it changes: an hour of
-- skips is one record in the stream, not 3,600.

-- `last` as a table if it is an open run; a closed one stays text, for nothing in it is needed.
local function opened(last)
  if not last or not string.find(last, '"open":true', 1, true) then
    return last
  end
  -- One that somebody wrote by hand must not stop the others.
  local ok, run = pcall(cjson.decode, last)
  return ok and run or last
end

local function as_text(last)
  return type(last) == 'table' and cjson.encode(last) or last
end

-- Returns the id of the record in the stream.
local function append(ticks, cap, name, first, last, count, outcome, message_id, lateness, reason, at, term, holder)
  local id = redis.call('xadd', ticks, 'MAXLEN', '~', cap, '*',
    'schedule', name, 'fire_time', first, 'fire_time_to', last, 'count', count,
    'outcome', outcome, 'message_id', message_id, 'decided_at', at,
    'lateness_ms', lateness, 'term', term, 'holder', holder, 'reason', reason)
  noted('xdel', ticks, id)
  return id
end

local function append_open(ticks, cap, name, r)
  return append(ticks, cap, name, r.fire_time, r.fire_time_to, r.count, r.outcome, '', '', r.reason,
    r.decided_at, r.term, r.holder)
end

-- An outcome without a message that follows `before`: the longer run, or a new one and false.
local function prolonged(before, r)
  if type(before) ~= 'table' or before.outcome ~= r.outcome or before.reason ~= r.reason then
    return r, false
  end
  local longer = {}
  for key, value in pairs(before) do
    longer[key] = value
  end
  longer.count = string.format('%.0f', before.count + r.count)
  longer.fire_time_to = r.fire_time_to
  longer.decided_at = r.decided_at
  return longer, true
end
