-- The fields that an entry's unique values occupy in the hash of its partition. The body is binary data, which this
-- decoder does not know: only the columns are read, behind the array's head.
local function unique_fields(entry)
  local first_byte, second, third = string.byte(entry, 1, 3)
  local long = first_byte == 220
  local size = long and second * 256 + third or first_byte - 144
  local values, fields = {cmsgpack.unpack_limit(entry, math.min($columns, size - 1), long and 3 or 1)}, {}
  for column, at in pairs($unique) do
    local value = values[at]
    if value then
      fields[#fields + 1] = column .. (type(value) == 'number' and format('%.0f', value) or value)
    end
  end
  return fields
end
