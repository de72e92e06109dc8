-- One transaction: check everything, then write everything, then ring. ARGV[1] is
-- {rev, clock or false, schema mark, create the mark, appends, drops, rows, channels, sender}.
-- Answers {0, now, last seq of each append}, {1, conflict} or {2, the mark of the scope as it is}.

local function run()
  local rev, given, mark, create, appends, drops, rows, channels, sender = unpack(cmsgpack.unpack(ARGV[1]))
  local fits, found = same_schema(mark, create)
  if not fits then
    return {2, found}
  end
  local now, seqs, appended, answer = clock(given), {}, {}, {0, 0}
  answer[2] = now
  for i, op in ipairs(appends) do
    local append, conflict = stage_append(op)
    if conflict then
      return {1, conflict}
    end
    appended[i] = append
    answer[i + 2] = append.head + #op[5]
    seqs[op[2]] = seqs[op[2]] or answer[i + 2]
  end
  local staged, taken = {}, {}
  for i, op in ipairs(rows) do
    local row, conflict = stage(op, now, seqs)
    if row and row.new then
      conflict = claim_unique(row, taken)
    end
    if conflict then
      return {1, conflict}
    end
    staged[i] = row
  end
  if create then
    call('SET', base .. 'schema', mark)
  end
  for _, op in ipairs(drops) do
    write_drop(op)
  end
  for i, op in ipairs(appends) do
    write_append(op, appended[i], now, rev)
  end
  for _, row in ipairs(staged) do
    write(row, rev)
  end
  for _, channel in ipairs(channels) do
    -- A hint is best effort: a user without permission for channels must not lose the commit for it.
    redis.pcall('PUBLISH', channel, sender)
  end
  return answer
end

return pack(run())
