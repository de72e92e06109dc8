-- Reads: rows by key and by index, stretches of logs. Each answers with the number of its results and their bytes.
--
-- A table: {name prefix of rows, fields (rev, columns, body), kinds of the key columns}
-- Filters come in threes: source, test, operand; `test` is EQUAL, AMONG (a list) or AT_MOST. take.lua makes an AT_MOST of
-- AT_MOST_TIME.

local EQUAL, AMONG, AT_MOST, AT_MOST_TIME = 1, 2, 3, 4

-- Turn the lists of AMONG into sets, once for a read: a list would be gone through for every row.
local function with_sets(filters)
  for i = 2, #filters, 3 do
    if filters[i] == AMONG then
      local set = {}
      for _, value in ipairs(filters[i + 1]) do
        set[value] = true
      end
      filters[i + 1] = set
    end
  end
  return filters
end

local function matches(filters, values, key)
  for i = 1, #filters, 3 do
    local value, test, operand = pick(filters[i], values, key), filters[i + 1], filters[i + 2]
    if test == EQUAL and value ~= operand
        or test == AMONG and not operand[value]
        or test == AT_MOST and not (value and tonumber(value) <= operand) then
      return false
    end
  end
  return true
end

-- Bytes as msgpack binary, which cmsgpack does not know: a body need not be valid text.
local function binary(value)
  if not value then
    return '\192'
  end
  local size = #value
  if size < 256 then
    return char(196, size) .. value
  end
  return (size < 65536 and '\197' .. struct.pack('>I2', size) or '\198' .. struct.pack('>I4', size)) .. value
end

-- The reply to a call on a key; an error names the key, which the server's own error does not.
local function checked_reply(name, answer)
  if type(answer) == 'table' and answer.err then
    error('PERDURE_CORRUPT ' .. name .. ' cannot be read: ' .. answer.err)
  end
  return answer
end

local function fetch(tbl, encoded)
  local name = base .. tbl[1] .. encoded
  return checked_reply(name, redis.pcall('HMGET', name, unpack(tbl[2])))
end

-- A row as sent: its key in encoded form, its body, then rev and columns.
local function packed_row(tbl, encoded, values)
  local last = #tbl[2]
  local body = values[last]
  values[last] = nil
  local sent = '\147' .. pack(encoded) .. binary(body) .. pack(values)
  values[last] = body
  return sent
end

-- Where the key begins in a member: behind its ordering values.
local function key_in(member, order)
  local at = 1
  for i = 1, #order do
    if order[i] then
      at = at + 16
    else
      at = find(member, '\0', at, true) + 1
    end
  end
  return sub(member, at)
end

local function members_of(name, low, high, desc, count)
  if desc then
    return checked_reply(name, redis.pcall('ZREVRANGEBYLEX', name, high, low, 'LIMIT', 0, count))
  end
  return checked_reply(name, redis.pcall('ZRANGEBYLEX', name, low, high, 'LIMIT', 0, count))
end

