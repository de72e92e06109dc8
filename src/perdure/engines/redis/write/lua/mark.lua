-- Change the mark of a scope from ARGV[1] ('' for none) to ARGV[2], unless another client has changed it. Returns the
-- mark that the scope has then.
local name = KEYS[1] .. 'schema'
local mark = redis.call('GET', name) or ''
if mark ~= ARGV[1] then
  return mark
end
redis.call('SET', name, ARGV[2])
return ARGV[2]
