-- sliding_window: the twin of internal/bucket/slide.go, a list of marks a limit.
local FORMAT = 2
local parts
age, parts = unpack('<dd', arg, p)
local part, marks, sum = {}, {}, {}
local raw = redis.call('GET', KEYS[1])

for i = 1, n do part[i] = floor((period[i] + parts - 1) / parts) end

local function read(had, q)
  for i = 1, had do
    if #raw < q + 1 then return false end
    local size
    size, q = unpack('<H', raw, q)
    if #raw < q - 1 + 12 * size then return false end
    local list, total = {}, 0
    for j = 1, size do
      local t, m
      t, m, q = unpack('<dI4', raw, q)
      list[j] = {t, m}
      total = total + m
    end
    marks[i], sum[i] = list, total
  end
  return #raw == q - 1
end

local function begin()
  for i = 1, n do marks[i], sum[i] = {}, 0 end
end

local function reshape(had)
  if had == n then return end
  local most = 1
  for i = 2, had do
    if sum[i] > sum[most] then most = i end
  end
  local list, total = marks[most], sum[most]
  for i = 1, n do
    local copy = {}
    for j = 1, #list do copy[j] = {list[j][1], list[j][2]} end
    marks[i], sum[i] = copy, total
  end
end

local function renew()
  for i = 1, n do
    local list, gone = marks[i], 0
    while gone < #list and now >= list[gone + 1][1] + period[i] + part[i] do
      gone = gone + 1
      sum[i] = sum[i] - list[gone][2]
    end
    if gone > 0 then
      local left = {}
      for j = gone + 1, #list do left[j - gone] = list[j] end
      marks[i] = left
    end
  end
  return false
end

local function used(i)
  local u = sum[i]
  for _, m in ipairs(marks[i]) do
    local over = now - m[1] - period[i]
    if over <= 0 then break end
    u = u - m[2] * over / part[i]
  end
  return u
end

local function free(held)
  local least = math.huge
  for i = 1, n do least = min(least, burst[i] - held - used(i)) end
  return least
end

local function prospects() end

local function mark(t, permits)
  if permits <= 0 then return end
  for i = 1, n do
    local list, from = marks[i], t - t % part[i]
    sum[i] = sum[i] + permits
    local last = list[#list]
    if last and last[1] >= from then
      last[2] = last[2] + permits
    else
      list[#list + 1] = {from, permits}
    end
  end
  renew()
end

local function use(permits) mark(now, permits) end
local function lend() end
local function take_back() end
local function spent(t, permits) mark(t, permits) end
local function pay(permits) mark(now, min(permits, max(0, floor(free(out))))) end

local function take_refund(permits)
  for i = 1, n do
    local list, back = marks[i], permits
    while back > 0 and #list > 0 do
      local last = list[#list]
      local m = min(back, last[2])
      last[2], sum[i], back = last[2] - m, sum[i] - m, back - m
      if last[2] == 0 then list[#list] = nil end
    end
  end
end

local function wait_one(i, short)
  for _, m in ipairs(marks[i]) do
    local left, from = m[2], m[1] + period[i]
    local over = now - from
    if over > 0 then
      left = left - m[2] * over / part[i]
      from = now
    end
    if short <= left + SLACK then
      local fade = 0
      if m[2] > 0 then
        fade = min(short / m[2] * part[i], m[1] + period[i] + part[i] - from)
      end
      return max(1, from - now + ceil(fade))
    end
    short = short - left
  end
  local last = marks[i][#marks[i]]
  if last then return max(1, last[1] + period[i] + part[i] - now) end
  return 0
end

local function wait(held, want)
  local longest = 0
  for i = 1, n do
    local u = used(i)
    local short = min(want, burst[i]) - (burst[i] - held - u)
    if short > u + SLACK then
      longest = max(longest, period[i] + part[i])
    elseif short > SLACK then
      longest = max(longest, wait_one(i, short))
    end
  end
  return longest
end

local function write(state, slots)
  local full, longest = 0, 0
  state = state .. slots
  for i = 1, n do
    local list = marks[i]
    state = state .. pack('<H', #list)
    for j = 1, #list do state = state .. pack('<dI4', list[j][1], list[j][2]) end
    if #list > 0 then full = max(full, list[#list][1] + period[i] + part[i] - now) end
    longest = max(longest, period[i] + part[i])
  end
  redis.call('SET', KEYS[1], state, 'PX', string.format('%.0f', (longest + LIFE) / 1000 + 5000))
  local want = max(1, need)
  return pack('<dddd', free(out), want, wait(out, want), full)
end
