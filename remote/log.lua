-- sliding_log: the twin of internal/bucket/slide.go. All limits share one list of
-- marks, of which each counts those from its own first on. The list is never read as a
-- whole: it lies behind a head of fixed size, and grows at its end.
local FORMAT, HEAD, SIZE, CHUNK = 3, 208, 12, 64
age = unpack('<d', arg, p)
local from, used, total, latest = {}, {}, 0, 0 -- from: 1 is the oldest mark
local marks, stored, dirty = {}, 0, {}
local raw = redis.call('GETRANGE', KEYS[1], 0, HEAD - 1)
if raw == '' then raw = false end

local function offset(j) return HEAD + SIZE * (j - 1) end

local function get(j)
  if not marks[j] then
    local first = j - (j - 1) % CHUNK
    local bytes = redis.call('GETRANGE', KEYS[1], offset(first), offset(first + CHUNK) - 1)
    for k = 0, #bytes / SIZE - 1 do
      local t, m = unpack('<dI4', bytes, SIZE * k + 1)
      marks[first + k] = marks[first + k] or {t, m}
    end
  end
  return marks[j]
end

local function read(had, q)
  if #raw ~= HEAD then return false end
  total, latest, q = unpack('<dd', raw, q)
  for i = 1, had do from[i], used[i], q = unpack('<dd', raw, q) end
  stored = total
  return redis.call('STRLEN', KEYS[1]) >= offset(total + 1)
end

local function begin()
  total, stored, latest, marks = 0, 0, 0, {}
  for i = 1, n do from[i], used[i] = 1, 0 end
end

local function reshape(had)
  if had == n then return end
  local most = 1
  for i = 2, had do
    if used[i] > used[most] then most = i end
  end
  local first, sum = from[most], used[most]
  for i = 1, n do from[i], used[i] = first, sum end
end

local function renew()
  for i = 1, n do
    while from[i] <= total and now >= get(from[i])[1] + period[i] do
      used[i] = used[i] - get(from[i])[2]
      from[i] = from[i] + 1
    end
  end
  return false
end

local function free(held)
  local least = math.huge
  for i = 1, n do least = min(least, burst[i] - held - used[i]) end
  return least
end

local function prospects() end

local function mark(t, permits)
  if permits <= 0 then return end
  latest = max(t, latest)
  local all = total > 0
  for i = 1, n do
    used[i] = used[i] + permits
    all = all and from[i] <= total
  end
  if all and get(total)[1] == latest then
    marks[total][2] = marks[total][2] + permits
  else
    total = total + 1
    marks[total] = {latest, permits}
  end
  dirty[total] = true
  renew()
end

local function use(permits) mark(now, permits) end
local function lend() end
local function take_back() end
local function spent(t, permits) mark(t, permits) end
local function pay(permits) mark(now, min(permits, max(0, free(out)))) end

local function take_refund(permits)
  local oldest = total + 1
  for i = 1, n do oldest = min(oldest, from[i]) end
  while permits > 0 and total >= oldest do
    local last = get(total)
    local m = min(permits, last[2])
    permits, last[2] = permits - m, last[2] - m
    dirty[total] = true
    for i = 1, n do
      if from[i] <= total then used[i] = used[i] - m end
    end
    if last[2] == 0 then
      marks[total], dirty[total] = nil, nil
      total = total - 1
      for i = 1, n do from[i] = min(from[i], total + 1) end
    end
  end
end

local function wait_one(i, short)
  for j = from[i], total do
    local m = get(j)
    if short <= m[2] + SLACK then return max(1, m[1] + period[i] - now) end
    short = short - m[2]
  end
  return 0
end

local function wait(held, want)
  local longest = 0
  for i = 1, n do
    local short = min(want, burst[i]) - (burst[i] - held - used[i])
    if short > used[i] + SLACK then
      longest = max(longest, period[i])
    elseif short > SLACK then
      longest = max(longest, wait_one(i, short))
    end
  end
  return longest
end

-- The marks that no limit counts any more go once they are more than half of all.
local function store(head)
  local oldest = total + 1
  for i = 1, n do oldest = min(oldest, from[i]) end
  local gone = oldest - 1
  if gone > CHUNK and gone * 2 > total then
    redis.call('SET', KEYS[1], redis.call('GETRANGE', KEYS[1], offset(1) - HEAD, HEAD - 1)
      .. redis.call('GETRANGE', KEYS[1], offset(oldest), offset(total + 1) - 1))
    for i = 1, n do from[i] = from[i] - gone end
    total = total - gone
  end
  for i = 1, n do head = head .. pack('<dd', from[i], used[i]) end
  return head
end

local function write(state, slots)
  local full, longest = 0, 0
  for i = 1, n do
    if from[i] <= total then full = max(full, get(total)[1] + period[i] - now) end
    longest = max(longest, period[i])
  end
  local want = max(1, need)
  local outlook = pack('<dddd', free(out), want, wait(out, want), full)
  if stored == 0 then redis.call('SET', KEYS[1], string.rep('\0', HEAD)) end
  for j in pairs(dirty) do
    redis.call('SETRANGE', KEYS[1], offset(j), pack('<dI4', marks[j][1], marks[j][2]))
  end
  local rest = store('')
  local head = state .. slots .. pack('<dd', total, latest) .. rest
  redis.call('SETRANGE', KEYS[1], 0, head .. string.rep('\0', HEAD - #head))
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', (longest + LIFE) / 1000 + 5000))
  return outlook
end
