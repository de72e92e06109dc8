-- Write the schema record unless another client has changed it. ARGV: the version that must be there ('' for none), then fields.
if (redis.call('HGET', KEYS[1], 'version') or '') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return 1
