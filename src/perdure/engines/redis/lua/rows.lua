-- Rows: conditions, expressions, unique values and index entries. Everything is decided in `stage`, which writes
-- nothing; `write` then cannot be refused. Lua has no rollback.
--
-- A row operation: {position, kind, table, key, key values, shape, condition, changes, body, default}
-- A shape: {fields, how many of them to read, indexes, unique groups}; the first field is always `rev`.
-- An index: {name prefix, sparse, sources of `by`, sources and kinds of `order`}; a unique group: {name, sources}.
-- Changes come in threes: field, code, argument (a pair for SWAP and SEQ). `body` is a position in ARGV, 0 for none.
-- The key values are sent only if an index or a unique group needs them.

local CHECK, PUT, PATCH, DELETE = 1, 2, 3, 4
local ANY, ABSENT, PRESENT, REV = 0, 1, 2, 3
local LITERAL, INC, MAX, MIN, NOW, SWAP, SEQ = 0, 1, 2, 3, 4, 5, 6

-- The sorted set and the member of a row in an index; nothing if the row is not in it.
local function place(index, values, key, encoded)
  local order, member = index[4], ''
  for i = 1, #order, 2 do
    local value = pick(order[i], values, key)
    if not value then
      return nil
    elseif order[i + 1] then
      member = member .. ordered_integer(value)
    else
      member = member .. escaped(value) .. '\0'
    end
  end
  local by, group = index[3], index[1]
  for i = 1, #by do
    local value = pick(by[i], values, key)
    if not value and index[2] then
      return nil
    end
    group = group .. grouped(value)
  end
  return base .. group, member .. encoded
end

-- A row's value in a unique group; nothing if some of it is NULL.
local function claimed(group, values, key)
  local claim, sources = '', group[2]
  for i = 1, #sources do
    local value = pick(sources[i], values, key)
    if not value then
      return nil
    end
    claim = claim .. grouped(value)
  end
  return claim
end

local function meets(values, condition)
  local kind, rev = condition[1], values[1]
  if kind == ANY then
    return true
  elseif kind == ABSENT then
    return not rev
  elseif not rev then
    return false
  elseif kind == PRESENT then
    return true
  elseif kind == REV then
    return rev == condition[2]
  end
  for i = 2, #condition, 3 do
    local actual, wanted = values[condition[i]], condition[i + 2]
    if condition[i + 1] then
      if actual and tonumber(actual) > wanted then
        return false
      end
    elseif actual ~= wanted then
      return false
    end
  end
  return true
end

