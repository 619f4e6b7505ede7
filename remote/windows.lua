-- sliding_window: the twin of internal/bucket/slide.go, a list of marks a limit.

--- setup
local KIND = 2
local age, parts = unpack('<dd', arg, p)
local part, marks, sum = {0}, {0}, {0}
for i = 1, n do part[i] = floor((period[i] + parts - 1) / parts) end

local function forget(i)
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

local function mark(t, permits)
  if permits <= 0 then return end
  for i = 1, n do
    local list, from = marks[i], t - t % part[i]
    local last = list[#list]
    sum[i] = sum[i] + permits
    if last and last[1] >= from then
      last[2] = last[2] + permits
    else
      list[#list + 1] = {from, permits}
    end
    forget(i)
  end
end

local function used(i)
  local u, list = sum[i], marks[i]
  for j = 1, #list do
    local over = now - list[j][1] - period[i]
    if over <= 0 then break end
    u = u - list[j][2] * over / part[i]
  end
  return u
end

local function free_with(held)
  local free = math.huge
  for i = 1, n do free = min(free, burst[i] - held - used(i)) end
  return free
end

local function wait(i, short)
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
  return last and max(1, last[1] + period[i] + part[i] - now) or 0
end
local raw = call('GET', key)

--- read
for i = 1, well and had or 0 do
  local size, list, total = 0, {}, 0
  if well and #raw > q then size, q = unpack('<H', raw, q) else well = false end
  well = well and #raw >= q - 1 + 12 * size
  local flat = well and {unpack('<' .. string.rep('dI4', size), raw, q)} or {}
  for j = 1, well and size or 0 do
    list[j] = {flat[2 * j - 1], flat[2 * j]}
    total = total + flat[2 * j]
  end
  q = flat[2 * size + 1] or q
  marks[i], sum[i] = list, total
end
local rest = well and #raw - (q - 1 + 16 * slotted)
well = rest == 0 or rest == 8

--- realign

--- begin
for i = 1, n do marks[i], sum[i] = {}, 0 end

--- reshape
if had ~= n then
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

--- refill
for i = 1, n do forget(i) end

--- lapsed
mark(s[1] * WIDTH, s[2])

--- settle
if debit > 0 then mark(now, min(debit, max(0, floor(free_with(out))))) end
if refund > 0 then
  for i = 1, n do
    local list, back, j = marks[i], refund, 1
    while list[j] and now > list[j][1] + period[i] do j = j + 1 end
    while back > 0 and list[j] do
      local m = min(back, list[j][2])
      list[j][2], sum[i], back = list[j][2] - m, sum[i] - m, back - m
      if list[j][2] == 0 then table.remove(list, j) end
    end
  end
end

--- returned
mark(max(0, now - floor(age * 1e6)), recorded - keep - give)

--- prospects
level = free_with(out + keep)

--- use
mark(now, direct)

--- write
local soon, full, longest, want, left = 0, 0, 0, max(1, need), math.huge
local packed = {pack('<BBBdddddd', KIND, n, slotted, now, born, out, demand, hosts, granted)}
for i = 1, n do
  local list, u = marks[i], used(i)
  local short = min(want, burst[i]) - (burst[i] - out - u)
  left = min(left, burst[i] - out - u)
  if short > u + SLACK then
    soon = max(soon, period[i] + part[i])
  elseif short > SLACK then
    soon = max(soon, wait(i, short))
  end
  if #list > 0 then full = max(full, list[#list][1] + period[i] + part[i] - now) end
  longest = max(longest, period[i] + part[i])
  packed[#packed + 1] = pack('<H', #list)
  for j = 1, #list do packed[#packed + 1] = pack('<dI4', list[j][1], list[j][2]) end
end
state = table.concat(packed)
reply = pack('<ddddddddddddddd', permits, direct, born, ends, flags, horizon, interval, hosts, granted, life, delay,
  left, want, soon, full)

--- store
call('SET', key, state, 'PX', ceil((longest + LIFE) / 1000 + 5000))
