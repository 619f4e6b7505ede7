-- token_bucket, leaky_bucket, fixed_window: the twin of internal/bucket/level.go.

--- setup
local KIND, EVENLY, AT_ONCE, WINDOWED = 1, 0, 1, 2
local how
how, borrow, paced, patience = unpack('<dddd', arg, p)
local level_of, tick, was = {0}, {0}, {0}
for i = 1, n do
  pace = max(pace, period[i] / (count[i] * 1e6))
  if how >= WINDOWED then count[i] = burst[i] end
end
local raw = call('GET', key)

--- read
local rest = well and #raw - (q - 1 + 24 * had + 16 * slotted)
well = rest == 0 or rest == 8
if well then
  for i = 1, had do level_of[i], tick[i], was[i], q = unpack('<ddd', raw, q) end
end

--- realign
if how == WINDOWED and time >= at then ahead = 0 end

--- begin
for i = 1, n do
  level_of[i], tick[i] = burst[i], now
  if how == WINDOWED then tick[i] = now - now % period[i] end
end

--- reshape
if had ~= n then
  local used = 0
  for i = 1, had do used = max(used, was[i] - level_of[i]) end
  for i = 1, n do level_of[i], tick[i] = burst[i] - used, tick[1] end
end
for i = 1, n do level_of[i] = min(level_of[i], burst[i] - out) end

--- refill
for i = 1, n do
  local l, since_tick = level_of[i], now - tick[i]
  if since_tick > 0 then
    if how == EVENLY then
      tick[i] = now
      if l < burst[i] - out then
        level_of[i] = min(burst[i] - out, l + since_tick * count[i] / period[i])
      end
    elseif how == AT_ONCE then
      local ticks = floor(since_tick / period[i])
      local filled = min(burst[i] - out, l + ticks * count[i])
      tick[i] = filled < burst[i] and tick[i] + ticks * period[i] or now
      if l < burst[i] - out then level_of[i] = filled end
    elseif how == WINDOWED then
      local start = now - now % period[i]
      if start > tick[i] then level_of[i], tick[i], ended = burst[i], start, true end
    else
      if since_tick >= period[i] then level_of[i], ended = burst[i], true end
      if level_of[i] >= burst[i] then tick[i] = now end
    end
  end
end

--- lapsed

--- settle
for i = 1, n do
  local l = level_of[i]
  if debit > 0 then l = max(min(l, 0), l - debit) end
  if refund > 0 then l = max(l, min(l + refund, burst[i] - out)) end
  level_of[i] = l
end

--- returned
for j = 1, n do level_of[j] = level_of[j] + give end

--- prospects
level = level_of[1]
for i = 2, n do level = min(level, level_of[i]) end
if how >= WINDOWED then
  local left = LIFE
  for i = 1, n do left = min(left, tick[i] + period[i] - now) end
  life = left / 1e6
end
if paced == 1 then
  local full = 0
  for i = 1, n do
    local lacks = burst[i] - (out + keep) - level_of[i]
    if lacks > SLACK then
      full = max(full, ceil(min(lacks * period[i] / count[i], 1e17)) - (now - tick[i]))
    end
  end
  delay = full / 1e6
end

--- use
for i = 1, n do level_of[i] = level_of[i] - permits end

--- write
local full = 0 -- forgotten once it would be full anyway and nothing is outstanding
for i = 1, n do
  local f = (burst[i] - level_of[i]) * period[i] / count[i]
  if how == AT_ONCE then f = f + period[i] end
  if how >= WINDOWED then f = tick[i] + period[i] - now end
  full = max(full, f)
end
state = pack('<BBBddddddddd', KIND, n, slotted, now, born, out, demand, hosts, granted, level_of[1], tick[1], burst[1])
reply = pack('<ddddddddddddd', permits, direct, born, ends, flags, horizon, interval, hosts, granted, life, delay,
  level_of[1], tick[1] - now)
for i = 2, n do
  state = state .. pack('<ddd', level_of[i], tick[i], burst[i])
  reply = reply .. pack('<dd', level_of[i], tick[i] - now)
end

--- store
local forget = min(full / 1000, 3e11) + LIFE / 1000 + 5000
call('SET', key, state, 'PX', ceil(forget))
