-- Claim the first rows of an index. ARGV[7] is a scan, as in view.lua; the code that replaces $code, once to check and
-- once to write, changes its rows. The reply is {0, now, rows after the change}.
local request, owners = cmsgpack.unpack(ARGV[7]), {}
local _, tbl, order, name, low, high, limit, desc, filters = unpack(request, 1, 9)
local matched = walk(tbl, base .. name, order, low, high, limit, desc, filters)
for i, each in ipairs(matched) do
  local key, keys, row = each[1], key_values(each[1], tbl[3])
  local name = base .. tbl[1] .. key
-- $code
  held[i] = row
end
local sent = {'\147\0', pack(clock), array_of(#matched)}
for i, each in ipairs(matched) do
  local key, keys, row = each[1], key_values(each[1], tbl[3]), held[i]
  local name = base .. tbl[1] .. key
-- $code
  sent[i + 3] = packed_row(tbl, key, fetch(tbl, key))
end
return table.concat(sent)
