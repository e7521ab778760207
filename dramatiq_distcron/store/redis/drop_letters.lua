-- Drops letters for good.
-- KEYS: dead, dead.msgs, dead.groups
-- ARGV: prefix of the indexes, ids
-- Returns how many there were of them.
local keys = {dead = KEYS[1], data = KEYS[2], groups = KEYS[3], by = ARGV[1]}
local dropped = 0
for i = 2, #ARGV do
  local found = false
  local failure = atomically(function()
    found = drop_letter(keys, ARGV[i])
  end)
  if failure then
    return redis.error_reply(failure)
  end
  if found then
    dropped = dropped + 1
  end
end
return dropped
