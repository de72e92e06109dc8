-- The gate of every write: the clock, and whether the scope holds the schema of this client.

local function clock(given)
  if given then
    return given
  end
  if redis.replicate_commands then
    redis.replicate_commands()
  end
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function same_schema(mark, create)
  local found = call('GET', base .. 'schema')
  return found == mark or (create and not found), found
end
