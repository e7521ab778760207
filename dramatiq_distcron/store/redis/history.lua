-- Shared by the scripts that decide ticks: how an outcome is remembered.
-- An outcome that sent no message opens a run of equal outcomes, kept in `last` until it changes: an hour of
-- skips is one record in the stream, not 3,600.

-- `last` as a table if it is an open run; a closed one stays text, for nothing in it is needed.
local function opened(last)
  return last and string.find(last, '"open":true', 1, true) and cjson.decode(last) or last
end

local function as_text(last)
  return type(last) == 'table' and cjson.encode(last) or last
end

-- What `last` holds after outcome `r`, and which records go to the stream for it.
local function follow(before, r)
  local open = type(before) == 'table'
  if open and r.open and before.outcome == r.outcome and before.reason == r.reason then
    local longer = {}
    for key, value in pairs(before) do
      longer[key] = value
    end
    longer.count = string.format('%.0f', before.count + r.count)
    longer.fire_time_to = r.fire_time_to
    longer.decided_at = r.decided_at
    return longer, {}
  end
  local records = {}
  if open then
    records[1] = before
  end
  if not r.open then
    records[#records + 1] = r
  end
  return r.open and r or as_text(r), records
end

-- Returns the id of the record in the stream.
local function append(ticks, cap, name, r)
  local id = redis.call('xadd', ticks, 'MAXLEN', '~', cap, '*',
    'schedule', name, 'fire_time', r.fire_time, 'fire_time_to', r.fire_time_to, 'count', r.count,
    'outcome', r.outcome, 'message_id', r.message_id, 'decided_at', r.decided_at,
    'lateness_ms', r.lateness_ms, 'term', r.term, 'holder', r.holder, 'reason', r.reason)
  noted('xdel', ticks, id)
  return id
end
