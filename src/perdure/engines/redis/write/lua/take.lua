-- Claim the first rows of an index. ARGV[7] is a scan; the rows that it finds are changed by the code that is put in
-- here, once to check and once to write, and sent back as they are then. The answer is {0, now, rows}.
local ask, taken = cmsgpack.unpack(ARGV[7]), {}
local tbl = ask[2]
local found = walk(tbl, base .. ask[4], ask[3], ask[5], ask[6], ask[7], ask[8], ask[9])
for i, each in ipairs(found) do
  local key, keys, row = each[1], key_values(each[1], tbl[3])
  local name = base .. tbl[1] .. key
-- $code
  held[i] = row
end
local sent = {'\147\0', pack(clock), array_of(#found)}
for i, each in ipairs(found) do
  local key, keys, row = each[1], key_values(each[1], tbl[3]), held[i]
  local name = base .. tbl[1] .. key
-- $code
  sent[i + 3] = packed_row(tbl, key, fetch(tbl, key))
end
return table.concat(sent)
