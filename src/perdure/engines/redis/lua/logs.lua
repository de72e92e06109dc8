-- Logs: a partition is a list of packed entries (so its length is its last seq), a hash about it, and the stretches: a
-- sorted set that says at which seq the segment (the branch) changed, by which segment reads find their entries without
-- looking at others. The hash holds under `#` the last seq, under `=` the segment of the last entry, and under
-- `<column>+<value>` the seq of each unique value: an append learns all that it must know from one HMGET.
--
-- An append: {position, log, partition, expected length, entries, unique columns, segment values, width of an entry}
-- An entry comes in pieces: a number is a position in ARGV, {n} is the clock plus n; its seq and rev go before them.

-- The fields to ask for: seq, segment, then every unique value ('' where it is NULL).
local function asked_of(op)
  local fields = {'#', '='}
  for _, unique in ipairs(op[6]) do
    local prefix = unique[1] .. '+'
    for _, value in ipairs(unique[2]) do
      fields[#fields + 1] = value and prefix .. value or ''
    end
  end
  return fields
end

-- The answers to very many fields, some thousand at a time.
local function held_under(name, fields)
  if #fields <= 2000 then
    return call('HMGET', name, unpack(fields))
  end
  local held = {}
  for first = 1, #fields, 2000 do
    for i, value in ipairs(call('HMGET', name, unpack(fields, first, math.min(first + 1999, #fields)))) do
      held[first + i - 1] = value
    end
  end
  return held
end

local function taken_value(op, fields, held)
  local at, seen = 2, {}
  for _, unique in ipairs(op[6]) do
    for _, value in ipairs(unique[2]) do
      at = at + 1
      if value and (held[at] or seen[fields[at]]) then
        return {op[1], 'unique', value, unique[1]}
      end
      seen[fields[at]] = value
    end
  end
  return nil
end

-- Check an append: {length before it, segment of the last entry, fields of its unique values}, or a conflict.
local function stage_append(op)
  local fields = asked_of(op)
  local held = held_under(base .. 'q:' .. op[2] .. ':' .. op[3], fields)
  local head = tonumber(held[1] or 0)
  if op[4] and op[4] ~= head then
    return nil, {op[1], 'length', head}
  end
  local conflict = taken_value(op, fields, held)
  if conflict then
    return nil, conflict
  end
  return {head = head, segment = held[2], fields = fields}
end

local function packed_entries(op, head, now, rev)
  local made, start, stamp = {}, array_of(op[8]), pack(tonumber(rev))
  for n, pieces in ipairs(op[5]) do
    local parts = {start, pack(head + n), stamp}
    for i, piece in ipairs(pieces) do
      if type(piece) == 'number' then
        parts[i + 3] = ARGV[piece]
      else
        parts[i + 3] = pack(now + piece[1])
      end
    end
    made[n] = concat(parts)
  end
  return made
end

-- Note where the segment changes; answers the segment of the last entry.
local function write_stretches(op, head, current)
  for n, value in ipairs(op[7]) do
    local segment = value or ''
    if segment ~= current then
      call('ZADD', base .. 'g:' .. op[2] .. ':' .. op[3], head + n, decimal(head + n) .. ':' .. segment)
      current = segment
    end
  end
  return current
end

local function write_append(op, staged, now, rev)
  local head, name = staged.head, op[2] .. ':' .. op[3]
  if head == 0 then
    call('ZADD', base .. 'p:' .. op[2], 0, op[3])
  end
  in_chunks('RPUSH', base .. 'l:' .. name, packed_entries(op, head, now, rev))
  local count = #op[5]
  local set = {'#', decimal(head + count)}
  if op[7] then
    local segment = write_stretches(op, head, staged.segment)
    if segment ~= staged.segment then
      set[3], set[4] = '=', segment
    end
  end
  for i = 3, #staged.fields do
    if staged.fields[i] ~= '' then
      set[#set + 1] = staged.fields[i]
      set[#set + 1] = decimal(head + (i - 3) % count + 1)
    end
  end
  in_chunks('HSET', base .. 'q:' .. name, set)
end

-- A drop: {log, partition}
local function write_drop(op)
  local name = op[1] .. ':' .. op[2]
  call('UNLINK', base .. 'l:' .. name, base .. 'q:' .. name, base .. 'g:' .. name)
  call('ZREM', base .. 'p:' .. op[1], op[2])
end
