-- N entries of a table, each a table, then half as many look-ups out of order.
local n, x, sum, count = tonumber(arg[1]), 1, 0, 0
n = math.floor(n)
local t = {}
for i = 0, n - 1 do t["key" .. i * 7919] = { number = i, name = "value " .. i } end
for _ = 1, n // 2 do
  x = (x * 69069 + 12345) % 4294967296
  local entry = t["key" .. (x * n // 4294967296) * 7919]
  entry.number = entry.number + 1
  sum = sum + entry.number + #entry.name
end
for _ in pairs(t) do count = count + 1 end
print(count, sum)
