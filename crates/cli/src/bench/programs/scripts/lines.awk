# n lines of a few words, each line several times.
BEGIN {
    x = 1
    for (i = 0; i < n; i++) {
        x = (x * 69069 + 12345) % 4294967296
        k = int(x / 4294967296 * n / 3)
        printf "%x line %d of the file, with words %d\n", k * 40503 % 16777216, k, k % 97
    }
}
