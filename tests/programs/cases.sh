# shellcheck shell=bash
# The programs: prepare_NAME makes inputs in $work/data, run_NAME runs the program behind ${wrap[@]} in
# an empty directory; its standard output and the files it leaves there are what is compared.
# Sourced by run.sh, traces.sh and services.sh, which set these:
# shellcheck disable=SC2154

ns2_demo=/usr/share/doc/ns2/examples/tcl/ex/wireless-pkt-demo.tcl

# $1 with full sizes, $2 with --quick.
size() {
    if [ "$quick" = 1 ]; then echo "$2"; else echo "$1"; fi
}

data() {
    mkdir -p "$work/data"
}

prepare_sort() {
    data
    awk -v n="$(size 10000000 1500000)" 'BEGIN { x = 1; for (i = 0; i < n; i++) {
        x = (x * 16807) % 2147483647; printf "%010d line %d of the file to be sorted\n", x, i } }' >"$work/data/lines"
}

run_sort() {
    LC_ALL=C "${wrap[@]}" sort -S 8G --parallel=2 -o sorted "$work/data/lines"
}

prepare_matrix() { :; }

run_matrix() {
    "${wrap[@]}" /usr/bin/python3 "$here/arrays.py" matrix "$(size 6000 2500)"
}

prepare_numpy() { :; }

run_numpy() {
    "${wrap[@]}" /usr/bin/python3 "$here/arrays.py" sort "$(size 100000000 15000000)"
}

prepare_java() {
    data
    javac -d "$work/data" "$here/Walk.java"
}

run_java() {
    local mib
    mib=$(size 512 128)
    # Without container support, so that the JVM does not choose another collector in a small cgroup.
    "${wrap[@]}" java -XX:-UseContainerSupport -XX:-UsePerfData "-Xms${mib}m" "-Xmx${mib}m" -cp "$work/data" Walk
}

prepare_sqlite() { :; }

run_sqlite() {
    "${wrap[@]}" sqlite3 -batch :memory: "
        PRAGMA temp_store = MEMORY;
        CREATE TABLE t(id INTEGER PRIMARY KEY, word TEXT, number INTEGER);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $(size 4000000 1200000))
            INSERT INTO t SELECT i, printf('%010d of the rows', (i * 2654435761) % 4294967296), i * i % 1000003 FROM n;
        CREATE INDEX words ON t(word);
        CREATE INDEX numbers ON t(number, id);
        SELECT count(*), sum(number), min(word), max(word) FROM t;
        SELECT count(*), sum(id) FROM t INDEXED BY words WHERE word >= '';
        SELECT sum(number * id) FROM t INDEXED BY numbers WHERE number > 0;"
}

prepare_ns2() {
    data
    sed -e "s/^set opt(nn) .*/set opt(nn) $(size 700 200)/" -e "s/^set opt(stop).*/set opt(stop) $(size 45.0 20.0)/" \
        "$ns2_demo" >"$work/data/demo.tcl"
}

run_ns2() {
    "${wrap[@]}" ns "$work/data/demo.tcl"
}

prepare_redis() {
    data
    # Values as the benchmark leaves them, so that the final contents do not depend on its random keys.
    awk -v n="$(size 400000 60000)" 'BEGIN { value = sprintf("%1000s", ""); gsub(/ /, "x", value)
        for (i = 0; i < n; i++) printf "SET key:%012d %s\n", i, value }' >"$work/data/load"
}

# Starts redis-server with the options $@ on $work/data/socket; $server is its job.
start_redis() {
    # A socket in a directory of our own: no port to collide with.
    socket=$work/data/socket
    rm -f "$socket" "$work/data/pid"
    "${wrap[@]}" redis-server --port 0 --unixsocket "$socket" --unixsocketperm 700 --pidfile "$work/data/pid" \
        --save '' --enable-debug-command local --daemonize no "$@" >&2 &
    server=$!
    until redis-cli -s "$socket" ping 2>/dev/null | grep -q PONG; do
        kill -0 "$server" || return 1
        sleep 0.05
    done
}

stop_redis() {
    kill -TERM "$(cat "$work/data/pid")"
    wait "$server"
}

run_redis() {
    local keys socket server status=0 count
    keys=$(size 400000 60000) count=$(size 200000 30000)
    start_redis --appendonly no || return 1
    {
        redis-cli -s "$socket" --pipe <"$work/data/load" >&2 &&
            redis-benchmark -s "$socket" -q -n "$count" -r "$keys" -c 20 GET key:__rand_int__ >&2 &&
            redis-benchmark -s "$socket" -q -n "$count" -r "$keys" -c 20 SETRANGE key:__rand_int__ 100 xxxx >&2 &&
            redis-cli -s "$socket" DBSIZE && redis-cli -s "$socket" DEBUG DIGEST
    } || status=1
    stop_redis || status=1
    return $status
}

prepare_gcc() {
    data
    awk -v n="$(size 1500 400)" 'BEGIN {
        print "#include <stdlib.h>\nstruct part { int kind; const char *name; long size; double weight; };"
        for (i = 0; i < n; i++) {
            printf "static const struct part parts_%d[] = {", i
            for (j = 0; j < 40; j++) printf "{%d, \"part %d of %d\", %d, %d.5},", j, j, i, i * j, i + j
            print "};"
            printf "long f%d(long a, long b) { long s = a; for (long i = 0; i < b; i++) {", i
            for (j = 0; j < 8; j++)
                printf " s += parts_%d[(i * %d + s) %% 40].size; if (s & %d) s ^= parts_%d[s & 31].kind * %d; else s -= i;",
                    i, j + 3, 2 ^ j, i, j + 7
            print " } return s; }"
        }
    }' >"$work/data/large.c"
}

run_gcc() {
    "${wrap[@]}" gcc -O1 -c "$work/data/large.c" -o large.o
}

prepare_pool() { :; }

run_pool() {
    "${wrap[@]}" /usr/bin/python3 "$here/pool.py" "$(size 400 100)"
}

prepare_graph() { :; }

run_graph() {
    # Small: at a limit of about 64 MiB the kernel killed 11 of 11 runs on a busy machine, and none of one on a
    # quiet one. The last figures of its output are times: only the checksum is compared.
    "${wrap[@]}" "$outpage" workload graph --mib 70 |
        sed -n 's/.*\("checksum":"[0-9a-f]*","verified":[0-9]*\).*/\1/p'
    return "${PIPESTATUS[0]}"
}
