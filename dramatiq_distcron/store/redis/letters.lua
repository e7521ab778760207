-- Shared by the scripts that know dead letters: one sorted set by time of death, one hash with what is kept, and a
-- sorted set for each value of an indexed field, whose names are in `groups`.
-- keys: dead, data, groups, by (the prefix of the indexes)

local function index_of(keys, field, value)
  return keys.by .. field .. ':' .. value
end

-- The pairs by which a stored letter is found: the first line of its text.
local function pairs_of(text)
  local ok, found = pcall(cjson.decode, string.match(text, '^[^\n]*'))
  local good = {}
  for _, pair in ipairs(ok and type(found) == 'table' and found or {}) do
    if type(pair) == 'table' and type(pair[1]) == 'string' and type(pair[2]) == 'string' then
      good[#good + 1] = pair
    end
  end
  return good
end

local function drop_pair(keys, id, pair)
  local index = index_of(keys, pair[1], pair[2])
  drop_score(index, id)
  if redis.call('exists', index) == 0 then
    local name = pair[1] .. ':' .. pair[2]
    if redis.call('srem', keys.groups, name) == 1 then
      noted('sadd', keys.groups, name)
    end
  end
end

-- letter: id, at (ms), text, indexes ({field, value} pairs). One of that id is replaced, and not found by what it was.
local function put_letter(keys, letter)
  for _, pair in ipairs(pairs_of(redis.call('hget', keys.data, letter.id) or '')) do
    drop_pair(keys, letter.id, pair)
  end
  put_score(keys.dead, letter.id, letter.at)
  put_field(keys.data, letter.id, letter.text)
  for _, pair in ipairs(letter.indexes) do
    put_score(index_of(keys, pair[1], pair[2]), letter.id, letter.at)
    if redis.call('sadd', keys.groups, pair[1] .. ':' .. pair[2]) == 1 then
      noted('srem', keys.groups, pair[1] .. ':' .. pair[2])
    end
  end
end

-- Returns what was kept of it, or nothing if it was not there.
local function drop_letter(keys, id)
  local text = redis.call('hget', keys.data, id)
  if not text then
    drop_score(keys.dead, id)
    return nil
  end
  drop_score(keys.dead, id)
  drop_field(keys.data, id)
  for _, pair in ipairs(pairs_of(text)) do
    drop_pair(keys, id, pair)
  end
  return text
end
