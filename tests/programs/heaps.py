"""Writes pages of the heaps of real programs to the file named by the argument, for crates/store/benches/pool.rs.

Each program that is installed fills its memory and is stopped; what is in RAM of its private writable memory is read through /proc/PID/mem.
The file has for each program a page that begins with the line "outpage-heap NAME PAGES", then its pages, some spread over all of them.

    heaps.py FILE [PAGES]    PAGES: most of each program, 4000 unless said.
"""

import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

PAGE = 4096
# Seconds until a program says that it is ready, or has as much memory as it gets.
PATIENCE = 60

PERL = r"""
my (%words, @list); $| = 1;
for my $i (0 .. 250000) { $words{"key $i " . ($i * 7919 % 104729)} = "value of $i"; push @list, [$i, $i * 1.5] if $i % 4 == 0 }
print "ready\n"; sleep 600;
"""

AWK = r"""
BEGIN {
    for (i = 0; i < 250000; i++) { n = i * 7919 % 104729; count[n]++; name[i] = "line " i " of field " n }
    print "ready"; fflush(); while ((getline line) > 0) ;
}
"""

PYTHON = r"""
import random, time
r = random.Random(1)
people = {f"user{i}": {"id": i, "score": r.random(), "tags": [f"t{r.randrange(50)}" for _ in range(4)]} for i in range(100000)}
print("ready", flush=True); time.sleep(600)
"""

NODE = r"""
const all = new Map();
for (let i = 0; i < 200000; i++) all.set('user' + i, {id: i, score: Math.sqrt(i), tags: ['t' + i % 50, 't' + i % 7], name: 'name of ' + i});
console.log('ready'); setTimeout(() => console.log(all.size), 600000);
"""

SQL = r"""
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer TEXT, city TEXT, total REAL, note TEXT);
CREATE INDEX by_customer ON orders(customer);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000)
INSERT INTO orders SELECT i, 'customer ' || (i * 7919 % 50021), 'city ' || (i % 311), i * 0.37, 'order ' || i || ' was placed by telephone' FROM n;
SELECT 'ready';
"""

CXX = r"""
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>
template <int N> struct many {
    std::map<std::string, std::vector<int>> table;
    int run(const std::string &text) {
        std::regex words("[a-z]+" + std::to_string(N));
        for (std::sregex_iterator i(text.begin(), text.end(), words), end; i != end; ++i) table[i->str()].push_back(N);
        return many<N - 1>().run(text) + table.size();
    }
};
template <> struct many<0> { int run(const std::string &) { return 0; } };
int main(int argc, char **argv) { return many<250>().run(argv[0]); }
"""

JAVA = r"""
import java.util.*;
class Heap {
    public static void main(String[] args) throws Exception {
        Map<String, List<Object>> all = new HashMap<>();
        for (int i = 0; i < 200000; i++) all.put("user" + i, new ArrayList<>(List.of(i, Math.sqrt(i), "name of " + i)));
        System.out.println("ready"); System.out.flush(); Thread.sleep(600000); System.out.println(all.size());
    }
}
"""


def programs(folder):
    """Name, command, what it is told on its standard input, and the MiB of RAM at which one that says nothing is stopped."""

    def path(name, text):
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
        return os.path.join(folder, name)

    yield "perl", ["perl", path("fill.pl", PERL)], "", None
    yield "awk", ["awk", AWK], "", None
    yield "python", [sys.executable, path("fill.py", PYTHON)], "", None
    yield "node", ["node", path("fill.js", NODE)], "", None
    yield "sqlite", ["sqlite3", ":memory:"], SQL, None
    yield "java", ["java", "-Xmx256m", path("Heap.java", JAVA)], "", None
    if shutil.which("g++"):
        compiler, target = (
            subprocess.run(["g++", what], capture_output=True, text=True).stdout.strip()
            for what in ("-print-prog-name=cc1plus", "-print-multiarch")
        )
        yield "g++", [compiler, "-quiet", "-imultiarch", target, "-O2", path("many.cc", CXX), "-o", "/dev/null"], "", 150


def resident_mib(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * PAGE >> 20


def wait_until_full(child, mib):
    if mib is None:
        return child.stdout.readline().strip() == "ready"
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and child.poll() is None:
        if resident_mib(child.pid) >= mib:
            return True
        time.sleep(0.01)
    return False


def resident_pages(pid):
    """Addresses of the pages in RAM of private writable memory without a file."""
    addresses = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
        for line in maps:
            fields = line.split()
            name = fields[5] if len(fields) > 5 else ""
            if not fields[1].startswith("rw") or fields[1][3] != "p" or name.startswith("/"):
                continue
            start, end = (int(part, 16) for part in fields[0].split("-"))
            for at in range(start, end, 1 << 30):
                pages = (min(end, at + (1 << 30)) - at) // PAGE
                entries = os.pread(pagemap.fileno(), pages * 8, at // PAGE * 8)
                # Bit 63: the page is in RAM (pagemap in the kernel's documentation).
                addresses += [at + i * PAGE for i, (entry,) in enumerate(struct.iter_unpack("Q", entries)) if entry >> 63]
    return addresses


def heap_of(command, text, mib, most):
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        child.stdin.write(text)
        child.stdin.flush()
        if not wait_until_full(child, mib):
            return []
        os.kill(child.pid, signal.SIGSTOP)
        addresses = resident_pages(child.pid)
        count = min(most, len(addresses))
        with open(f"/proc/{child.pid}/mem", "rb", buffering=0) as memory:
            pages = [os.pread(memory.fileno(), PAGE, addresses[i * len(addresses) // count]) for i in range(count)]
        return [page for page in pages if len(page) == PAGE]
    finally:
        child.kill()
        child.wait()


def main():
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    most = int(sys.argv[2]) if len(sys.argv) > 2 else 4000
    with tempfile.TemporaryDirectory() as folder, open(sys.argv[1], "wb") as out:
        for name, command, text, mib in programs(folder):
            pages = heap_of(command, text, mib, most) if shutil.which(command[0]) else []
            if not pages:
                print(f"{name}: not installed, or it did not get ready", file=sys.stderr)
                continue
            out.write(f"outpage-heap {name} {len(pages)}\n".encode().ljust(PAGE, b"\0"))
            out.writelines(pages)
            print(f"{name}: {len(pages)} pages")


if __name__ == "__main__":
    main()
