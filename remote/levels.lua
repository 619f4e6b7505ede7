-- token_bucket, leaky_bucket, fixed_window: the twin of internal/bucket/level.go.
local FORMAT = 1
local refilled
refilled, borrow, paced, patience = unpack('<dddd', arg, p)
local EVENLY, AT_ONCE, WINDOWED, RESTARTS = 0, 1, 2, 3
local level, tick, was = {}, {}, {}
local raw = redis.call('GET', KEYS[1])

for i = 1, n do
  pace = max(pace, period[i] / (count[i] * 1e6))
  if refilled >= WINDOWED then count[i] = burst[i] end
end

local function read(had, q)
  if #raw ~= q - 1 + 24 * had then return false end
  for i = 1, had do
    level[i], tick[i], was[i], q = unpack('<ddd', raw, q)
  end
  return true
end

local function begin()
  for i = 1, n do
    level[i], tick[i] = burst[i], now
    if refilled == WINDOWED then tick[i] = now - now % period[i] end
  end
end

local function reshape(had)
  if had ~= n then
    local used = 0
    for i = 1, had do used = max(used, was[i] - level[i]) end
    for i = 1, n do level[i], tick[i] = burst[i] - used, tick[1] end
  end
  for i = 1, n do level[i] = min(level[i], burst[i] - out) end
end

local function refill_one(i)
  local l, ceiling = level[i], burst[i] - out
  if refilled == WINDOWED then
    local start = now - now % period[i]
    if start <= tick[i] then return false end
    level[i], tick[i] = burst[i], start
    return true
  elseif refilled == RESTARTS then
    local ended = now - tick[i] >= period[i]
    if ended then level[i] = burst[i] end
    if level[i] >= burst[i] then tick[i] = now end
    return ended
  end
  local add, to = (now - tick[i]) * count[i] / period[i], now
  if refilled == AT_ONCE then
    local ticks = floor((now - tick[i]) / period[i])
    add = ticks * count[i]
    if l < burst[i] then to = tick[i] + ticks * period[i] end
  end
  tick[i] = to
  if l < ceiling then level[i] = min(ceiling, l + add) end
  return false
end

local function renew()
  local ended = false
  for i = 1, n do
    if now > tick[i] and refill_one(i) then ended = true end
  end
  return ended
end

local function free()
  local least = level[1]
  for i = 2, n do least = min(least, level[i]) end
  return least
end

local function wait(i, want)
  local short = want - level[i]
  if short <= SLACK then return 0 end
  local w = short * period[i] / count[i]
  if refilled ~= EVENLY then w = ceil((short - SLACK) / count[i]) * period[i] end
  return max(0, ceil(min(w, 1e17)) - (now - tick[i]))
end

local function prospects(held)
  if refilled >= WINDOWED then
    local left = LIFE
    for i = 1, n do left = min(left, tick[i] + period[i] - now) end
    life = left / 1e6
  end
  if paced == 1 then
    local full = 0
    for i = 1, n do full = max(full, wait(i, burst[i] - held)) end
    delay = full / 1e6
  end
end

local function add(permits)
  for i = 1, n do level[i] = level[i] + permits end
end

local function use(permits) add(-permits) end
local function lend(permits) add(-permits) end
local function take_back(permits) add(permits) end
local function spent() end

local function pay(permits)
  for i = 1, n do level[i] = max(min(level[i], 0), level[i] - permits) end
end

local function take_refund(permits)
  for i = 1, n do level[i] = max(level[i], min(level[i] + permits, burst[i] - out)) end
end

-- forgotten once it would be full anyway and nothing is outstanding
local function write(state, slots)
  local full, outlook = 0, ''
  state = state .. slots
  for i = 1, n do
    full = max(full, (burst[i] - level[i]) * period[i] / count[i])
    if refilled ~= EVENLY then full = full + period[i] end
    state = state .. pack('<ddd', level[i], tick[i], burst[i])
    outlook = outlook .. pack('<dd', level[i], tick[i] - now)
  end
  local forget = min(full / 1000, 3e11) + LIFE / 1000 + 5000
  redis.call('SET', KEYS[1], state, 'PX', string.format('%.0f', forget))
  return outlook
end