-- What a conflict reports: false for absence, the columns that were asked about, or the rev.
local function observed(values, condition)
  if not values[1] or condition[1] <= REV then
    return values[1]
  end
  local seen = {}
  for i = 2, #condition, 3 do
    seen[#seen + 1] = values[condition[i]]
  end
  return seen
end

local function evaluate(code, given, old, now, seqs)
  if code == LITERAL then
    return given
  elseif code == NOW then
    return decimal(now + given)
  elseif code == INC then
    return decimal((tonumber(old or 0)) + given)
  elseif code == SEQ then
    return decimal(seqs[given[1]] - given[2])
  elseif code == SWAP then
    if old == given[1] then
      return given[2]
    end
    return old
  elseif not old then
    return decimal(given)
  elseif code == MAX then
    return decimal(math.max(tonumber(old), given))
  end
  return decimal(math.min(tonumber(old), given))
end

-- The unique values that the row takes anew; a conflict if another row has one, even if it gives it up right now.
local function claim_unique(staged, taken)
  local op, fresh = staged.op, {}
  for _, group in ipairs(op[6][4]) do
    local new = claimed(group, staged.new, op[5])
    local old = staged.old[1] and claimed(group, staged.old, op[5])
    if new then
      local name = group[1] .. new
      local owner = taken[name] or call('HGET', base .. group[1], new)
      if owner and owner ~= op[4] then
        local seen = {}
        for i, source in ipairs(group[2]) do
          seen[i] = pick(source, staged.new, op[5])
        end
        return {op[1], 'unique', seen, group[1]}
      end
      taken[name] = op[4]
    end
    if new ~= old then
      fresh[#fresh + 1] = {group[1], old, new}
    end
  end
  staged.claims = fresh
  return nil
end

-- Decide what becomes of a row: {op, old values, new values, changes, body}, or nothing and a conflict.
local function stage(op, now, seqs)
  local shape, kind, condition = op[6], op[2], op[7]
  local old = call('HMGET', base .. 't:' .. op[3] .. ':' .. op[4], unpack(shape[1], 1, shape[2]))
  local changes, body, insert = op[8], op[9], kind == PUT
  if kind == PATCH and not old[1] then
    if not op[10] then
      return nil, {op[1], 'condition', false}
    end
    changes, body, insert = op[10][1], op[10][2], true
  elseif not meets(old, condition) then
    return nil, {op[1], 'condition', observed(old, condition)}
  end
  local staged = {op = op, old = old, body = body, insert = insert, set = {}}
  if kind == CHECK or kind == DELETE then
    return staged
  end
  local new, set = {}, staged.set
  for i = 1, shape[2] do
    new[i] = not insert and old[i] or false
  end
  new[1] = true
  for i = 1, #changes, 3 do
    local slot = changes[i]
    local value = evaluate(changes[i + 1], changes[i + 2], new[slot], now, seqs)
    new[slot] = value
    set[#set + 1] = slot
  end
  staged.new = new
  return staged
end

local function move_index_entries(op, old, new)
  for _, index in ipairs(op[6][3]) do
    local from, left, into, entered
    if old then
      from, left = place(index, old, op[5], op[4])
    end
    if new then
      into, entered = place(index, new, op[5], op[4])
    end
    if from ~= into or left ~= entered then
      if from then
        call('ZREM', from, left)
      end
      if into then
        call('ZADD', into, 0, entered)
      end
    end
  end
end

local function move_claims(op, claims)
  for _, claim in ipairs(claims) do
    if claim[2] then
      call('HDEL', base .. claim[1], claim[2])
    end
    if claim[3] then
      call('HSET', base .. claim[1], claim[3], op[4])
    end
  end
end

local function write_fields(name, staged, rev)
  local fields, new = staged.op[6][1], staged.new
  local set, gone = {'rev', rev}, {}
  for _, slot in ipairs(staged.set) do
    if new[slot] then
      set[#set + 1] = fields[slot]
      set[#set + 1] = new[slot]
    else
      gone[#gone + 1] = fields[slot]
    end
  end
  if staged.body > 0 then
    set[#set + 1] = 'body'
    set[#set + 1] = ARGV[staged.body]
  end
  call('HSET', name, unpack(set))
  if #gone > 0 and not staged.insert then
    call('HDEL', name, unpack(gone))
  end
end

local function remove(staged)
  local op, old = staged.op, staged.old
  if not old[1] then
    return
  end
  call('DEL', base .. 't:' .. op[3] .. ':' .. op[4])
  call('ZREM', base .. 'k:' .. op[3], op[4])
  move_index_entries(op, old, nil)
  for _, group in ipairs(op[6][4]) do
    local claim = claimed(group, old, op[5])
    if claim then
      call('HDEL', base .. group[1], claim)
    end
  end
end

local function write(staged, rev)
  local op, old = staged.op, staged.old
  if op[2] == CHECK then
    return
  elseif op[2] == DELETE then
    return remove(staged)
  end
  local name = base .. 't:' .. op[3] .. ':' .. op[4]
  if not old[1] then
    call('ZADD', base .. 'k:' .. op[3], 0, op[4])
  elseif staged.insert then
    call('DEL', name)
  end
  write_fields(name, staged, rev)
  move_index_entries(op, old[1] and old, staged.new)
  move_claims(op, staged.claims)
end
