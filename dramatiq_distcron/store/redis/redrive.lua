-- Sends letters back: each out of the dead ones and into its queue as a new message, or neither. A letter that is gone
-- was redriven or dropped meanwhile, so that sending this script twice does nothing more.
-- KEYS: namespace, dead, dead.msgs, dead.groups, runs, retries, retries.msgs, outstanding
-- ARGV[1]: JSON {by, letters: [{message_id, id, data, waiting (indexes of ARGV), run, alone, calls}]}; a number in a call
--          stands for the message. One without calls is put among those that wait for their retry, to be published at
--          once. `alone` is a schedule whose runs must not overlap.
-- Returns for each 'ok', 'gone', 'outstanding <message id>' or 'failed ...'
local given = cjson.decode(ARGV[1])
local keys = {dead = KEYS[2], data = KEYS[3], groups = KEYS[4], by = given.by}
local RUNS, RETRIES, WAITING, OUTSTANDING = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local time = redis.call('time')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

local function redrive(letter)
  drop_letter(keys, ARGV[letter.id])
  if letter.run ~= '' then
    put_field(RUNS, letter.message_id, letter.run)
  end
  if letter.alone ~= '' then
    put_field(OUTSTANDING, letter.alone, letter.message_id)
  end
  if #letter.calls == 0 then
    put_score(RETRIES, letter.message_id, now)
    put_field(WAITING, letter.message_id, ARGV[letter.waiting])
  end
  for _, call in ipairs(letter.calls) do
    for i = 1, #call do
      if type(call[i]) == 'number' then
        call[i] = ARGV[letter.data]
      end
    end
    dispatch({KEYS[1]}, call, spy)
  end
end

local answers = {}
for i, letter in ipairs(given.letters) do
  local outstanding = letter.alone ~= '' and redis.call('hget', OUTSTANDING, letter.alone)
  if redis.call('hexists', keys.data, ARGV[letter.id]) == 0 then
    answers[i] = 'gone'
  elseif outstanding then
    answers[i] = 'outstanding ' .. outstanding
  else
    local failure = atomically(redrive, letter)
    answers[i] = failure and 'failed ' .. failure or 'ok'
  end
end
return answers
