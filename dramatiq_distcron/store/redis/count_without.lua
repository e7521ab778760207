-- How many letters have none of some values, counted at one instant: between two commands others come and go, and then
-- there would seem to be more of these than there are.
-- KEYS: dead, and the index of each value; no letter is in two of them
local count = redis.call('zcard', KEYS[1])
for i = 2, #KEYS do
  count = count - redis.call('zcard', KEYS[i])
end
return count
