-- Compare what is stored twice, a batch at a time. ARGV[1] is {what, …}; the reply is {findings, where to continue}.
--
-- {'rows', table, kinds, shape, last key, count}: rows of the key order, their index entries and unique values
-- {'row', table, keys}: rows that the key order does not name
-- {'index', sorted set, table, kinds, shape, number of the index, kinds of its order, last member, count}
-- {'unique', hash, table, kinds, shape, number of the group}
-- {'log', log, partition, unique columns, segment column or false, trims, first entry, count}: entries out of place,
-- unique values that lead elsewhere, stretches that do not say where the segment changes. Entries count from 1; the seq
-- of the first is 1 as well, unless the log `trims`.

local findings = {}

local function report(text)
  findings[#findings + 1] = text
end

-- Damage that stops one comparison is a finding like any other.
local function guarded(what, work, ...)
  local fine, wrong = pcall(work, ...)
  if not fine then
    report(what .. ' is damaged: ' .. (type(wrong) == 'table' and tostring(wrong.err) or tostring(wrong)))
  end
end

local function row_of(tbl, shape, encoded)
  return call('HMGET', base .. 't:' .. tbl .. ':' .. encoded, unpack(shape[1], 1, shape[2]))
end

local function audit_row(tbl, kinds, shape, encoded)
  local values, key = row_of(tbl, shape, encoded), key_values(encoded, kinds)
  if not values[1] then
    return report(tbl .. ' ' .. encoded .. ' is in the key order and has no row')
  end
  for _, index in ipairs(shape[3]) do
    local into, member = index_position(index, values, key, encoded)
    if into and not call('ZSCORE', into, member) then
      report(tbl .. ' ' .. encoded .. ' is not in the index ' .. into)
    end
  end
  for _, group in ipairs(shape[4]) do
    local claim = unique_value(group, values, key)
    if claim and call('HGET', base .. group[1], claim) ~= encoded then
      report(tbl .. ' ' .. encoded .. ' does not hold its unique value in ' .. group[1])
    end
  end
end

-- Audit a batch of members; the first one also the scores: members are in the order of their bytes only if all are the
-- same.
local function audit_members(name, after, count, audit)
  if not after and call('ZCOUNT', name, 0, 0) ~= call('ZCARD', name) then
    report(name .. ' is not in order: it has scores that are not 0')
  end
  local members = call('ZRANGEBYLEX', name, after and '(' .. after or '-', '+', 'LIMIT', 0, count)
  for _, member in ipairs(members) do
    audit(member)
  end
  return #members == count and members[#members]
end

local audits = {}

function audits.rows(_, tbl, kinds, shape, after, count)
  return audit_members(base .. 'k:' .. tbl, after, count, function(encoded)
    guarded(tbl .. ' ' .. encoded, audit_row, tbl, kinds, shape, encoded)
  end)
end

function audits.row(_, tbl, keys)
  for _, encoded in ipairs(keys) do
    if not call('ZSCORE', base .. 'k:' .. tbl, encoded) then
      report(tbl .. ' ' .. encoded .. ' is a row that the key order does not name')
    end
  end
  return false
end

local function audit_member(name, tbl, kinds, shape, number, order, member)
  local encoded = key_in(member, order)
  local values = row_of(tbl, shape, encoded)
  local into, entered
  if values[1] then
    into, entered = index_position(shape[3][number], values, key_values(encoded, kinds), encoded)
  end
  if into ~= name or entered ~= member then
    report('the index ' .. name .. ' has an entry for ' .. encoded .. ' that no row of ' .. tbl .. ' has')
  end
end

function audits.index(_, name, tbl, kinds, shape, number, order, after, count)
  return audit_members(name, after, count, function(member)
    guarded('the entry ' .. member .. ' of the index ' .. name, audit_member, name, tbl, kinds, shape, number, order, member)
  end)
end

local function audit_claim(name, tbl, kinds, shape, number, claim, encoded)
  local values = row_of(tbl, shape, encoded)
  if not values[1] or unique_value(shape[4][number], values, key_values(encoded, kinds)) ~= claim then
    report(name .. ' has a value for ' .. encoded .. ' that no row of ' .. tbl .. ' has')
  end
end

function audits.unique(_, name, tbl, kinds, shape, number)
  local held = call('HGETALL', name)
  for i = 1, #held, 2 do
    guarded('a value of ' .. name, audit_claim, name, tbl, kinds, shape, number, held[i], held[i + 1])
  end
  return false
end

local function audit_entry(where, about, unique, entry, seq)
  local _, stored_seq = cmsgpack.unpack_limit(entry, 1, byte(entry) == 220 and 3 or 1)
  if stored_seq ~= seq then
    report(where .. ' has entry ' .. tostring(stored_seq) .. ' where ' .. seq .. ' belongs')
  end
  for _, column in ipairs(unique) do
    local value = entry_values(entry, column[2])[column[2]]
    if value and tonumber(call('HGET', about, column[1] .. '+' .. value)) ~= seq then
      report(where .. ' does not find its entry ' .. seq .. ' by ' .. column[1])
    end
  end
end

-- Each change of the segment has its mark in the stretches, and there are no others.
local function audit_stretches(where, list, name, about, entries, segment, first, gone)
  local function held(entry)
    return entry and (entry_values(entry, segment)[segment] or '')
  end
  local before, changes = first > 1 and held(call('LINDEX', list, first - 2)) or nil, 0
  for i, entry in ipairs(entries) do
    local value, seq = held(entry), gone + first + i - 1
    if value ~= before then
      changes = changes + 1
      if tonumber(call('ZSCORE', name, decimal(seq) .. ':' .. value)) ~= seq then
        report(where .. ' does not find its entry ' .. seq .. ' by its segment')
      end
    end
    before = value
  end
  if call('ZCOUNT', name, gone + first, gone + first + #entries - 1) ~= changes then
    report(where .. ' has other stretches than its entries say')
  end
  if first == 1 and call('ZCOUNT', name, gone + 1, gone + call('LLEN', list)) ~= call('ZCARD', name) then
    report(where .. ' has stretches where it has no entries')
  end
  if first + #entries - 1 == call('LLEN', list) and before ~= nil and call('HGET', about, '=') ~= before then
    report(where .. ' ends in another segment than it says')
  end
end

function audits.log(_, log, partition, unique, segment, trims, first, count)
  local name, where = log .. ':' .. partition, log .. ' ' .. partition
  local list, about = base .. 'l:' .. name, base .. 'q:' .. name
  local entries = call('LRANGE', list, first - 1, first + count - 2)
  local last = tonumber(call('HGET', about, '#'))
  local gone = trims and last and math.max(0, last - call('LLEN', list)) or 0
  for i, entry in ipairs(entries) do
    local seq = gone + first + i - 1
    guarded(where .. ' entry ' .. seq, audit_entry, where, about, unique, entry, seq)
  end
  if segment then
    guarded(where, audit_stretches, where, list, base .. 'g:' .. name, about, entries, segment, first, gone)
  end
  if last ~= gone + call('LLEN', list) then
    report(where .. ' has ' .. call('LLEN', list) .. ' entries, which is not its last seq')
  end
  if first == 1 and call('HLEN', about) > call('LLEN', list) * #unique + 2 then
    report(where .. ' holds unique values that none of its entries has')
  end
  local score = call('ZSCORE', base .. 'p:' .. log, partition)
  if not score then
    report(where .. ' is not among the partitions')
  elseif tonumber(score) ~= 0 then
    report(base .. 'p:' .. log .. ' is not in order: it has scores that are not 0')
  end
  return #entries == count and first + count
end

local request = cmsgpack.unpack(ARGV[1])
local onward = audits[request[1]](unpack(request))
return pack({findings, onward or false})
