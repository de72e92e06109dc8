-- Remove the oldest entries of a partition of the log $log, at most $most of them and never the newest. `first` is where
-- its arguments begin: the partition, and the last seq to go. All is read before the first write, LTRIM.
local upto, name = tonumber(ARGV[first + 1]), $log .. ':' .. ARGV[first]
local list, about, stretches = base .. 'l:' .. name, base .. 'q:' .. name, base .. 'g:' .. name
local length = call('LLEN', list)
local gone = tonumber(call('HGET', about, '#') or 0) - length
local count, fields = math.min(upto - gone, length - 1, $most), {}
if next($unique) then
  for n = 0, count - 1 do
    -- One entry at a time is in the script's memory.
    for _, field in ipairs(unique_fields(call('LRANGE', list, n, n)[1])) do
      fields[#fields + 1] = field
    end
  end
end
if count > 0 then
  call('LTRIM', list, count, -1)
  for from = 1, #fields, 2000 do
    call('HDEL', about, unpack(fields, from, math.min(#fields, from + 1999)))
  end
  -- The stretch in which the rest begins, begins with it now.
  local begin = format('%.0f', gone + count + 1)
  local marks = call('ZRANGEBYSCORE', stretches, '-inf', begin)
  for from = 1, #marks, 2000 do
    call('ZREM', stretches, unpack(marks, from, math.min(#marks, from + 1999)))
  end
  if #marks > 0 then
    call('ZADD', stretches, begin, begin .. ':' .. string.match(marks[#marks], ':(.*)'))
  end
end
