# N keys into a hash, then half as many look-ups out of order.
my ($n, $x, $sum) = ($ARGV[0], 1, 0);
my %h;
for my $i (0 .. $n - 1) { $h{"key" . $i * 7919} = "value $i of $n"; }
for (1 .. $n / 2) {
    $x = ($x * 69069 + 12345) % 4294967296;
    $sum += length($h{"key" . int($x / 4294967296 * $n) * 7919}) + $x % 7;
}
print scalar(keys %h), " $sum\n";
