-- concurrency: the twin of internal/bucket/holders.go. See script.go for the lines
-- "--> name".
--> ask
local KIND, TURN = 4, 100000
life = LIFE / 4 / 1e6
local agent, seq, in_use, holding, waited = unpack('<ddddd', arg, p)
bare, flows, fill = keep == in_use and give == 0, false, 0.5
local raw = call('GET', key)
local all, own, others, found = {0}, nil, 0, 0

if raw then
  local kind, size, q
  if #raw >= 45 then kind, size = unpack('<BI4', raw) end
  local rest = kind == KIND and #raw - (45 + 56 * size)
  if rest ~= 0 and rest ~= 8 then
    error({err = 'FOREIGN value'})
  end
  at, born, demand, hosts, granted, q = unpack('<ddddd', raw, 6)
  if rest == 8 then ahead = unpack('<d', raw, #raw - 7) end
  ahead = max(ahead, at - time)
  now = time + ahead
  for _ = 1, size do
    local a, s, v, e, heard, unmet, from
    a, s, v, e, heard, unmet, from, q = unpack('<ddddddd', raw, q)
    if e > now and reset == 0 then
      found = found + 1
      all[found] = {a, s, v, e, heard, unmet, from}
    end
  end
end

if reset == 1 then born = max(now, born + 1) end
local void = reset == 0 and keep > 0 and epoch < born
local kept = keep
if void or reset == 1 then kept = 0 end
born = max(born, epoch)
--> estimate

for i = 1, found do
  if all[i][1] == agent then own = all[i] else others = others + all[i][3] end
end
if not own then
  found = found + 1
  own = {agent, 0, 0, 0, 0, 0, 0}
  all[found] = own
end

local reply
if own[2] < seq then
  local before, from = 0, now - floor(waited * 1e6)
  for i = 1, found do
    local h = all[i]
    if h[6] > 0 and h[7] < from and now - h[5] < TURN and h[1] ~= agent then before = before + h[6] end
  end
  local level = count[1] - others - kept - before
  if level < 0 or before > 0 then life = 0 end
  local spare = max(0, kept - in_use)
  --> grant
  local ends = LIFE
  if kept + permits > 0 then ends = LIFE + max(period[1], floor(holding * 1e6)) end
  own[2], own[3], own[4], own[5] = seq, kept + permits, now + ends, now
  own[6], own[7] = need, from
  if permits >= need then own[6] = 0 end
  local flags = (void and 1 or 0) + (scarce and 2 or 0) + (others >= 1 and 4 or 0)
  reply = pack('<ddddddddddddddd', permits, 0, born, 0, flags, horizon, interval, hosts, granted, life, 0,
    count[1] - others - own[3], max(1, need), 0, 0)
else
  reply = pack('<ddddddddddddddd', 0, 0, born, 0, 3 + (others >= 1 and 4 or 0), 0, 0, hosts, granted, life, 0,
    count[1] - others - own[3], max(1, need), 0, 0)
end

local state, longest = {pack('<BI4ddddd', KIND, found, now, born, demand, hosts, granted)}, LIFE + period[1]
for i = 1, found do
  local h = all[i]
  state[i + 1] = pack('<ddddddd', h[1], h[2], h[3], h[4], h[5], h[6], h[7])
  longest = max(longest, h[4] - now)
end
if ahead > 0 then state[found + 2] = pack('<d', ahead) end
call('SET', key, table.concat(state), 'PX', ceil(longest / 1000 + 5000))
return reply