-- Is `left` below `right`, byte for byte?
local function below(left, right)
  for i = 1, math.min(#left, #right) do
    local one, other = byte(left, i), byte(right, i)
    if one ~= other then
      return one < other
    end
  end
  return #left < #right
end

-- Rows of a sorted set between two bounds: a list of {encoded key, values}.
local function walk(tbl, name, order, low, high, limit, desc, filters)
  local rows, filtered = {}, #with_sets(filters) > 0
  local batch, reached = limit and not filtered and limit or 256, nil
  while not limit or #rows < limit do
    local members = members_of(name, low, high, desc, batch)
    for _, member in ipairs(members) do
      local encoded = key_in(member, order)
      local values = fetch(tbl, encoded)
      if not values[1] then
        error('PERDURE_CORRUPT ' .. name .. ' names a row that is not there')
      end
      if not filtered or matches(filters, values, key_values(encoded, tbl[3])) then
        rows[#rows + 1] = {encoded, values}
        if limit and #rows == limit then
          return rows
        end
      end
    end
    if #members < batch then
      return rows
    end
    -- Scores that are not all the same put members out of order, and the walk would begin again and again.
    local last = members[#members]
    if reached and not below(desc and last or reached, desc and reached or last) then
      error('PERDURE_CORRUPT ' .. name .. ' is not in order')
    end
    reached = last
    if desc then
      high = '(' .. last
    else
      low = '(' .. last
    end
  end
  return rows
end

-- The seq at which a stretch begins: the digits before the colon of its mark.
local function begin_of(name, mark)
  local digits = string.match(mark, '^(%d+):')
  if not digits or #digits > 16 then
    error('PERDURE_CORRUPT ' .. name .. ' has a stretch without a first seq')
  end
  return tonumber(digits)
end

-- The seqs of one stretch after another that lie in (after, upto], in reading order, for one segment value.
local function stretches_of(name, value, after, upto)
  local stretches, reached = {}, 0
  local marks = checked_reply(name, redis.pcall('ZRANGEBYSCORE', name, '(' .. decimal(after + 1), decimal(upto)))
  local covering = call('ZREVRANGEBYSCORE', name, decimal(after + 1), '-inf', 'LIMIT', 0, 1)
  if covering[1] then
    table.insert(marks, 1, covering[1])
  end
  for i, mark in ipairs(marks) do
    local colon, begins = find(mark, ':', 1, true), begin_of(name, mark)
    -- Stretches follow each other: overlapping ones would send the same entries over and over.
    if begins <= reached then
      error('PERDURE_CORRUPT ' .. name .. ' has stretches that overlap')
    end
    reached = begins
    if sub(mark, colon + 1) == value then
      local first = math.max(begins - 1, after)
      local following = marks[i + 1]
      local last = following and begin_of(name, following) - 1 or upto
      stretches[#stretches + 1] = {first, math.min(last, upto)}
    end
  end
  return stretches
end

-- Seqs of unique values, as stretches.
local function stretches_by_unique(name, column, unique_values, after, upto)
  local seqs, stretches, known = {}, {}, {}
  for _, value in ipairs(unique_values) do
    local seq = checked_reply(name, redis.pcall('HGET', name, column .. '+' .. value)) or '0'
    if not find(seq, '^%d+$') or #seq > 16 then
      error('PERDURE_CORRUPT ' .. name .. ' leads to an entry that does not exist')
    end
    seq = tonumber(seq)
    if seq > after and seq <= upto and not known[seq] then
      known[seq] = true
      seqs[#seqs + 1] = seq
    end
  end
  table.sort(seqs)
  for _, seq in ipairs(seqs) do
    local last = stretches[#stretches]
    if last and last[2] == seq - 1 then
      last[2] = seq
    else
      stretches[#stretches + 1] = {seq - 1, seq}
    end
  end
  return stretches
end

-- The columns of an entry as stored values. An entry may be older than the newest columns.
local function entry_values(entry, count)
  local size, at = byte(entry) - 144, 1
  if byte(entry) == 220 then
    size, at = byte(entry, 2) * 256 + byte(entry, 3), 3
  end
  local held = math.min(count, size - 3)
  local values = {cmsgpack.unpack_limit(entry, held + 2, at)}
  for i = 1, count do
    local value = i <= held and values[i + 3]
    values[i] = type(value) == 'number' and decimal(value) or value or false
  end
  return values
end

-- The last seq of a partition, and how many of its first entries were trimmed: none, unless its log `trims`.
local function ends_of(name, trims)
  local list, about = base .. 'l:' .. name, base .. 'q:' .. name
  local length = checked_reply(list, redis.pcall('LLEN', list))
  if not trims or length == 0 then
    return length, 0
  end
  local last = checked_reply(about, redis.pcall('HGET', about, '#')) or ''
  if not find(last, '^%d+$') or #last > 16 or tonumber(last) < length then
    error('PERDURE_CORRUPT ' .. about .. ' holds an invalid last seq')
  end
  return tonumber(last), tonumber(last) - length
end

-- Append the entries of a stretch to `results`; true when there are enough. They are fetched some at a time, because
-- the server builds each answer as one string before Lua gets it.
local function collect(read, results, list, first, last)
  local limit, desc, filters, width = read[6], read[7], read[8], read[11]
  local filtered, count = #filters > 0, #results
  while first < last do
    local size = math.min(64, last - first, limit and not filtered and limit - count or 64)
    local from = desc and last - size or first
    local entries = checked_reply(list, redis.pcall('LRANGE', list, from - read.gone, from - read.gone + size - 1))
    if #entries ~= size then
      error('PERDURE_CORRUPT ' .. list .. ' is shorter than it should be')
    end
    for i = desc and #entries or 1, desc and 1 or #entries, desc and -1 or 1 do
      if not filtered or matches(filters, entry_values(entries[i], width)) then
        count = count + 1
        results[count] = entries[i]
        if count == limit then
          return true
        end
      end
    end
    if desc then
      last = from
    else
      first = from + size
    end
  end
  return false
end

local function gather(read, results, list, stretches)
  local desc = read[7]
  for i = desc and #stretches or 1, desc and 1 or #stretches, desc and -1 or 1 do
    if collect(read, results, list, stretches[i][1], stretches[i][2]) then
      return true
    end
  end
  return false
end

-- Where the entries of a read are that LRANGE fetches, and the last one: {first, last, first, last, …}, entry or nil.
-- It has one segment at most, and neither limit nor filters.
local function locate(read)
  local name = read[2] .. ':' .. read[3]
  local list, segment = base .. 'l:' .. name, read[10] and read[10][1]
  local head = checked_reply(list, redis.pcall('LLEN', list))
  local low, high = read[4], math.min(read[5] or head, head)
  local stretches = {{low, high}}
  if segment then
    low, high = math.max(low, segment[2]), math.min(segment[3] or high, high)
    stretches = low < high and stretches_of(base .. 'g:' .. name, segment[1], low, high) or {}
  end
  local bounds = {}
  for _, stretch in ipairs(stretches) do
    if stretch[1] < stretch[2] then
      bounds[#bounds + 1], bounds[#bounds + 2] = pack(stretch[1]), pack(stretch[2])
      high = stretch[2]
    end
  end
  local last = #bounds > 0 and call('LRANGE', list, high - 1, high - 1)[1] or '\192'
  return '\146' .. array_of(#bounds) .. concat(bounds) .. last
end

-- A read: {3, log, partition, after, upto, limit, desc, filters, unique look-up, segments, number of columns, trims, direct}
local function read_log(read)
  local results, name = {}, read[2] .. ':' .. read[3]
  local list = base .. 'l:' .. name
  local head, gone = ends_of(name, read[12])
  local limit, desc, segments = read[6], read[7], read[10]
  local after, upto = math.max(read[4], gone), math.min(read[5] or head, head)
  read.gone = gone
  if limit and limit < 1 then
    return results
  end
  with_sets(read[8])
  if segments then
    for i = desc and #segments or 1, desc and 1 or #segments, desc and -1 or 1 do
      local segment = segments[i]
      local low, high = math.max(after, segment[2]), math.min(segment[3] or upto, upto)
      if low < high and gather(read, results, list, stretches_of(base .. 'g:' .. name, segment[1], low, high)) then
        break
      end
    end
  elseif read[9] then
    local stretches = stretches_by_unique(base .. 'q:' .. name, read[9][1], read[9][2], after, upto)
    gather(read, results, list, stretches)
  else
    collect(read, results, list, after, upto)
  end
  return results
end
