-- The lease rule: the twin of internal/bucket/state.go.
local slots, slotted, had = {}, 0, 0
if raw then
  local format, q
  if #raw >= 51 then format, had, slotted = unpack('<BBB', raw) end
  if format ~= FORMAT or #raw < 51 + 16 * slotted then return foreign() end
  at, born, out, demand, hosts, granted, q = unpack('<dddddd', raw, 4)
  for i = 1, slotted do
    local e, v
    e, v, q = unpack('<dd', raw, q)
    slots[i] = {e, v}
  end
  if had < 1 or had > 4 or not read(had, q) then return foreign() end
  now = max(now, at)
end

-- begin
if had == 0 or reset == 1 then
  at, born, out, demand, hosts, granted = now, max(now, born + 1), 0, 0, 0, 0
  slots, slotted = {}, 0
  begin()
else
  reshape(had)
end

-- refill
if renew() then
  born, out, slots, slotted = max(now, born + 1), 0, {}, 0
end

-- retire
local live, left = {}, 0
local current = floor(now / WIDTH)
for i = 1, slotted do
  if slots[i][1] <= current then
    out = out - slots[i][2]
    spent(slots[i][1] * WIDTH, slots[i][2])
  else
    left = left + 1
    live[left] = slots[i]
  end
end
slots, slotted = live, left

-- settle
if debit > 0 then pay(debit) end
if refund > 0 then take_refund(refund) end

-- report
local void = recorded > 0
if void and epoch == born then
  for i = 1, slotted do
    local s = slots[i]
    if s[1] == slot and s[2] >= recorded then
      s[2] = s[2] - recorded
      out = out - recorded
      take_back(give)
      spent(max(0, now - floor(age * 1e6)), recorded - keep - give)
      granted = granted - give
      void = false
      break
    end
  end
end

estimate()

-- grant
if void then keep = 0 end
prospects(out)
local permits, served, scarce, horizon, interval = share(free(out + keep), keep)
local direct = 0
if bare or paced == 1 then direct = served end
use(direct)
lend(permits - direct)

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

-- write
local flags = (void and 1 or 0) + (scarce and 2 or 0) + (out >= 1 and 4 or 0)
local ending = ''
for i = 1, slotted do ending = ending .. pack('<dd', slots[i][1], slots[i][2]) end
local outlook = write(pack('<BBBdddddd', FORMAT, n, slotted, now, born, out, demand, hosts, granted), ending)
return pack('<ddddddddddd', permits, direct, born, ends, flags, horizon, interval, hosts, granted, life, delay) .. outlook
