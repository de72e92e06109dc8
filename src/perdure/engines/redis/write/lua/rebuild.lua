-- Add a batch of rows to their indexes. ARGV[1] is {table name, kinds of the key columns, shape, last key or false, how
-- many}; returns {last key or false}. Adding a row twice is harmless, so an interrupted walk starts over.

local name, kinds, shape, after, count = unpack(cmsgpack.unpack(ARGV[1]))
local keys = call('ZRANGEBYLEX', base .. 'k:' .. name, after and '(' .. after or '-', '+', 'LIMIT', 0, count)
for _, encoded in ipairs(keys) do
  local values = call('HMGET', base .. 't:' .. name .. ':' .. encoded, unpack(shape[1], 1, shape[2]))
  for _, index in ipairs(shape[3]) do
    local into, member = index_position(index, values, key_values(encoded, kinds), encoded)
    if values[1] and into then
      call('ZADD', into, 0, member)
    end
  end
end
return pack({#keys == count and keys[#keys]})
