-- Checks keys against what the plan says of them, and acts on those that still hold: one step for the
-- server, so that nothing slips in between. The reply says how many keys were acted upon, and then of each
-- other one its position, what was found, and more of it.
--
-- KEYS: the keys; for `rename`, the key and its tombstone.
-- ARGV: the action, its three arguments, and then for each run of keys of which the same is expected their
--       number and seven fields: type, class, unit of size ('e', 'b', ''), smallest, largest, has a TTL
--       ('1', '0', ''), idle seconds.

-- Before 7.0, what a script asked of time may decide over writes only when its effects are replicated.
if redis.replicate_commands then redis.replicate_commands() end

local action, arg1, arg2, arg3 = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local length = {string = 'STRLEN', list = 'LLEN', set = 'SCARD', zset = 'ZCARD', hash = 'HLEN', stream = 'XLEN'}
local class_of = {
  int = 'block', embstr = 'block', raw = 'block', ziplist = 'block', listpack = 'block',
  listpackex = 'block', intset = 'block', quicklist = 'nodes', hashtable = 'table', skiplist = 'table',
  stream = 'tree',
}

local function ask(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then error(reply, 0) end
  return reply
end

local function changed(key, expected)
  local kind = ask('TYPE', key).ok
  if kind == 'none' then return {'gone'} end
  -- Before the length, which counts as a touch.
  if expected.idle then
    local idle = redis.pcall('OBJECT', 'IDLETIME', key)
    if type(idle) ~= 'number' then return {'idle', ''} end
    if idle < expected.idle then return {'idle', tostring(idle)} end
  end
  if kind ~= expected.kind then return {'type', kind} end
  if expected.class ~= '' then
    local encoding = ask('OBJECT', 'ENCODING', key)
    if class_of[encoding] ~= expected.class then return {'class', encoding} end
  end
  if expected.unit ~= '' then
    local size
    if expected.unit == 'e' then size = ask(length[kind], key) else size = ask('MEMORY', 'USAGE', key) end
    if not size then return {'gone'} end
    if size < expected.smallest or size > expected.largest then
      return {'size', string.format('%.0f', size)}
    end
  end
  if expected.ttl ~= '' then
    local ttl = ask('PTTL', key)
    if ttl == -2 then return {'gone'} end
    if (ttl ~= -1) ~= (expected.ttl == '1') then return {'ttl', ttl ~= -1 and '1' or '0'} end
  end
end

local act = {}

-- arg1: take the TTL off, so that expiry cannot free the tombstone at once.
function act.rename(key)
  if ask('RENAMENX', key, KEYS[2]) == 0 then return {'taken'} end
  -- Where PERSIST is refused, the tombstone keeps its TTL: it is renamed by now.
  if arg1 == '1' then redis.pcall('PERSIST', KEYS[2]) end
end

-- Adds members until the server counts the value as much work, and leaves it to the background.
-- arg1: a name that no member has; arg2: their number; arg3: bytes of a list's element, so that each gets
-- a node of its own.
function act.pad(key, expected)
  local kind = expected.kind
  local count = tonumber(arg2)
  local block = kind == 'list' and string.rep('.', tonumber(arg3))
  local added = 0
  local ok, why = pcall(function()
    for i = 1, count do
      if kind == 'list' then ask('RPUSH', key, block)
      elseif kind == 'set' then ask('SADD', key, arg1 .. i)
      elseif kind == 'zset' then ask('ZADD', key, 0, arg1 .. i)
      else ask('HSET', key, arg1 .. i, '') end
      added = i
    end
    ask('UNLINK', key)
  end)
  if ok then return end
  -- A key that is not to be deleted after all keeps nothing of ours.
  if kind == 'list' and added > 0 then redis.pcall('LTRIM', key, 0, -added - 1) end
  local remove = {set = 'SREM', zset = 'ZREM', hash = 'HDEL'}
  for i = 1, added do
    if remove[kind] then redis.pcall(remove[kind], key, arg1 .. i) end
  end
  error(why, 0)
end

-- arg1: the database of the key; arg2: an empty one.
function act.quarantine(key)
  ask('SELECT', arg2)
  local keys = ask('DBSIZE')
  -- On the empty database it does nothing, and says whether it is allowed.
  local allowed = keys == 0 and redis.pcall('FLUSHDB', 'ASYNC')
  redis.pcall('SELECT', arg1)
  if keys ~= 0 then return {'occupied', string.format('%.0f', keys)} end
  if type(allowed) == 'table' and allowed.err then error(allowed, 0) end
  if ask('MOVE', key, arg2) == 0 then return {'gone'} end
  ask('SELECT', arg2)
  local flushed = redis.pcall('FLUSHDB', 'ASYNC')
  redis.pcall('SELECT', arg1)
  if type(flushed) == 'table' and flushed.err then error(flushed, 0) end
end

-- arg1: milliseconds from now.
function act.expire(key) ask('PEXPIRE', key, arg1) end

function act.check() end

-- A command that takes many keys costs less than one for each.
local takes_many = {unlink = 'UNLINK', del = 'DEL'}

local left, confirmed = {}, {}

local function leave(position, ok, found)
  if not ok then found = {'error', type(found) == 'table' and found.err or tostring(found)} end
  left[#left + 1] = {position, found[1], found[2]}
end

local position = 0
for at = 5, #ARGV, 8 do
  local expected = {
    kind = ARGV[at + 1], class = ARGV[at + 2], unit = ARGV[at + 3], smallest = tonumber(ARGV[at + 4]),
    largest = tonumber(ARGV[at + 5]), ttl = ARGV[at + 6], idle = tonumber(ARGV[at + 7]),
  }
  for _ = 1, tonumber(ARGV[at]) do
    position = position + 1
    local ok, found = pcall(changed, KEYS[position], expected)
    if ok and not found then
      if takes_many[action] then
        confirmed[#confirmed + 1] = position
      else
        ok, found = pcall(act[action], KEYS[position], expected)
      end
    end
    if found then leave(position, ok, found) end
  end
end

if #confirmed > 0 then
  local names = {}
  for i = 1, #confirmed do names[i] = KEYS[confirmed[i]] end
  local done = redis.pcall(takes_many[action], unpack(names))
  -- Refused as a whole, for one that is closed to us, say.
  if type(done) == 'table' and done.err then
    for i = 1, #confirmed do
      local ok, why = pcall(ask, takes_many[action], names[i])
      if not ok then leave(confirmed[i], ok, why) end
    end
  end
end
table.insert(left, 1, position - #left)
return left
