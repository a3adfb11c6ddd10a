-- N keys, then as many commands on them, low keys more often than high ones, every fourth one a write.
-- A cube of uniform numbers stands in for Zipf's law.
local n, x, sum = tonumber(ARGV[1]), 1, 0
for i = 0, n - 1 do redis.call("SET", "key" .. i, "value " .. i .. string.rep("abcdefgh", i % 12)) end
for i = 1, n do
  x = (x * 69069 + 12345) % 4294967296
  local u = x / 4294967296
  local key = "key" .. math.floor(n * u * u * u) * 7919 % n
  if i % 4 == 0 then
    redis.call("APPEND", key, "+")
  else
    sum = sum + #redis.call("GET", key)
  end
end
return redis.call("DBSIZE") .. " " .. sum
