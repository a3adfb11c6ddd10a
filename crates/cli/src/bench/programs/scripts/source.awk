# A C file of n functions that call each other, with loops, switches and tables.
BEGIN {
    print "struct node { int key; struct node *next; double weight; char name[24]; };"
    for (i = 0; i < n; i++) {
        printf "int table_%d[] = {", i
        for (j = 0; j < 8; j++) printf "%d,", (i * 31 + j * 17) % 1009
        print "};"
        printf "int function_%d(struct node *a, int n) {\n  int sum = %d;\n", i, i
        printf "  for (int i = 0; i < n; i++) {\n    switch ((a[i].key + i) %% 7) {\n"
        for (j = 0; j < 7; j++)
            printf "    case %d: sum += a[i].key * %d + table_%d[i & 7]; a[i].weight *= %d.5; break;\n", j, i % 13 + j, i, j
        printf "    }\n    if (a[i].next) sum ^= a[i].next->key << %d;\n  }\n", i % 5
        if (i > 1) printf "  return sum > n ? function_%d(a, n / 2) + function_%d(a, n / 3) : sum;\n}\n", i - 1, int(i / 2)
        else print "  return sum;\n}"
    }
}
