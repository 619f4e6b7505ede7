-- sliding_log: the twin of internal/bucket/slide.go. All limits share one list of
-- marks, of which each counts those from its own first on. The list is never read as a
-- whole: it lies behind a head of fixed size, and grows at its end.

--- setup
local KIND, HEAD, SIZE = 3, 256, 12
local age = unpack('<d', arg, p)
local from, cut, used, total, latest = {0}, {0}, {0}, 0, 0 -- from: 1 is the oldest mark; cut: of it, taken back
local stamp, permits_of, stored, dirty, chunk = {}, {}, 0, {}, 8

local function offset(j) return HEAD + SIZE * (j - 1) end

local function get(j) -- who reads on gets more at a time
  if not stamp[j] then
    local first = j - (j - 1) % 8
    local bytes = call('GETRANGE', key, offset(first), offset(first + chunk) - 1)
    local flat = {unpack('<' .. string.rep('dI4', #bytes / SIZE), bytes)}
    for k = 0, #bytes / SIZE - 1 do
      if not stamp[first + k] then
        stamp[first + k], permits_of[first + k] = flat[2 * k + 1], flat[2 * k + 2]
      end
    end
    chunk = min(2 * chunk, 512)
  end
  return stamp[j], permits_of[j]
end

local function forget(i)
  while from[i] <= total do
    local t, m = get(from[i])
    if now < t + period[i] then break end
    used[i] = used[i] - (m - cut[i])
    from[i], cut[i] = from[i] + 1, 0
  end
end

local function mark(t, permits)
  if permits <= 0 then return end
  latest = max(t, latest)
  local all = total > 0
  for i = 1, n do
    used[i] = used[i] + permits
    all = all and from[i] <= total
  end
  if all and get(total) == latest then
    permits_of[total] = permits_of[total] + permits
  else
    total = total + 1
    stamp[total], permits_of[total] = latest, permits
  end
  dirty[total] = true
  for i = 1, n do forget(i) end
end

local function free_with(held)
  local free = math.huge
  for i = 1, n do free = min(free, burst[i] - held - used[i]) end
  return free
end

local function wait(i, short)
  short = short + cut[i]
  for j = from[i], total do
    local t, m = get(j)
    if short <= m + SLACK then return max(1, t + period[i] - now) end
    short = short - m
  end
  return 0
end
local raw = call('GETRANGE', key, 0, HEAD - 1)
if raw == '' then raw = false end

--- read
well = well and #raw == HEAD
if well then
  total, latest, q = unpack('<dd', raw, q)
  for i = 1, had do from[i], cut[i], used[i], q = unpack('<ddd', raw, q) end
  stored = total
  well = call('STRLEN', key) >= offset(total + 1)
end

--- realign

--- begin
total, stored, latest, stamp, permits_of = 0, 0, 0, {}, {}
for i = 1, n do from[i], cut[i], used[i] = 1, 0, 0 end

--- reshape
if had ~= n then
  local most = 1
  for i = 2, had do
    if used[i] > used[most] then most = i end
  end
  local first, off, sum = from[most], cut[most], used[most]
  for i = 1, n do from[i], cut[i], used[i] = first, off, sum end
end

--- refill
for i = 1, n do forget(i) end

--- lapsed
mark(s[1] * WIDTH, s[2])

--- settle
if debit > 0 then mark(now, min(debit, max(0, free_with(out)))) end
if refund > 0 then
  for i = 1, n do
    local back = refund
    while back > 0 and from[i] <= total do
      local _, n_of = get(from[i])
      local m = min(back, n_of - cut[i])
      back, used[i], cut[i] = back - m, used[i] - m, cut[i] + m
      if cut[i] == n_of then from[i], cut[i] = from[i] + 1, 0 end
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
local soon, full, longest, want, left = 0, 0, 0, max(1, need), free_with(out)
local oldest = total + 1
for i = 1, n do
  local short = min(want, burst[i]) - (burst[i] - out - used[i])
  if short > used[i] + SLACK then
    soon = max(soon, period[i])
  elseif short > SLACK then
    soon = max(soon, wait(i, short))
  end
  if from[i] <= total then full = max(full, get(total) + period[i] - now) end
  longest = max(longest, period[i])
  oldest = min(oldest, from[i])
end
if stored == 0 then call('SET', key, string.rep('\0', HEAD)) end
for j in pairs(dirty) do
  call('SETRANGE', key, offset(j), pack('<dI4', stamp[j], permits_of[j]))
end
if oldest > 64 and 2 * oldest > total then -- most marks count no more: they go
  call('SET', key, string.rep('\0', HEAD) .. call('GETRANGE', key, offset(oldest), offset(total + 1) - 1))
  for i = 1, n do from[i] = from[i] - oldest + 1 end
  total = total - oldest + 1
end
state = pack('<BBBdddddddd', KIND, n, slotted, now, born, out, demand, hosts, granted, total, latest)
for i = 1, n do state = state .. pack('<ddd', from[i], cut[i], used[i]) end
reply = pack('<ddddddddddddddd', permits, direct, born, ends, flags, horizon, interval, hosts, granted, life, delay,
  left, want, soon, full)

--- store
call('SETRANGE', key, 0, state .. string.rep('\0', HEAD - #state))
call('PEXPIRE', key, ceil((longest + LIFE) / 1000 + 5000))
