-- Add a batch of rows to their indexes. ARGV[1] is {table name, kinds of the key columns, shape, last key or false, how
-- many}; returns {last key or false}. Adding a row twice is harmless, so an interrupted walk starts over.
--
-- An older version may have grouped an index by fewer columns: a row's entries in those groups are removed.

local name, kinds, shape, after, count = unpack(cmsgpack.unpack(ARGV[1]))
local keys = call('ZRANGEBYLEX', base .. 'k:' .. name, after and '(' .. after or '-', '+', 'LIMIT', 0, count)
local function leave_older_groups(index, member, values, key)
  local group = base .. index[1]
  for _, source in ipairs(index[3]) do
    call('ZREM', group, member)
    group = group .. grouped(pick(source, values, key))
  end
end

for _, encoded in ipairs(keys) do
  local values = call('HMGET', base .. 't:' .. name .. ':' .. encoded, unpack(shape[1], 1, shape[2]))
  for _, index in ipairs(shape[3]) do
    local key = key_values(encoded, kinds)
    local into, member = index_position(index, values, key, encoded)
    if values[1] and into then
      leave_older_groups(index, member, values, key)
      call('ZADD', into, 0, member)
    end
  end
end
return pack({#keys == count and keys[#keys]})
