-- What all scripts have in common: the ask and the rule, the estimate of demand, and
-- how many permits are granted. The twin of internal/bucket/state.go.
-- key is the bucket, arg the ask and the rule, packed (see codec.go), time the clock.

--- ask
local LIFE, WIDTH, SLACK = 2000000, 500000, 1e-6
local reset, debit, refund, epoch, slot, recorded, keep, give, queued, need, unit,
  lease, rate, seen, lead, arrived, since, n, p = unpack('<dddddddddddddddddd', arg)
local count, period, burst = {0}, {0}, {0} -- with room for one: most rules have one limit
local fill = 1e300
for i = 1, n do
  count[i], period[i], burst[i], p = unpack('<ddd', arg, p)
  fill = min(fill, burst[i] * period[i] / (count[i] * 1e6))
end
local now = time
local at, ahead, born, demand, hosts, granted = now, 0, 0, 0, 0, 0
local borrow, paced, patience, pace, delay, life = 0, 0, 0, 0, 0, LIFE / 1e6
local bare, flows = keep == 0 and give == 0, true -- flows: permits come back by themselves

--- estimate
local w = 1 / (1 + (now - at) / 1e6 / 0.5 / 256)
w = w * w
w = w * w
w = w * w
w = w * w
w = w * w
w = w * w
w = w * w
w = w * w
demand = demand * w + arrived / 0.5
hosts = hosts * w + min(since, 0.5) / 0.5
at = now

--- grant
local interval
if fill < 0.02 then
  interval = max(0.0005, fill / 8)
else
  interval = max(min(max(fill / 50, 0.005), 0.1), min(hosts / 2000, fill / 4))
end
local free, wanted, least = floor(level + SLACK), max(demand, rate, 1e-9), max(0, need - borrow)
local served, short, late, room = need, false, false, free
if paced == 1 then
  late = delay > patience
  room = min(free, unit * floor((patience - delay) / (max(unit, 1) * pace)) + need)
end
if late then
  served, short = 0, true
elseif room >= queued then
  served, short = queued, room < least
elseif room < least then
  served, short = 0, true
elseif unit > 0 and (bare or paced == 1) then
  served = floor(room / unit) * unit
  if borrow > 0 and served < queued and room - served >= max(0, unit - borrow) then
    served = served + unit
  end
end
local horizon = min(0.5, max(interval, (level - served) / (8 * wanted)))
local extra = 0
if not short and paced == 0 then
  if lease == 1 then
    extra = floor(min(floor(rate * min(horizon + lead, life)) - spare, seen))
    if not flows then extra = min(extra, floor((free - served) / 8)) end
  end
  extra = max(0, min(max(extra, queued - served), free - served))
end
local permits = served + extra
local scarce = short or permits < queued or flows and level / wanted < interval and permits >= free
granted = granted + permits
