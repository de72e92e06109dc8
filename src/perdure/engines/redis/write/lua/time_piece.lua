-- A column of an entry that holds a time, packed: as it came, or `n` and what is to be added to the clock.
local function time_piece(given, clock)
  if #given > 1 and string.byte(given) == 110 then
    return cmsgpack.pack(clock + string.sub(given, 2))
  end
  return given
end
