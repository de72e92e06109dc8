-- Decodes keys from names and members. In a file by itself, because a commit does not need it: defining a function costs
-- every call of a script.

local PLAIN = {['\1'] = '\0', ['\2'] = '\1'}

local function unescaped(value)
  if find(value, '\1', 1, true) then
    value = gsub(value, '\1(.)', PLAIN)
  end
  return value
end

-- The key columns in an encoded key. `kinds` says which are integers.
local function key_values(encoded, kinds)
  local values, at, last = {}, 1, #kinds
  for i = 1, last do
    if kinds[i] then
      values[i] = decimal(tonumber(sub(encoded, at, at + 15)) - OFFSET)
      at = at + 16
    elseif i == last then
      values[i] = unescaped(sub(encoded, at))
    else
      local ends = find(encoded, '\0', at, true)
      values[i] = unescaped(sub(encoded, at, ends - 1))
      at = ends + 1
    end
  end
  return values
end
