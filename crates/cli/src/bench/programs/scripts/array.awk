# N entries of an array, then half as many look-ups out of order.
BEGIN {
    x = 1
    for (i = 0; i < n; i++) a["key" (i * 7919)] = "value " i
    for (i = 0; i < n / 2; i++) {
        x = (x * 69069 + 12345) % 4294967296
        sum += length(a["key" (int(x / 4294967296 * n) * 7919)]) + x % 7
    }
    printf "%d %d\n", n, sum
}
