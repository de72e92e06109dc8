-- Several reads of one moment. ARGV[1] is the list of reads; the answer is one msgpack array with an element for each.
-- ARGV[2] is the schema mark, where an index is read: if that of the scope is older, or says that indexes are still
-- being filled, the answer is 0. A scope of a newer schema has all that is asked for.
--
-- {1, table, keys or false, reference}: rows by key       {2, table, …}: a scan, see below
-- {3, …}: entries of a log, see read_log;                {4, log, partitions, trims}: last seqs
-- {5, clock or false, offset}: the time
-- A scan: {2, table, kinds of `order`, sorted set, low, high, limit, desc, filters, pieces, by key, after}. `pieces`
-- is false unless a value comes from an earlier read: then it lists what the group (or the prefix) is made of.
-- A reference: {read, sources}

local answers = {}

-- The values that the rows of an earlier read hold in the named columns, without those that hold a NULL.
local function referred(reference)
  local earlier, rows = answers[reference[1]], {}
  for _, row in ipairs(earlier.rows) do
    local key, values, whole = key_values(row[1], earlier.kinds), {}, true
    for i, source in ipairs(reference[2]) do
      values[i] = pick(source, row[2], key)
      whole = whole and values[i]
    end
    if whole then
      rows[#rows + 1] = values
    end
  end
  return rows
end

local function encoded_key(values, kinds)
  local parts, last = {}, #kinds
  for i = 1, last do
    if kinds[i] then
      parts[i] = ordered_integer(values[i])
    else
      parts[i] = escaped(values[i]) .. (i < last and '\0' or '')
    end
  end
  return concat(parts)
end

-- The forms of a referred value: as a group, an integer, text that something follows, and text at the end.
local FORMS = {grouped, ordered_integer, function(value) return escaped(value) .. '\0' end, escaped}

-- The text of all pieces, nil if a reference leads nowhere.
local function joined(pieces)
  local parts = {}
  for i, piece in ipairs(pieces) do
    if type(piece) == 'table' then
      local first = referred(piece)[1]
      if not first then
        return nil
      end
      piece = FORMS[piece[3]](first[1])
    end
    parts[i] = piece
  end
  return concat(parts)
end

-- The bounds of the members that begin with a prefix (or are it, when it is a whole key), past a keyset.
local function bounds(prefix, whole, after, desc)
  -- A prefix ends in NUL or a digit: with that raised by one it is above everything that begins with it.
  local upper = whole and prefix or sub(prefix, 1, -2) .. char(byte(prefix, -1) + 1)
  local low, high = '[' .. prefix, (whole and '[' or '(') .. upper
  if after and not desc and not below(after, prefix) then
    low = '(' .. after
  elseif after and desc and not below(upper, after) then
    high = '(' .. after
  end
  return low, high
end

local function scan(ask)
  local _, tbl, order, name, low, high, limit, desc, filters, parts, by_key, after = unpack(ask, 1, 12)
  if parts then
    local prefix = joined(parts)
    if not prefix then
      return {}
    elseif by_key then
      low, high = bounds(prefix, #parts == #tbl[3], after, desc)
    else
      name = name .. prefix
    end
  end
  return walk(tbl, base .. name, order, low, high, limit, desc, filters)
end

local function get(ask)
  local tbl, rows, keys = ask[2], {}, ask[3]
  if keys then
    for i, encoded in ipairs(keys) do
      rows[i] = {encoded, fetch(tbl, encoded)}
    end
    return rows
  end
  for _, values in ipairs(referred(ask[4])) do
    local encoded = encoded_key(values, tbl[3])
    local fetched = fetch(tbl, encoded)
    if fetched[1] then
      rows[#rows + 1] = {encoded, fetched}
    end
  end
  return rows
end

local function packed_rows(tbl, rows)
  local parts, present = {array_of(#rows)}, {}
  for i, row in ipairs(rows) do
    if row[2][1] then
      parts[i + 1] = packed_row(tbl, row[1], row[2])
      present[#present + 1] = row
    else
      parts[i + 1] = '\192'
    end
  end
  return concat(parts), present
end

-- Put the answer to one read behind what is sent.
local function answer(number, ask, sent)
  local kind, last = ask[1], #sent + 1
  if kind == 1 or kind == 2 then
    local rows = kind == 1 and get(ask) or scan(ask)
    local packed, present = packed_rows(ask[2], rows)
    answers[number] = {rows = present, kinds = ask[2][3]}
    sent[last] = packed
  elseif kind == 3 and ask[13] then
    sent[last] = locate(ask)
  elseif kind == 3 then
    local entries = read_log(ask)
    sent[last] = array_of(#entries)
    for i, entry in ipairs(entries) do
      sent[last + i] = entry
    end
  elseif kind == 4 then
    sent[last] = array_of(#ask[3])
    for i, partition in ipairs(ask[3]) do
      sent[last + i] = pack((ends_of(ask[2] .. ':' .. partition, ask[4])))
    end
  else
    local time = ask[2] or call('TIME')
    sent[last] = pack((ask[2] or time[1] * 1000 + math.floor(time[2] / 1000)) + ask[3])
  end
end

local function filled(mark)
  local stored = call('GET', base .. 'schema')
  if not stored or stored == mark then
    return true
  end
  local version = tonumber(string.match(stored, '^%d+'))
  if not version then
    error('PERDURE_CORRUPT ' .. base .. 'schema holds no mark of a schema')
  end
  return stored ~= mark .. ':filling' and version >= tonumber(string.match(mark, '^%d+'))
end

if ARGV[2] and not filled(ARGV[2]) then
  return 0
end
local asks = cmsgpack.unpack(ARGV[1])
local sent = {array_of(#asks)}
for number, ask in ipairs(asks) do
  answer(number, ask, sent)
end
-- Few pieces go as one string, which is quicker to receive. Many go as they are: joining a long history would take
-- the server several times as long as reading it.
if #sent < 64 then
  return concat(sent)
end
return sent
