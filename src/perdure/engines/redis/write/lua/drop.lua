-- Remove a partition of the log $log, or what comes after a seq. `first` is where its arguments begin: the partition, and
-- the last seq to stay; $gone is how many of its first entries were trimmed. Entries go one at a time, so that only one of them is in the script's memory.
local partition, upto = ARGV[first], tonumber(ARGV[first + 1])
local name = $log .. ':' .. partition
local list, about, stretches = base .. 'l:' .. name, base .. 'q:' .. name, base .. 'g:' .. name
local gone = $gone
local keep = math.max(0, upto - gone)
if keep == 0 then
  call('UNLINK', list, about, stretches)
  call('ZREM', base .. 'p:' .. $log, partition)
end
for _ = keep + 1, keep == 0 and 0 or call('LLEN', list) do
  for _, field in ipairs(unique_fields(call('RPOP', list))) do
    call('HDEL', about, field)
  end
end
if call('LLEN', list) > 0 then
  call('ZREMRANGEBYSCORE', stretches, '(' .. format('%.0f', upto), '+inf')
  local last = call('ZREVRANGE', stretches, 0, 0)[1]
  call('HSET', about, '#', format('%.0f', gone + call('LLEN', list)))
  if last then
    call('HSET', about, '=', string.match(last, ':(.*)'))
  end
end
