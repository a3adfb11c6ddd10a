# N keys into a dictionary of small lists, then a quarter as many look-ups out of order.
import sys

n, x, total = int(sys.argv[1]), 1, 0
table = {f"key{i * 7919}": [i, str(i)] for i in range(n)}
for _ in range(n // 4):
    x = (x * 69069 + 12345) % 4294967296
    entry = table[f"key{x * n // 4294967296 * 7919}"]
    entry[0] += 1
    total += entry[0] + len(entry[1])
print(len(table), total)
