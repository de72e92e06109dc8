-- Enter a batch of rows into their indexes. ARGV[1] is {table name, kinds of the key columns, shape, last key seen or
-- false, how many}; answers {last key or false}. Entering twice does no harm, so a walk that was killed begins again.

local name, kinds, shape, after, count = unpack(cmsgpack.unpack(ARGV[1]))
local keys = call('ZRANGEBYLEX', base .. 'k:' .. name, after and '(' .. after or '-', '+', 'LIMIT', 0, count)
for _, encoded in ipairs(keys) do
  local values = call('HMGET', base .. 't:' .. name .. ':' .. encoded, unpack(shape[1], 1, shape[2]))
  for _, index in ipairs(shape[3]) do
    local into, member = place(index, values, key_values(encoded, kinds), encoded)
    if values[1] and into then
      call('ZADD', into, 0, member)
    end
  end
end
return pack({#keys == count and keys[#keys]})
