-- Claim the first rows of an index. ARGV[1] is {rev, clock or false, schema mark, scan, row operation}: the rows that
-- the scan finds are patched by the operation, whose key is filled in here, and sent back as they are then.

local function run()
  local rev, given, mark, ask, op = unpack(cmsgpack.unpack(ARGV[1]))
  local fits, found = same_schema(mark, false)
  if not fits then
    return pack({2, found})
  end
  local now, tbl, staged, taken = clock(given), ask[2], {}, {}
  local rows = walk(tbl, base .. ask[4], ask[3], ask[5], ask[6], ask[7], ask[8], ask[9])
  for i, row in ipairs(rows) do
    local own = {1, op[2], op[3], row[1], key_values(row[1], tbl[3]), op[6], op[7], op[8], 0, false}
    local changed = stage(own, now, {})
    local conflict = claim_unique(changed, taken)
    if conflict then
      return pack({1, conflict})
    end
    staged[i] = changed
  end
  local sent = {'\147\0', pack(now), array_of(#rows)}
  for i, row in ipairs(rows) do
    write(staged[i], rev)
    sent[i + 3] = packed_row(tbl, row[1], fetch(tbl, row[1]))
  end
  return concat(sent)
end

return run()
