-- What every script shares: how values become keys and sorted-set members, and how an answer is packed.
--
-- A stored value is always a string (integers in decimal); NULL is `false`, which is also what HMGET answers for a
-- field that is not there. Strings are never compared with `<`: Redis sets the collation of the machine's locale.

local base = KEYS[1]
local call = redis.call
local format, find, gsub, sub, char, byte = string.format, string.find, string.gsub, string.sub, string.char, string.byte
local concat = table.concat
local pack = cmsgpack.pack

-- Added to an integer within +-2^52 it gives a number that is not negative and still exact in a double.
local OFFSET = 4503599627370496

-- A number as Redis must keep it: tostring() would round above 10^14.
local function decimal(number)
  return format('%.0f', number)
end

-- Sixteen digits that sort as the integer does.
local function ordered_integer(value)
  return format('%016.0f', tonumber(value) + OFFSET)
end

-- The value behind a source: a positive number is a column as read, a negative one a column of the key.
local function pick(source, values, key)
  if source > 0 then
    return values[source]
  end
  return key[-source]
end

-- The head of a msgpack array of `count` elements; what follows is put behind it as it is.
local function array_of(count)
  if count < 16 then
    return char(144 + count)
  end
  return count < 65536 and '\220' .. struct.pack('>I2', count) or '\221' .. struct.pack('>I4', count)
end
