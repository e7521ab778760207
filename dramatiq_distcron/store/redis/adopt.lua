-- Takes letters over from Dramatiq's own dead messages, each in one step: kept by us and gone there.
-- KEYS: dead, dead.msgs, dead.groups, Dramatiq's sorted set, Dramatiq's hash
-- ARGV: prefix of the indexes, and for each letter: id, time of death in ms, indexes as JSON, text
-- Returns how many were taken; one that is not there any more was taken by somebody else.
local keys = {dead = KEYS[1], data = KEYS[2], groups = KEYS[3], by = ARGV[1]}
local taken = 0

local function take(id, at, indexes, text)
  put_letter(keys, {id = id, at = at, indexes = cjson.decode(indexes), text = text})
  drop_score(KEYS[4], id)
  drop_field(KEYS[5], id)
end

for i = 2, #ARGV, 4 do
  if redis.call('zscore', KEYS[4], ARGV[i]) then
    local failure = atomically(take, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
    if failure then
      return redis.error_reply(failure)
    end
    taken = taken + 1
  end
end
return taken
