-- Fires ticks: for each entry the schedule's cursor moves, the outcome is recorded and the message is in its
-- queue, or none of the three. Every entry is compared with what the decision was made on, so that the second
-- time a script is sent it does nothing.
-- KEYS: namespace, lease, schedules, due, last, ticks, runs, outstanding, outbox
-- ARGV[1]: JSON [holder ('' asks for no lease), term, now, history cap, entries]; all scalars are strings
-- entry: [name, revision, score decided on ('*': leave the cursor alone), new score, run decided on ('*': any),
--        outcome, first fire time, last fire time, count, reason, message id, lateness, run, outbox?, calls]
-- call:  arguments of Dramatiq's script; false stands for the next of ARGV[2...], as does a true outbox
-- Returns {'lost'} or {'done', index of entry, answer, ...} for the entries that are not in order:
-- 'stale' or 'failed ...'.
local NAMESPACE, LEASE, SCHEDULES, DUE, LAST = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local TICKS, RUNS, OUTSTANDING, OUTBOX = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local HOLDER, TERM, NOW, CAP, ENTRIES = unpack(cjson.decode(ARGV[1]))

if HOLDER ~= '' and redis.call('get', LEASE) ~= HOLDER then
  return {'lost'}
end

local binary = 1
local function next_binary()
  binary = binary + 1
  return ARGV[binary]
end

local function entry_of(a)
  local e = {
    name = a[1], revision = a[2], score = a[3], new_score = a[4], run_before = a[5],
    message_id = a[11], run = a[13], outbox = a[14] and next_binary(), calls = a[15],
    outcome = {
      open = a[11] == '', outcome = a[6], fire_time = a[7], fire_time_to = a[8], count = a[9], reason = a[10],
      message_id = a[11], lateness_ms = a[12], decided_at = NOW, term = TERM, holder = HOLDER,
    },
  }
  for _, call in ipairs(e.calls) do
    for i = 1, #call do
      if call[i] == false then
        call[i] = next_binary()
      end
    end
  end
  return e
end

-- Specs of ours begin with their revision; one that was written by hand may not.
local function revision_of(spec)
  if not spec then
    return nil
  end
  local revision = string.match(spec, '^{"revision":(%d+)[,}]')
  if not revision then
    local ok, found = pcall(cjson.decode, spec)
    revision = ok and type(found) == 'table' and type(found.revision) == 'number'
      and string.format('%.0f', found.revision) or ''
  end
  return revision
end

-- What is stored of each schedule, read once; the entries move it on, and it is written once.
local function read_state(entries)
  local names, states = {}, {}
  for _, e in ipairs(entries) do
    if not states[e.name] then
      names[#names + 1] = e.name
      states[e.name] = {name = e.name}
    end
  end
  local scores = redis.call('zmscore', DUE, unpack(names))
  local specs = redis.call('hmget', SCHEDULES, unpack(names))
  local outstanding = redis.call('hmget', OUTSTANDING, unpack(names))
  local last = redis.call('hmget', LAST, unpack(names))
  for i, name in ipairs(names) do
    local s = states[name]
    s.score, s.revision = scores[i], revision_of(specs[i])
    s.outstanding, s.last = outstanding[i] or '', opened(last[i] or nil)
  end
  return states
end

local function is_stale(e, s)
  return (e.score ~= '*' and s.score ~= e.score)
    or s.revision ~= e.revision
    or (e.run_before ~= '*' and s.outstanding ~= e.run_before)
end

-- The entry's outcome and its new cursor, as they will be written; records of the history are written here.
local function move(e, s)
  e.before = {score = s.score, last = s.last, outstanding = s.outstanding}
  local records
  s.last, records = follow(s.last, e.outcome)
  e.ids = {}
  for i, record in ipairs(records) do
    e.ids[i] = append(TICKS, CAP, e.name, record)
  end
  if e.score ~= '*' then
    s.score = e.new_score
  end
  if e.run ~= '' then
    redis.call('hset', RUNS, e.message_id, e.run)
    noted('hdel', RUNS, e.message_id)
    if e.run_before ~= '*' then
      s.outstanding = e.message_id
    end
  end
  if e.outbox then
    redis.call('hset', OUTBOX, e.message_id, e.outbox)
    noted('hdel', OUTBOX, e.message_id)
  end
end

local function write_moved(moved)
  local last, due = {}, {}
  for _, s in ipairs(moved) do
    last[#last + 1] = s.name
    last[#last + 1] = as_text(s.last)
    if s.score then
      due[#due + 1] = s.score
      due[#due + 1] = s.name
    end
    if s.outstanding ~= s.was.outstanding then
      redis.call('hset', OUTSTANDING, s.name, s.outstanding)
    end
  end
  redis.call('hset', LAST, unpack(last))
  if #due > 0 then
    redis.call('zadd', DUE, unpack(due))
  end
end

local function put_back(name, score, last, outstanding)
  if last then
    pcall(redis.call, 'hset', LAST, name, as_text(last))
  else
    pcall(redis.call, 'hdel', LAST, name)
  end
  if score then
    pcall(redis.call, 'zadd', DUE, score, name)
  end
  if outstanding ~= '' then
    pcall(redis.call, 'hset', OUTSTANDING, name, outstanding)
  else
    pcall(redis.call, 'hdel', OUTSTANDING, name)
  end
end

-- Undoes what was written for an entry whose message could not be put into its queue.
local function take_back(e)
  for _, id in ipairs(e.ids) do
    pcall(redis.call, 'xdel', TICKS, id)
  end
  if e.run ~= '' then
    pcall(redis.call, 'hdel', RUNS, e.message_id)
  end
  if e.outbox then
    pcall(redis.call, 'hdel', OUTBOX, e.message_id)
  end
end

local function dispatch_all(calls)
  for _, call in ipairs(calls) do
    dispatch({NAMESPACE}, call, spy)
  end
end

local entries = {}
for i, packed in ipairs(ENTRIES) do
  entries[i] = entry_of(packed)
end
local states = read_state(entries)

-- Ours first: everything that can be refused is refused before a message is in its queue.
local answers, accepted, moved = {}, {}, {}
local refused = atomically(function()
  for i, e in ipairs(entries) do
    local s = states[e.name]
    if is_stale(e, s) then
      answers[i] = 'stale'
    else
      if not s.was then
        s.was = {score = s.score, last = s.last, outstanding = s.outstanding}
        moved[#moved + 1] = s
      end
      accepted[#accepted + 1] = i
      move(e, s)
    end
  end
  if #moved > 0 then
    write_moved(moved)
  end
end)
if refused then
  for _, s in ipairs(moved) do
    put_back(s.name, s.was.score, s.was.last, s.was.outstanding)
  end
  -- Also for those after the one that was refused: they were not tried.
  for i = 1, #entries do
    answers[i] = answers[i] or 'failed ' .. refused
  end
  accepted = {}
end

-- Dramatiq's last. If one schedule's queue is broken, that schedule stays where it was and the others go on.
for _, i in ipairs(accepted) do
  local e = entries[i]
  local s = states[e.name]
  if s.broken then
    answers[i] = 'stale'
    take_back(e)
  else
    local failure = #e.calls > 0 and atomically(dispatch_all, e.calls)
    if failure then
      answers[i] = 'failed ' .. failure
      s.broken = true
      take_back(e)
      put_back(e.name, e.before.score, e.before.last, e.before.outstanding)
    end
  end
end

local reply = {'done'}
for i = 1, #entries do
  if answers[i] then
    reply[#reply + 1] = i
    reply[#reply + 1] = answers[i]
  end
end
return reply
