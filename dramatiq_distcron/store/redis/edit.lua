-- Adds, changes or removes schedules: the spec, its cursor and the record of what was due under the old spec are
-- written together, and only if nothing changed since they were read.
-- KEYS: lease, schedules, schedules.revisions, due, last, ticks, wake, outstanding, revision, last.enqueued, removed
-- ARGV: holder ('' asks for no lease), term, now, history cap, number of edits, edits
-- edit: name, spec it was made on ('' for none), score it was made on ('' for none), new spec without its opening
--       brace ('' removes), new score, outcome ('' for no record), first fire time, last fire time, count, reason
-- Returns {'lost'} or {'done', answer, ...}; an answer is 'ok', 'stale' or 'failed ...'.
local LEASE, SCHEDULES, REVISIONS, DUE, LAST = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local TICKS, WAKE, OUTSTANDING, REVISION, ENQUEUED, REMOVED = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local HOLDER, TERM, NOW, CAP = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if HOLDER ~= '' and redis.call('get', LEASE) ~= HOLDER then
  return {'lost'}
end

local at = 5
local function take()
  at = at + 1
  return ARGV[at]
end

local function take_edit()
  return {
    name = take(), spec = take(), score = take(), new_spec = take(), new_score = take(), outcome = take(),
    fire_time = take(), fire_time_to = take(), count = take(), reason = take(),
  }
end

-- The first and the last instant of the calendar in UTC ms, and a cursor that never comes.
local FIRST, FINAL, NEVER = -62135596800000, 253402300799999, 9000000000000000

-- A cursor as ours are; what else may stand there counts as none.
local function cursor(name)
  local score = redis.call('zscore', DUE, name)
  local time = score and string.find(score, '^-?%d+$') and tonumber(score)
  return time and (time == NEVER or time >= FIRST and time <= FINAL) and score or ''
end

-- Whether somebody removed a schedule after this one was looked for: it may have been there in between, and what it
-- fired would come again from an addition that counts from before. Nothing but its leader fires, so that cannot
-- happen to a leader; and a removal that is still to come is one of before a step back of the clock.
local function is_outdated()
  local last = HOLDER == '' and tonumber(redis.call('get', REMOVED) or nil)
  return last and tonumber(NOW) < last and last <= tonumber(now_ms())
end

local function is_stale(e)
  if e.spec == '' and is_outdated() then
    return true
  end
  -- A cursor without a schedule is a leftover that a new one may take over.
  return (redis.call('hget', SCHEDULES, e.name) or '') ~= e.spec
    or (e.spec ~= '' and cursor(e.name) ~= e.score)
end

local function remember(name, outcome)
  local before = opened(redis.call('hget', LAST, name) or nil)
  local last, longer = prolonged(before, outcome)
  if type(before) == 'table' and not longer then
    append_open(TICKS, CAP, name, before)
  end
  put_field(LAST, name, as_text(last))
end

local function close_open_run(name)
  local before = opened(redis.call('hget', LAST, name) or nil)
  if type(before) == 'table' then
    append_open(TICKS, CAP, name, before)
  end
  drop_field(LAST, name)
end

-- Never the same number twice, also for a schedule that was removed and added again: a decision made on the old
-- one must not fit the new one.
local function next_revision()
  local last = tonumber(redis.call('get', REVISION) or nil) or 0
  local revision = string.format('%.0f', math.max(last, tonumber(NOW)) + 1)
  redis.call('set', REVISION, revision)
  return revision
end

local function commit(e)
  if e.outcome ~= '' then
    remember(e.name, {
      open = true, outcome = e.outcome, fire_time = e.fire_time, fire_time_to = e.fire_time_to, count = e.count,
      reason = e.reason, message_id = '', lateness_ms = '', decided_at = NOW, term = TERM, holder = HOLDER,
    })
  end
  if e.new_spec == '' then
    close_open_run(e.name)
    drop_score(DUE, e.name)
    drop_field(OUTSTANDING, e.name)
    drop_field(ENQUEUED, e.name)
    drop_field(REVISIONS, e.name)
    drop_field(SCHEDULES, e.name)
    redis.call('set', REMOVED, now_ms())
  else
    put_score(DUE, e.name, e.new_score)
    local revision = next_revision()
    put_field(REVISIONS, e.name, revision)
    put_field(SCHEDULES, e.name, '{"revision":' .. revision .. ',' .. e.new_spec)
  end
end

local answers = {'done'}
local changed = false
for i = 1, tonumber(ARGV[5]) do
  local e = take_edit()
  if is_stale(e) then
    answers[i + 1] = 'stale'
  else
    local failure = atomically(commit, e)
    answers[i + 1] = failure and 'failed ' .. failure or 'ok'
    changed = changed or not failure
  end
end
if changed then
  pcall(redis.call, 'xadd', WAKE, 'MAXLEN', 1, '*', 'why', 'edited')
end
return answers
