-- The authority of one bucket. Its parts are joined in this order (see script.go):
-- ask.lua, one of levels.lua, windows.lua and log.lua, and lease.lua; or ask.lua and
-- holders.lua. They are twins of the files of internal/bucket, whose comments say why:
-- each line of arithmetic stands there too, in the same order.
-- KEYS[1] the bucket; ARGV[1] the ask and the rule, packed (see codec.go).
local LIFE, WIDTH, SLACK = 2000000, 500000, 1e-6
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local pack, unpack = struct.pack, struct.unpack

local arg = ARGV[1]
local reset, debit, refund, epoch, slot, recorded, keep, give, queued, need, unit,
  lease, rate, seen, lead, arrived, since, n, p = unpack('<dddddddddddddddddd', arg)
local count, period, burst = {}, {}, {}
local fill = 1e300
for i = 1, n do
  count[i], period[i], burst[i], p = unpack('<ddd', arg, p)
  fill = min(fill, burst[i] * period[i] / (count[i] * 1e6))
end

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

-- The state all algorithms have.
local at, born, demand, hosts, granted = now, 0, 0, 0, 0

-- What some algorithms set.
local borrow, paced, patience, pace, delay, life = 0, 0, 0, 0, 0, LIFE / 1e6
local out, age = 0, 0
local bare = keep == 0 and give == 0

local function foreign()
  return redis.error_reply('FOREIGN value under ' .. KEYS[1])
end

local function estimate()
  local w = 1 / (1 + (now - at) / 1e6 / 0.5 / 256)
  for _ = 1, 8 do w = w * w end
  demand = demand * w + arrived / 0.5
  hosts = hosts * w + min(since, 0.1) / 0.5
  at = now
end

local function serve(free)
  local least = max(0, need - borrow)
  if paced == 1 then
    if delay > patience then return 0, true end
    free = min(free, unit * floor((patience - delay) / (max(unit, 1) * pace)) + need)
  end
  if free >= queued then return queued, free < least end
  if free < least then return 0, true end
  if unit > 0 and (bare or paced == 1) then
    local served = floor(free / unit) * unit
    if borrow > 0 and served < queued and free - served >= max(0, unit - borrow) then
      served = served + unit
    end
    return served, false
  end
  return need, false
end

local function share(level, kept)
  local interval
  if fill < 0.02 then
    interval = max(0.0005, fill / 8)
  else
    interval = max(min(max(fill / 50, 0.005), 0.1), min(hosts / 2000, fill / 4))
  end
  local free, wanted = floor(level + SLACK), max(demand, rate, 1e-9)
  local served, short = serve(free)
  local horizon = min(0.5, max(interval, (level - served) / (8 * wanted)))
  local extra = 0
  if lease == 1 and not short then
    extra = floor(min(floor(rate * min(horizon + lead, life)) - kept, seen))
  end
  if short or paced == 1 then
    extra = 0
  else
    extra = max(0, min(max(extra, queued - served), free - served))
  end
  local permits = served + extra
  granted = granted + permits
  return permits, served, short or permits < queued or level / wanted < interval, horizon, interval
end
