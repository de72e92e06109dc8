-- Write the appends that append_check.lua accepted. An entry is stored in the form in which callers get it.
local packed_clock = pack(clock)
for i, facts in ipairs(held[$group]) do
  local head, count, first = facts.head, facts.count, facts.first
  local entries, set, last, segment = {}, {'#', facts.final}, first + count * $unique - 1, facts[2]
  if not facts[1] then
    call('ZADD', base .. 'p:' .. $log, 0, ARGV[first - 3])
  end
  local at = last + $segments
  for n = 1, count do
    entries[n] = $start .. pack(head + n) .. ARGV[5] .. $pieces
    at = at + $pieces_each
  end
  for from = 1, count, 2000 do
    call('RPUSH', base .. 'l:' .. facts.name, unpack(entries, from, math.min(count, from + 1999)))
  end
  for n = 1, $segments do
    if ARGV[last + n] ~= segment then
      segment = ARGV[last + n]
      call('ZADD', base .. 'g:' .. facts.name, head + n, format('%.0f', head + n) .. ':' .. segment)
    end
  end
  if segment ~= facts[2] then
    set[3], set[4] = '=', segment
  end
  for n = 1, count * $unique do
    if ARGV[first + n - 1] ~= '' then
      set[#set + 1] = ARGV[first + n - 1]
      set[#set + 1] = format('%.0f', head + (n - 1) % count + 1)
    end
  end
  for from = 1, #set, 2000 do
    call('HSET', facts.about, unpack(set, from, math.min(#set, from + 1999)))
  end
end
