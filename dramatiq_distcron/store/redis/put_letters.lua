-- Keeps letters that come from elsewhere: an import, or Dramatiq's own dead messages.
-- KEYS: dead, dead.msgs, dead.groups
-- ARGV: prefix of the indexes, and for each letter: id, time of death in ms, indexes as JSON, text
-- Returns how many were new; one that is there already is left as it is.
local keys = {dead = KEYS[1], data = KEYS[2], groups = KEYS[3], by = ARGV[1]}
local new = 0
for i = 2, #ARGV, 4 do
  if redis.call('hexists', keys.data, ARGV[i]) == 0 then
    local failure = atomically(put_letter, keys, {
      id = ARGV[i], at = ARGV[i + 1], indexes = cjson.decode(ARGV[i + 2]), text = ARGV[i + 3],
    })
    if failure then
      return redis.error_reply(failure)
    end
    new = new + 1
  end
end
return new
