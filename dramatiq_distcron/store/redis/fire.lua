-- Fires ticks: for each entry the schedule's cursor moves, the outcome is recorded and the message is in its
-- queue, or none of the three. Every entry is compared with what the decision was made on, so that the second
-- time a script is sent it does nothing.
-- KEYS: namespace, lease, schedules.revisions, due, last, last.enqueued, ticks, runs, outstanding, outbox
-- ARGV[1]: JSON [holder ('' asks for no lease), term, now, history cap, entry..., entry...], one flat list, because
--        a table for each entry costs more than the entry. All scalars are strings; a number as an argument of a
--        call, or as outbox message, is the index of the ARGV that holds it.
-- entry: name, revision, score decided on ('*': leave the cursor alone), new score, run decided on ('*': any),
--        outcome, first fire time, last fire time, count, reason, message id, lateness, run, outbox message,
--        number of calls, and for each call to Dramatiq's script: number of arguments, arguments
-- Returns {'lost'} or {'done', index of entry, answer, ...} for the entries that are not in order:
-- 'stale' or 'failed ...'.
local NAMESPACE, LEASE, REVISIONS, DUE, LAST = {KEYS[1]}, KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local ENQUEUED, TICKS, RUNS, OUTSTANDING, OUTBOX = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]

local given = cjson.decode(ARGV[1])
local HOLDER, TERM, NOW, CAP = given[1], given[2], given[3], given[4]

if HOLDER ~= '' and redis.call('get', LEASE) ~= HOLDER then
  return {'lost'}
end

-- The fields of an entry, by their distance from where it starts in `given`.
local NAME, REVISION, SCORE, NEW_SCORE, RUN_BEFORE, OUTCOME, FIRST, UNTIL = 1, 2, 3, 4, 5, 6, 7, 8
local COUNT, REASON, MESSAGE, LATENESS, RUN, BOX, CALLS = 9, 10, 11, 12, 13, 14, 15

