-- One call answers for many buckets: ARGV[i] is the ask of KEYS[i], packed (see
-- codec.go), and element i of what comes back is its reply, packed. A key that cannot
-- be used fails alone: its element is an array of one string, the error. (Not an error
-- reply: in an array that holds one of a kind it knows, as OOM, go-redis 9.23 stops
-- reading, and takes the rest for the replies to later commands.)
-- Without keys nothing is done: so EVAL can load the script.
if #KEYS == 0 then return {} end
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local pack, unpack, call = struct.pack, struct.unpack, redis.call
local clock = redis.call('TIME')
local time = clock[1] * 1000000 + clock[2]

local function answer(key, arg)
  --> answer
end

local replies, failed, failure = {0}, 0, nil
for i = 1, #KEYS do
  local ran, reply = pcall(answer, KEYS[i], ARGV[i])
  if not ran then -- what is raised is a table, or before Redis 7 a string
    local text = string.gsub(type(reply) == 'table' and reply.err or reply, '[\r\n].*', '')
    reply, failure = {text}, failure or text
    if text == failure then failed = failed + 1 end
  end
  replies[i] = reply
end
if failed == #KEYS then return {err = failure} end -- all alike: Redis refuses, no key
return replies
