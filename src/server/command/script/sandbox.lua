-- The world that scripts see. Called once with the host's functions; returns the environment of
-- scripts and the function that runs one. Nothing a script does here may outlive it, so all
-- tables it can reach are closed against writing.
local host = ...

local redis = {
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
    REDIS_VERSION = host.version,
}

-- `redis.call` and `redis.pcall` are put in by the host for each run. They are not Lua functions:
-- `return redis.call(..)` would be a tail call, and the line it fails on would be lost.

function redis.error_reply(text)
    if type(text) ~= 'string' then
        return { err = 'ERR wrong number or type of arguments' }
    end
    if string.sub(text, 1, 1) == '-' then text = string.sub(text, 2) end
    if not string.find(text, ' ', 1, true) then text = 'ERR ' .. text end
    return { err = text }
end

function redis.status_reply(text)
    if type(text) ~= 'string' then
        return { err = 'ERR wrong number or type of arguments' }
    end
    return { ok = text }
end

function redis.sha1hex(text)
    return host.sha1hex(tostring(text))
end

function redis.log() end
function redis.setresp() end
function redis.set_repl() end
function redis.breakpoint() return false end
function redis.debug() end
function redis.replicate_commands() return true end

-- Lua matches patterns by recursion in C, a call for each item: a pattern of a million items overflows the stack,
-- and the process ends. This length is far from that, and far beyond what anybody writes.
local PATTERN_MAX = 4096

-- In the table itself, which methods of strings are looked up in, too.
for _, name in ipairs({ 'find', 'match', 'gmatch', 'gsub' }) do
    local original = string[name]
    string[name] = function(text, pattern, ...)
        local plain = name == 'find' and select(2, ...)
        if type(pattern) == 'string' and #pattern > PATTERN_MAX and not plain then
            error('pattern too complex', 2)
        end
        return original(text, pattern, ...)
    end
end
getmetatable('').__metatable = false

local function closed(table)
    return setmetatable({}, {
        __index = table,
        __newindex = function() error('Attempt to modify a readonly table', 2) end,
        __metatable = false,
    })
end

-- What was raised reaches the script as its text, as in Redis.
local function unwrap(ok, err, ...)
    if not ok then
        if type(err) == 'table' and err.err ~= nil then return false, err.err end
        if type(err) == 'userdata' then return false, host.text(err) end
    end
    return ok, err, ...
end

local globals = {
    assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs, next = next,
    pairs = pairs, rawequal = rawequal, rawget = rawget, rawset = rawset, select = select,
    setmetatable = setmetatable, tonumber = tonumber, tostring = tostring, type = type,
    unpack = unpack, xpcall = xpcall, _VERSION = _VERSION,
    pcall = function(...) return unwrap(pcall(...)) end,
    string = closed(string), table = closed(table), math = closed(math),
    redis = closed(redis), server = closed(redis), bit = closed(host.bit), cjson = closed(host.cjson),
}

local environment = setmetatable({}, {
    __index = function(_, name)
        local value = globals[name]
        if value == nil then
            error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
        end
        return value
    end,
    __newindex = function() error('Attempt to modify a readonly table', 2) end,
    __metatable = false,
})
globals._G = environment

function globals.loadstring(text, name)
    -- Lua trusts compiled chunks to be what its compiler makes.
    if type(text) == 'string' and string.byte(text) == 27 then
        return nil, 'attempt to load a compiled chunk'
    end
    local chunk, err = loadstring(text, name)
    if chunk then setfenv(chunk, environment) end
    return chunk, err
end

local function run(script, keys, argv, locate)
    globals.KEYS, globals.ARGV = keys, argv
    return xpcall(script, locate)
end

return environment, run, redis
