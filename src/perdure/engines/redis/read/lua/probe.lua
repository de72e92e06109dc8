-- Which of the commands that commits use this user may not run. ARGV[1] is an unused key; returns their names.
--
-- A script has no rollback: a command that is forbidden half way leaves half a commit. So each is tried here, in a form
-- that changes nothing. Only RPUSH has no such form: it is tried only if its key can be deleted.

local key, missing = ARGV[1], {}

local function allowed(...)
  local answer = redis.pcall(...)
  local message = type(answer) == 'table' and answer.err
  if not message or not (string.find(message, 'no permissions to run') or string.find(message, "can't run this command")) then
    return true
  end
  missing[#missing + 1] = (...)
  return false
end

allowed('TIME')
allowed('GET', key)
allowed('SET', key, '', 'XX')
allowed('HGET', key, 'f')
allowed('HMGET', key, 'f')
-- A field without a value: refused by the command itself, which runs after permissions are checked.
allowed('HSET', key, 'f', 'v', 'f')
allowed('HDEL', key, 'f')
allowed('ZADD', key, 'XX', '0', 'm')
allowed('ZREM', key, 'm')
allowed('ZRANGEBYLEX', key, '-', '+')
allowed('ZREVRANGEBYLEX', key, '+', '-')
allowed('ZRANGEBYSCORE', key, '0', '0')
allowed('ZREVRANGEBYSCORE', key, '0', '0')
allowed('LLEN', key)
allowed('LRANGE', key, '0', '0')
allowed('UNLINK', key)
if allowed('DEL', key) then
  allowed('RPUSH', key, 'e')
  redis.pcall('DEL', key)
end
return missing
