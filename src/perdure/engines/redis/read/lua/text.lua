-- Text in names and members: without NUL, in the same byte order, so that NUL can end it.
local function escaped(value)
  if string.find(value, '[%z\1]') then
    value = string.gsub(value, '\1', '\1\2')
    value = string.gsub(value, '%z', '\1\1')
  end
  return value
end

-- A value as part of the name of a group: of an index (NULL groups with NULL) or of a unique value.
local function grouped(value)
  if not value then
    return '-'
  end
  return '+' .. escaped(value) .. '\0'
end
