"""What the server does atomically, in Lua. Each script looks at the target's own key first.

`KEYS[1]` is that key, `ARGV[1..4]` are pipeline, generation, epoch and step. A script answers `GONE` if the
target is not this pipeline's (any more), `FENCED` if a later driver has taken over, and `DONE` if this commit
or a later one is recorded; then it has changed nothing.
"""

from __future__ import annotations

_LOOK = """
local own = redis.call('HMGET', KEYS[1], 'pipeline', 'generation', 'epoch', 'step')
if own[1] ~= ARGV[1] then return 'GONE' end
if tonumber(own[2]) > tonumber(ARGV[2]) then return 'FENCED' end
local epoch, step = tonumber(ARGV[3]), tonumber(ARGV[4])
if own[3] then
  local last, at = tonumber(own[3]), tonumber(own[4])
  if last > epoch or (last == epoch and at >= step) then return 'DONE' end
end
"""

_VERSION = """
local function version(key, json)
  if json then
    local value = redis.call('GET', key)
    return value and tonumber(string.match(value, '^{"_sequence":(%d+)'))
  end
  return tonumber(redis.call('HGET', key, '_sequence') or nil)
end
"""

WRITE = (
    _VERSION
    + _LOOK
    + """
-- ARGV[5]: json or hash. Then of each row, whose key is the next of KEYS: its sequence, what is done with it,
-- how many texts follow, and these: fields and values (a hash), or the value (json).
-- put: the whole row. delete. some: only these fields, of a row that is there. lacks: the same, and it must
-- be there.
local json, at = ARGV[5] == 'json', 6
for number = 2, #KEYS do
  local key, sequence, act, count = KEYS[number], tonumber(ARGV[at]), ARGV[at + 1], tonumber(ARGV[at + 2])
  local held = version(key, json)
  if act == 'lacks' and not held then return 'LACKS ' .. ARGV[at] end
  if not held or held < sequence then
    if act == 'delete' then
      redis.call('DEL', key)
    elseif json then
      redis.call('SET', key, ARGV[at + 3])
    elseif act == 'put' then
      redis.call('DEL', key)
      redis.call('HSET', key, unpack(ARGV, at + 3, at + 2 + count))
    elseif held then
      for place = at + 3, at + 2 + count, 3 do
        if ARGV[place] == 'set' then
          redis.call('HSET', key, ARGV[place + 1], ARGV[place + 2])
        else
          redis.call('HDEL', key, ARGV[place + 1])
        end
      end
    end
  end
  at = at + 3 + count
end
return 'OK'
"""
)

DELETE = (
    _VERSION
    + _LOOK
    + """
-- ARGV[5]: json or hash. ARGV[6]: rows with a smaller sequence go; empty: all.
for number = 2, #KEYS do
  local held = version(KEYS[number], ARGV[5] == 'json')
  if ARGV[6] == '' or (held and held < tonumber(ARGV[6])) then redis.call('UNLINK', KEYS[number]) end
end
return 'OK'
"""
)

EVOLVE = (
    _LOOK
    + """
-- KEYS[2]: the set of keys that are still to be changed. The others are rows. ARGV[5]: json or hash. Of each
-- row: how many texts follow, and these, as for `put`.
local at = 6
for number = 3, #KEYS do
  local count = tonumber(ARGV[at])
  if redis.call('SREM', KEYS[2], KEYS[number]) == 1 then
    if ARGV[5] == 'json' then
      redis.call('SET', KEYS[number], ARGV[at + 1])
    else
      redis.call('DEL', KEYS[number])
      redis.call('HSET', KEYS[number], unpack(ARGV, at + 1, at + count))
    end
  end
  at = at + 1 + count
end
return 'OK'
"""
)

COMMIT = (
    _LOOK
    + """
-- More of ARGV: fields of the target's own key, and their values.
redis.call('HSET', KEYS[1], 'epoch', ARGV[3], 'step', ARGV[4], unpack(ARGV, 5))
redis.call('HDEL', KEYS[1], 'evolving')
return 'OK'
"""
)

FENCE = """
local own = redis.call('HMGET', KEYS[1], 'pipeline', 'generation')
if own[1] ~= ARGV[1] then return 'GONE' end
if tonumber(own[2]) > tonumber(ARGV[2]) then return 'FENCED' end
redis.call('HSET', KEYS[1], 'generation', ARGV[2])
return 'OK'
"""
