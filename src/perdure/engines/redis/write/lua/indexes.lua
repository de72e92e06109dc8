-- Positions of rows in indexes and their values in unique groups, for the walks over a whole table.
--
-- A shape: {fields, how many of them to read, indexes, unique groups}; the first field is always `rev`.
-- An index: {name prefix, how many of `by` are required, sources of `by`, sources and kinds of `order`}; a unique group: {name, sources}.

-- The sorted set and the member of a row in an index; nothing if the row is not in it.
local function index_position(index, values, key, encoded)
  local order, member = index[4], ''
  for i = 1, #order, 2 do
    local value = pick(order[i], values, key)
    if not value then
      return nil
    elseif order[i + 1] then
      member = member .. ordered_integer(value)
    else
      member = member .. escaped(value) .. '\0'
    end
  end
  local by, group = index[3], index[1]
  for i = 1, #by do
    local value = pick(by[i], values, key)
    if not value and i <= index[2] then
      return nil
    end
    group = group .. grouped(value)
  end
  return base .. group, member .. encoded
end

-- A row's value in a unique group; nothing if some of it is NULL.
local function unique_value(group, values, key)
  local claim, sources = '', group[2]
  for i = 1, #sources do
    local value = pick(sources[i], values, key)
    if not value then
      return nil
    end
    claim = claim .. grouped(value)
  end
  return claim
end
