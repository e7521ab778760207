-- Successes earn retries.
-- KEYS: budgets
-- ARGV: name, tokens earned, floor, burst, ... for each budget
local now = store_ms()
local buckets = {}
for i = 1, #ARGV, 4 do
  local name, burst = ARGV[i], tonumber(ARGV[i + 3])
  local b = buckets[name] or bucket(KEYS[1], name, tonumber(ARGV[i + 2]), burst, now)
  b.tokens = math.min(burst, b.tokens + tonumber(ARGV[i + 1]))
  buckets[name] = b
end
save_buckets(KEYS[1], buckets)
return #ARGV / 4
