-- The gate of every write: whether the scope holds the schema of this client, and the clock. ARGV begins with the
-- schema mark, '1' if a scope without one is to get it, the clock ('' for the server's), the rev, the rev as msgpack,
-- and the sender of hints. A scope with another mark is answered {2, mark}.
local base, call, format, pack = KEYS[1], redis.call, string.format, cmsgpack.pack
local rev, mark = ARGV[4], call('GET', KEYS[1] .. 'schema')
if mark ~= ARGV[1] and (mark or ARGV[2] ~= '1') then
  return pack({2, mark})
end
local clock = tonumber(ARGV[3])
if not clock then
  if redis.replicate_commands then
    redis.replicate_commands()
  end
  local time = call('TIME')
  clock = time[1] * 1000 + math.floor(time[2] / 1000)
end
local now, held = format('%.0f', clock), {}
