-- The authority of one bucket: the twin of internal/bucket/state.go. This is the
-- frame, which call.lua runs for each key; each line "--> name" stands for the section
-- of that name in ask.lua or in the file of the algorithm (levels.lua, windows.lua,
-- log.lua). See script.go.
--> ask
local out, slots, slotted, had = 0, {}, 0, 0
--> setup
if raw then
  local kind, q
  if #raw >= 51 then
    kind, had, slotted, at, born, out, demand, hosts, granted, q = unpack('<BBBdddddd', raw)
  end
  local well = kind == KIND and had >= 1 and had <= 4 and slotted <= 5
  --> read
  if not well then error({err = 'FOREIGN value'}) end
  for i = 1, slotted do
    local e, v
    e, v, q = unpack('<dd', raw, q)
    slots[i] = {e, v}
  end
  if #raw >= q + 7 then ahead = unpack('<d', raw, q) end -- kept once the clock stepped back
  --> realign
  ahead = max(ahead, at - time)
  now = time + ahead
end

-- begin
if had == 0 or reset == 1 then
  at, born, out, demand, hosts, granted = now, max(now, born + 1), 0, 0, 0, 0
  slots, slotted = {}, 0
  --> begin
else
  --> reshape
end

-- refill
local ended = false
--> refill
if ended then
  born, out, slots, slotted = max(now, born + 1), 0, {}, 0
end

-- retire
if slotted > 0 then
  local live, left = {}, 0
  local current = floor(now / WIDTH)
  for i = 1, slotted do
    local s = slots[i]
    if s[1] <= current then
      out = out - s[2]
      --> lapsed
    else
      left = left + 1
      live[left] = s
    end
  end
  slots, slotted = live, left
end

-- settle
--> settle

-- report
local void = recorded > 0
if void and epoch == born then
  for i = 1, slotted do
    local s = slots[i]
    if s[1] == slot and s[2] >= recorded then
      s[2] = s[2] - recorded
      out = out - recorded
      --> returned
      granted = granted - give
      void = false
      break
    end
  end
end

--> estimate

-- grant
if void then keep = 0 end
local kept, level = keep, 0
local spare = kept
--> prospects
--> grant
local direct = 0
if bare or paced == 1 then direct = served end
--> use

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

-- write: with few strings, since they are most of the cost
local flags = (void and 1 or 0) + (scarce and 2 or 0) + (out >= 1 and 4 or 0)
local state, reply
--> write
for i = 1, slotted do state = state .. pack('<dd', slots[i][1], slots[i][2]) end
if ahead > 0 then state = state .. pack('<d', ahead) end
--> store
return reply
