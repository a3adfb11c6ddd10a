# n variables and three clauses of three literals for each, drawn at random: easy to satisfy, but large.
function draw() {
    x = (x * 69069 + 12345) % 4294967296
    return x / 4294967296
}
BEGIN {
    x = 1
    print "p cnf", n, 3 * n
    for (i = 0; i < 3 * n; i++) {
        for (j = 0; j < 3; j++) {
            v = int(draw() * n) + 1
            printf "%d ", draw() < 0.5 ? v : -v
        }
        print 0
    }
}
