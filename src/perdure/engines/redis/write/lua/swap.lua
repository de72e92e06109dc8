-- The value of a column after a swap. In arguments \255 is NULL.
local function swapped(old, from, to)
  if (old or '\255') ~= from then
    return old
  end
  return to ~= '\255' and to
end
