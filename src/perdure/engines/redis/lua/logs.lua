-- Logs: a partition is a list of packed entries (so its length is its last seq), a hash of the seqs of unique values,
-- and the stretches: a sorted set that says at which seq the segment (the branch) changed, by which segment reads find
-- their entries without looking at others.
--
-- An append: {position, log, partition, expected length, entries, unique columns, segment values, width of an entry}
-- An entry comes in pieces: a number is a position in ARGV, {n} is the clock plus n; its seq and rev go before them.

local function head_of(log, partition)
  return call('LLEN', base .. 'l:' .. log .. ':' .. partition)
end

local function refuse_taken(op, column, values, head)
  local name, seen = base .. 'q:' .. op[2] .. ':' .. column .. ':' .. op[3], {}
  for first = 1, #values, 2000 do
    local last = math.min(first + 1999, #values)
    local asked, held = {}, nil
    for at = first, last do
      asked[at - first + 1] = values[at] or ''
    end
    if head > 0 then
      held = call('HMGET', name, unpack(asked))
    end
    for at = first, last do
      local value = values[at]
      if value then
        if seen[value] or (held and held[at - first + 1]) then
          return {op[1], 'unique', value, column}
        end
        seen[value] = true
      end
    end
  end
  return nil
end

-- Check an append; the length before it, or nothing and a conflict.
local function stage_append(op)
  local head = head_of(op[2], op[3])
  if op[4] and op[4] ~= head then
    return nil, {op[1], 'length', head}
  end
  for _, unique in ipairs(op[6]) do
    local conflict = refuse_taken(op, unique[1], unique[2], head)
    if conflict then
      return nil, conflict
    end
  end
  return head
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

local function write_stretches(op, head)
  local name = base .. 'g:' .. op[2] .. ':' .. op[3]
  local newest = head > 0 and call('ZREVRANGE', name, 0, 0)[1]
  local current = newest and sub(newest, find(newest, ':', 1, true) + 1)
  for n, value in ipairs(op[7]) do
    local segment = value or ''
    if segment ~= current then
      call('ZADD', name, head + n, decimal(head + n) .. ':' .. segment)
      current = segment
    end
  end
end

local function write_append(op, head, now, rev)
  if head == 0 then
    call('ZADD', base .. 'p:' .. op[2], 0, op[3])
  end
  in_chunks('RPUSH', base .. 'l:' .. op[2] .. ':' .. op[3], packed_entries(op, head, now, rev))
  for _, unique in ipairs(op[6]) do
    local fields = {}
    for n, value in ipairs(unique[2]) do
      if value then
        fields[#fields + 1] = value
        fields[#fields + 1] = decimal(head + n)
      end
    end
    in_chunks('HSET', base .. 'q:' .. op[2] .. ':' .. unique[1] .. ':' .. op[3], fields)
  end
  if op[7] then
    write_stretches(op, head)
  end
end

-- A drop: {log, partition, unique columns}
local function write_drop(op)
  for _, column in ipairs(op[3]) do
    call('UNLINK', base .. 'q:' .. op[1] .. ':' .. column .. ':' .. op[2])
  end
  call('UNLINK', base .. 'l:' .. op[1] .. ':' .. op[2], base .. 'g:' .. op[1] .. ':' .. op[2])
  call('ZREM', base .. 'p:' .. op[1], op[2])
end
