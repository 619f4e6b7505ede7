-- The authority of one bucket: the twin of internal/bucket/state.go, whose
-- comments say why. Each line of arithmetic stands there too, in the same order.
-- KEYS[1] the bucket; ARGV[1] the ask and the rule, packed (see remote/codec.go).
local LIFE, WIDTH, SLACK = 2000000, 500000, 1e-6
local floor, max, min = math.floor, math.max, math.min
local pack, unpack = struct.pack, struct.unpack

local arg = ARGV[1]
local reset, debit, refund, epoch, slot, recorded, keep, give, queued, need, unit,
  lease, rate, seen, lead, arrived, since, n, p = unpack('<dddddddddddddddddd', arg)
local count, period, burst, ticking = {}, {}, {}, {}
local fill = 1e300
for i = 1, n do
  count[i], period[i], burst[i], ticking[i], p = unpack('<dddd', arg, p)
  fill = min(fill, burst[i] * period[i] / (count[i] * 1e6))
end

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

-- read
local raw = redis.call('GET', KEYS[1])
local at, born, out, demand, hosts, granted = now, 0, 0, 0, 0, 0
local level, tick, slots, had, slotted = {}, {}, {}, 0, 0
local used = 0
if raw then
  local version
  if #raw >= 51 then version, had, slotted = unpack('<BBB', raw) end
  if version ~= 1 or #raw ~= 51 + 24 * had + 16 * slotted then
    return redis.error_reply('FOREIGN value under ' .. KEYS[1])
  end
  at, born, out, demand, hosts, granted, p = unpack('<dddddd', raw, 4)
  for i = 1, had do
    local was
    level[i], tick[i], was, p = unpack('<ddd', raw, p)
    used = max(used, was - level[i])
  end
  for i = 1, slotted do
    local e, v
    e, v, p = unpack('<dd', raw, p)
    slots[i] = {e, v}
  end
  now = max(now, at)
end

-- begin
if had == 0 or reset == 1 then
  at, born, out, demand, hosts, granted = now, max(now, born + 1), 0, 0, 0, 0
  slots, slotted = {}, 0
  for i = 1, n do level[i], tick[i] = burst[i], now end
elseif had ~= n then
  for i = 1, n do level[i], tick[i] = burst[i] - used, tick[1] end
end

-- refill
for i = 1, n do
  local l, ceiling = min(level[i], burst[i] - out), burst[i] - out
  if now > tick[i] then
    local add, to = (now - tick[i]) * count[i] / period[i], now
    if ticking[i] == 1 then
      local ticks = floor((now - tick[i]) / period[i])
      add = ticks * count[i]
      if l < burst[i] then to = tick[i] + ticks * period[i] end
    end
    tick[i] = to
    if l < ceiling then l = min(ceiling, l + add) end
  end
  level[i] = l
end

-- retire
local live, kept = {}, 0
local current = floor(now / WIDTH)
for i = 1, slotted do
  if slots[i][1] <= current then
    out = out - slots[i][2]
  else
    kept = kept + 1
    live[kept] = slots[i]
  end
end
slots, slotted = live, kept

-- settle
for i = 1, n do
  if debit > 0 then level[i] = max(min(level[i], 0), level[i] - debit) end
  if refund > 0 then level[i] = max(level[i], min(level[i] + refund, burst[i] - out)) end
end

-- report
local void = recorded > 0
if void and epoch == born then
  for i = 1, slotted do
    local s = slots[i]
    if s[1] == slot and s[2] >= recorded then
      s[2] = s[2] - recorded
      out = out - recorded
      for j = 1, n do level[j] = level[j] + give end
      granted = granted - give
      void = false
      break
    end
  end
end

-- estimate
local w = 1 / (1 + (now - at) / 1e6 / 0.5 / 256)
for _ = 1, 8 do w = w * w end
demand = demand * w + arrived / 0.5
hosts = hosts * w + min(since, 0.1) / 0.5

-- grant
local least = level[1]
for i = 2, n do least = min(least, level[i]) end
local interval
if fill < 0.02 then
  interval = max(0.0005, fill / 8)
else
  interval = max(min(max(fill / 50, 0.005), 0.1), min(hosts / 2000, fill / 4))
end
local free, wanted = floor(least + SLACK), max(demand, rate, 1e-9)
local bare = keep == 0 and give == 0
local served, short = need, false
if free >= queued then
  served, short = queued, free < need
elseif free < need then
  served, short = 0, true
elseif unit > 0 and bare then
  served = floor(free / unit) * unit
end
if void then keep = 0 end
local horizon = min(0.5, max(interval, (least - served) / (8 * wanted)))
local extra = 0
if lease == 1 and not short then
  extra = floor(min(floor(rate * (horizon + lead)) - keep, seen))
end
if not short then
  extra = max(0, min(max(extra, queued - served), free - served))
end
local permits = served + extra
local scarce = short or permits < queued or least / wanted < interval
local direct = 0
if bare then direct = served end
for i = 1, n do level[i] = level[i] - permits end
granted = granted + permits

-- record
local leased, ends = permits - direct + keep, 0
if leased > 0 then
  ends = floor((now + LIFE) / WIDTH) + 1
  out = out + leased
  if slotted > 0 and slots[slotted][1] == ends then
    slots[slotted][2] = slots[slotted][2] + leased
  else
    slotted = slotted + 1
    slots[slotted] = {ends, leased}
  end
end

-- write: forgotten once it would be full anyway and nothing is outstanding
local full = 0
local state = pack('<BBBdddddd', 1, n, slotted, now, born, out, demand, hosts, granted)
local flags = (void and 1 or 0) + (scarce and 2 or 0) + (out >= 1 and 4 or 0)
local reply = pack('<ddddddddd', permits, direct, born, ends, flags, horizon, interval, hosts, granted)
for i = 1, n do
  full = max(full, (burst[i] - level[i]) * period[i] / count[i] + period[i] * ticking[i])
  state = state .. pack('<ddd', level[i], tick[i], burst[i])
  reply = reply .. pack('<dd', level[i], tick[i] - now)
end
for i = 1, slotted do state = state .. pack('<dd', slots[i][1], slots[i][2]) end
local forget = min(full / 1000, 3e11) + LIFE / 1000 + 5000
redis.call('SET', KEYS[1], state, 'PX', string.format('%.0f', forget))
return reply