local function starts_of_entries()
  local starts = {}
  local at = 4
  while at < #given do
    starts[#starts + 1] = at
    local calls = given[at + CALLS]
    at = at + CALLS
    for _ = 1, calls do
      at = at + 1 + given[at + 1]
    end
  end
  return starts
end

-- What is stored of each schedule, read once; the entries move it on, and it is written once.
local function read_state(entries)
  local names, states = {}, {}
  for _, e in ipairs(entries) do
    local name = given[e + NAME]
    if not states[name] then
      names[#names + 1] = name
      states[name] = true
    end
  end
  local scores = redis.call('zmscore', DUE, unpack(names))
  local revisions = redis.call('hmget', REVISIONS, unpack(names))
  local outstanding = redis.call('hmget', OUTSTANDING, unpack(names))
  local last = redis.call('hmget', LAST, unpack(names))
  local enqueued = redis.call('hmget', ENQUEUED, unpack(names))
  for i, name in ipairs(names) do
    local before = opened(last[i] or nil)
    states[name] = {
      name = name, score = scores[i], revision = revisions[i] or '', outstanding = outstanding[i] or '',
      last = before, enqueued = enqueued[i], moved = false, broken = false,
      old_score = scores[i], old_outstanding = outstanding[i] or '', old_last = before, old_enqueued = enqueued[i],
    }
  end
  return states
end

local function is_stale(e, s)
  local run_before = given[e + RUN_BEFORE]
  return (given[e + SCORE] ~= '*' and s.score ~= given[e + SCORE])
    or s.revision ~= given[e + REVISION]
    or (run_before ~= '*' and s.outstanding ~= run_before)
end

-- The end of each text in `last` that this script writes.
local TAIL = '","decided_at":"' .. NOW .. '","term":"' .. TERM .. '","holder":' .. cjson.encode(HOLDER) .. '}'

-- Records the outcome. Returns the ids of its record in the stream and of the open run it ended, as far as there are.
local function remember(e, s)
  if given[e + SCORE] == '*' then
    -- No fire time was decided: the last decided one stays what it is.
    return append(TICKS, CAP, s.name, given[e + FIRST], given[e + UNTIL], given[e + COUNT], given[e + OUTCOME],
      given[e + MESSAGE], given[e + LATENESS], given[e + REASON], NOW, TERM, HOLDER)
  end
  local open = type(s.last) == 'table'
  if given[e + MESSAGE] ~= '' then
    local ended = open and append_open(TICKS, CAP, s.name, s.last)
    s.last = '{"open":false,"outcome":"' .. given[e + OUTCOME] .. '","fire_time":"' .. given[e + FIRST]
      .. '","fire_time_to":"' .. given[e + UNTIL] .. '","count":"' .. given[e + COUNT]
      .. '","message_id":"' .. given[e + MESSAGE] .. '","reason":' .. cjson.encode(given[e + REASON])
      .. ',"lateness_ms":"' .. given[e + LATENESS] .. TAIL
    return append(TICKS, CAP, s.name, given[e + FIRST], given[e + UNTIL], given[e + COUNT], given[e + OUTCOME],
      given[e + MESSAGE], given[e + LATENESS], given[e + REASON], NOW, TERM, HOLDER), ended
  end
  local before, longer = s.last, false
  s.last, longer = prolonged(before, {
    open = true, outcome = given[e + OUTCOME], fire_time = given[e + FIRST], fire_time_to = given[e + UNTIL],
    count = given[e + COUNT], reason = given[e + REASON], message_id = '', lateness_ms = '',
    decided_at = NOW, term = TERM, holder = HOLDER,
  })
  return nil, open and not longer and append_open(TICKS, CAP, s.name, before)
end

-- Runs to be written: message id, text, ...
local runs = {}

local function move(e, s)
  local id, ended = remember(e, s)
  if given[e + SCORE] ~= '*' then
    s.score = given[e + NEW_SCORE]
    if given[e + MESSAGE] ~= '' then
      s.enqueued = given[e + FIRST]
    end
  end
  if given[e + RUN] ~= '' then
    runs[#runs + 1], runs[#runs + 2] = given[e + MESSAGE], given[e + RUN]
    if given[e + RUN_BEFORE] ~= '*' then
      s.outstanding = given[e + MESSAGE]
    end
  end
  if given[e + BOX] ~= '' then
    redis.call('hset', OUTBOX, given[e + MESSAGE], ARGV[given[e + BOX]])
    noted('hdel', OUTBOX, given[e + MESSAGE])
  end
  return id, ended
end

local function write_moved(moved)
  local last, due, enqueued = {}, {}, {}
  for _, s in ipairs(moved) do
    if s.last then
      last[#last + 1], last[#last + 2] = s.name, as_text(s.last)
    end
    if s.score then
      due[#due + 1], due[#due + 2] = s.score, s.name
    end
    if s.enqueued ~= s.old_enqueued then
      enqueued[#enqueued + 1], enqueued[#enqueued + 2] = s.name, s.enqueued
    end
    if s.outstanding ~= s.old_outstanding then
      redis.call('hset', OUTSTANDING, s.name, s.outstanding)
    end
  end
  if #last > 0 then
    redis.call('hset', LAST, unpack(last))
  end
  if #enqueued > 0 then
    redis.call('hset', ENQUEUED, unpack(enqueued))
  end
  if #due > 0 then
    redis.call('zadd', DUE, unpack(due))
  end
  if #runs > 0 then
    redis.call('hset', RUNS, unpack(runs))
  end
end

local function put_back(s)
  if s.enqueued then
    pcall(redis.call, 'hset', ENQUEUED, s.name, s.enqueued)
  else
    pcall(redis.call, 'hdel', ENQUEUED, s.name)
  end
  if s.last then
    pcall(redis.call, 'hset', LAST, s.name, as_text(s.last))
  else
    pcall(redis.call, 'hdel', LAST, s.name)
  end
  if s.score then
    pcall(redis.call, 'zadd', DUE, s.score, s.name)
  end
  if s.outstanding ~= '' then
    pcall(redis.call, 'hset', OUTSTANDING, s.name, s.outstanding)
  else
    pcall(redis.call, 'hdel', OUTSTANDING, s.name)
  end
end

-- Undoes what was written for an entry whose message is not put into its queue.
local function take_back(e, id, ended)
  if id then
    pcall(redis.call, 'xdel', TICKS, id)
  end
  if ended then
    pcall(redis.call, 'xdel', TICKS, ended)
  end
  if given[e + RUN] ~= '' then
    pcall(redis.call, 'hdel', RUNS, given[e + MESSAGE])
  end
  if given[e + BOX] ~= '' then
    pcall(redis.call, 'hdel', OUTBOX, given[e + MESSAGE])
  end
end

local function dispatch_all(e)
  local at = e + CALLS
  for _ = 1, given[e + CALLS] do
    local size = given[at + 1]
    local call = {unpack(given, at + 2, at + 1 + size)}
    for i = 1, size do
      if type(call[i]) == 'number' then
        call[i] = ARGV[call[i]]
      end
    end
    dispatch(NAMESPACE, call, spy)
    at = at + 1 + size
  end
end

local entries = starts_of_entries()
local states = read_state(entries)
local answers, accepted, moved = {}, {}, {}
-- By entry: the ids of its records, and what was there before it.
local ids, ended, last_before, outstanding_before, enqueued_before = {}, {}, {}, {}, {}

-- Ours first: everything that can be refused is refused before a message is in its queue.
local refused = atomically(function()
  for i, e in ipairs(entries) do
    local s = states[given[e + NAME]]
    if is_stale(e, s) then
      answers[i] = 'stale'
    else
      if not s.moved then
        s.moved = true
        moved[#moved + 1] = s
      end
      accepted[#accepted + 1] = i
      last_before[i], outstanding_before[i], enqueued_before[i] = s.last, s.outstanding, s.enqueued
      ids[i], ended[i] = move(e, s)
    end
  end
  if #moved > 0 then
    write_moved(moved)
  end
end)
if refused then
  for i = 1, #runs, 2 do
    pcall(redis.call, 'hdel', RUNS, runs[i])
  end
  for _, s in ipairs(moved) do
    s.last, s.score, s.outstanding, s.enqueued = s.old_last, s.old_score, s.old_outstanding, s.old_enqueued
    put_back(s)
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
  local s = states[given[e + NAME]]
  if s.broken then
    answers[i] = 'stale'
    take_back(e, ids[i], ended[i])
  else
    local failure = given[e + CALLS] > 0 and atomically(dispatch_all, e)
    if failure then
      answers[i] = 'failed ' .. failure
      take_back(e, ids[i], ended[i])
      s.broken = true
      s.last, s.outstanding, s.enqueued = last_before[i], outstanding_before[i], enqueued_before[i]
      s.score = given[e + SCORE] ~= '*' and given[e + SCORE] or s.score
      put_back(s)
    end
  end
end

local reply = {'done'}
for i = 1, #entries do
  if answers[i] then
    reply[#reply + 1], reply[#reply + 2] = i, answers[i]
  end
end
return reply
