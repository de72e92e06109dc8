-- Claim the first rows of an index. ARGV[7] is a scan, as in view.lua; the code that replaces $code, once to check and
-- once to write, changes its rows. Hints are published if there are rows; their channels are the last arguments, from
-- $hints on. The reply is {0, now, rows after the change}.
local request, owners = cmsgpack.unpack(ARGV[7]), {}
local _, tbl, order, name, low, high, limit, desc, filters = unpack(request, 1, 9)
-- Bounds on the clock come as offsets.
if type(high) == 'number' then
  high = '(' .. ordered_integer(clock + high + 1)
end
for i = 2, #filters, 3 do
  if filters[i] == AT_MOST_TIME then
    filters[i], filters[i + 1] = AT_MOST, clock + filters[i + 1]
  end
end
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
for n = $hints, #matched > 0 and #ARGV or 0 do
  redis.pcall('PUBLISH', ARGV[n], ARGV[6])
end
return table.concat(sent)
