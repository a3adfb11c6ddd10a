// N objects in a map, then half as many look-ups out of order, each of which replaces what it finds.
const n = Number(process.argv[2]);
let x = 1, sum = 0;
const map = new Map();
for (let i = 0; i < n; i++) map.set("key" + i * 7919, { number: i, name: "object " + i, next: null });
for (let i = 0; i < n / 2; i++) {
  x = (x * 69069 + 12345) % 4294967296;
  const key = "key" + Math.floor((x / 4294967296) * n) * 7919;
  const found = map.get(key);
  sum += found.number + found.name.length;
  map.set(key, { number: found.number + 1, name: found.name, next: null });
}
console.log(map.size, sum);
