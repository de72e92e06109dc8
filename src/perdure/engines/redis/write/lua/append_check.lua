-- Check appends to one log: $group is their number in the script. ARGV[at + 1] says how many there are; each has its
-- partition, the expected length ('' for any), the number of its entries, the field of every unique value ('' where it
-- is NULL), the segment (one for each entry if they differ), and the pieces of its entries.
--
-- A partition is a list of packed entries (so its length is its last seq, unless it was trimmed), a hash about it, and
-- the stretches: a sorted set that says at which seq the segment (the branch) changed, by which segment reads find their entries without looking
-- at others. The hash holds under `#` the last seq, under `=` the segment of the last entry, and under
-- `<column>+<value>` the seq of each unique value: an append learns all that it must know from one HMGET.
held[$group], at = {}, at + 1
for i = 1, tonumber(ARGV[at]) do
  local name, expected, count, first = $log .. ':' .. ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]), at + 4
  local about, last = base .. 'q:' .. name, first + count * $unique - 1
  local facts = call('HMGET', about, '#', '=', unpack(ARGV, first, math.min(last, first + 1999)))
  for from = first + 2000, last, 2000 do
    for n, value in ipairs(call('HMGET', about, unpack(ARGV, from, math.min(last, from + 1999)))) do
      facts[from - first + 2 + n] = value
    end
  end
  local head, fields = tonumber(facts[1] or 0), {}
  if facts[1] and (#facts[1] > 16 or not string.find(facts[1], '^%d+$$')) then
    error('PERDURE_CORRUPT ' .. about .. ' holds an invalid last seq')
  end
  $begin
  if expected ~= '' and tonumber(expected) ~= head then
    return pack({1, {$group, i, 'length', head}})
  end
  for n = 1, count * $unique do
    local field = ARGV[first + n - 1]
    if field ~= '' and (facts[n + 2] or fields[field]) then
      return pack({1, {$group, i, 'unique', field}})
    end
    fields[field] = true
  end
  local final = format('%.0f', head + count)
  seqs[$log], lasts = seqs[$log] or final, lasts .. ' ' .. final
  facts.about, facts.name, facts.head, facts.count, facts.final, facts.first = about, name, head, count, final, first
  held[$group][i] = facts
  at = last + $segments + count * $pieces_each
end
