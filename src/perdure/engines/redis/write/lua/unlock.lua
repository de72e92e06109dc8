-- Extend a lock that is still ours by ARGV[2] milliseconds, or release it if ARGV[2] is 0.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
elseif ARGV[2] == '0' then
  return redis.call('DEL', KEYS[1])
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
