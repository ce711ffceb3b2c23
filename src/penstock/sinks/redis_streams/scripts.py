"""What the server does atomically, in Lua. `KEYS[1]` is the pipeline's own key, a hash.

Its fields: `generation` and `run` of the newest driver (`run`: a number for each that begins); `epoch`,
`step` and `note` of the newest commit; `open`, the epoch and step that is being written; and of this one,
for each table, how many messages are written.

A script answers `FENCED` if a later driver has taken over, `LOST` if the newest commit is not the one that
the driver knows, and `DONE` if this commit is recorded. It has changed nothing then.
"""

from __future__ import annotations

_LOOK = """
-- ARGV[1..4]: run, epoch and step that are written, and the newest commit before, as `epoch/step`.
local own = redis.call('HMGET', KEYS[1], 'run', 'epoch', 'step')
if own[1] and own[1] ~= ARGV[1] then return 'FENCED' end
local known = (own[2] or '0') .. '/' .. (own[3] or '0')
if known == ARGV[2] .. '/' .. ARGV[3] then return 'DONE' end
if known ~= ARGV[4] or not own[1] then return 'LOST' end
"""

WRITE = (
    _LOOK
    + """
-- ARGV[5]: length of streams; empty: no limit. Then of each message: which of KEYS its stream is, the field
-- of its table, its number among the table's messages in this epoch, its key and its value; `-` for one that
-- is not there, `=` before others.
local open = ARGV[2] .. '/' .. ARGV[3]
if redis.call('HGET', KEYS[1], 'open') ~= open then
  for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(name, 1, 2) == 'n:' then redis.call('HDEL', KEYS[1], name) end
  end
  redis.call('HSET', KEYS[1], 'open', open)
end
local written = {}
for at = 6, #ARGV, 5 do
  local stream, table, number = KEYS[tonumber(ARGV[at])], ARGV[at + 1], tonumber(ARGV[at + 2])
  local key, value = ARGV[at + 3], ARGV[at + 4]
  local count = written[table] or tonumber(redis.call('HGET', KEYS[1], table) or 0)
  if number > count then
    local call = {'XADD', stream}
    if ARGV[5] ~= '' then
      call[3], call[4], call[5] = 'MAXLEN', '~', ARGV[5]
    end
    call[#call + 1] = '*'
    if string.sub(key, 1, 1) == '=' then
      call[#call + 1], call[#call + 2] = 'key', string.sub(key, 2)
    end
    if string.sub(value, 1, 1) == '=' then
      call[#call + 1], call[#call + 2] = 'value', string.sub(value, 2)
    end
    redis.call(unpack(call))
    count = number
  end
  written[table] = count
end
for table, count in pairs(written) do redis.call('HSET', KEYS[1], table, count) end
return 'OK'
"""
)

COMMIT = (
    _LOOK
    + """
-- ARGV[5]: the note.
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(name, 1, 2) == 'n:' then redis.call('HDEL', KEYS[1], name) end
end
redis.call('HDEL', KEYS[1], 'open')
redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'step', ARGV[3], 'note', ARGV[5])
return 'OK'
"""
)

FENCE = """
-- ARGV[1], ARGV[2]: generation and run.
local own = tonumber(redis.call('HGET', KEYS[1], 'generation') or -1)
if own > tonumber(ARGV[1]) then return 'FENCED' end
redis.call('HSET', KEYS[1], 'generation', ARGV[1], 'run', ARGV[2])
return 'OK'
"""
