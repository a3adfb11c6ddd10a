# N keys into a hash, then a quarter as many look-ups out of order.
n = ARGV[0].to_i
x = 1
sum = 0
table = {}
n.times { |i| table["key#{i * 7919}"] = [i, "value #{i}"] }
(n / 4).times do
  x = (x * 69069 + 12345) % 4294967296
  entry = table["key#{x * n / 4294967296 * 7919}"]
  entry[0] += 1
  sum += entry[0] + entry[1].length
end
puts "#{table.size} #{sum}"
