-- Change the mark of a scope from ARGV[1] ('' for none) to ARGV[2], unless somebody changed it meanwhile. Answers the
-- mark that it has then.
local name = KEYS[1] .. 'schema'
local found = redis.call('GET', name) or ''
if found ~= ARGV[1] then
  return found
end
redis.call('SET', name, ARGV[2])
return ARGV[2]
