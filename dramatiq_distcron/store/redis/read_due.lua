-- Reads what is due, with all a decision needs, as of one instant.
-- KEYS: schedules.revisions, due, outstanding, last.enqueued
-- ARGV: now in ms, how many to pass over, how many to read
-- Returns JSON [[[name, score, revision, outstanding run, fire time enqueued last], ...], score of the next one that is not due yet or ''].
-- The specs themselves are not sent: the reader knows most of them by their revision.
local first = redis.call('zrangebyscore', KEYS[2], '-inf', '+inf', 'withscores', 'limit', 0, 1)[2]
if not first or tonumber(first) > tonumber(ARGV[1]) then
  -- Nearly all looks find nothing.
  return '[[],"' .. (first or '') .. '"]'
end
local due = redis.call('zrangebyscore', KEYS[2], '-inf', ARGV[1], 'withscores', 'limit', ARGV[2], ARGV[3])
local rows = {}
if #due > 0 then
  local names = {}
  for i = 1, #due, 2 do
    names[#names + 1] = due[i]
  end
  local revisions = redis.call('hmget', KEYS[1], unpack(names))
  local outstanding = redis.call('hmget', KEYS[3], unpack(names))
  local enqueued = redis.call('hmget', KEYS[4], unpack(names))
  for i = 1, #names do
    rows[i] = cjson.encode({names[i], due[2 * i], revisions[i] or '', outstanding[i] or '', enqueued[i] or ''})
  end
end
local later = redis.call('zrangebyscore', KEYS[2], '(' .. ARGV[1], '+inf', 'withscores', 'limit', 0, 1)
return '[[' .. table.concat(rows, ',') .. '],"' .. (later[2] or '') .. '"]'
