# shellcheck shell=bash
# More programs, as in cases.sh: prepare_NAME makes inputs in $work/data, run_NAME runs the program behind
# ${wrap[@]} in an empty directory.
# Sourced by services.sh, which sets these:
# shellcheck disable=SC2154,SC2034

# Lets ${wrap[@]} run what is behind it as the user $1, who owns $work/data and may page.
become() {
    local node=$work/data/userfaultfd major minor
    read -r major minor < <(stat -c '0x%t 0x%T' /dev/userfaultfd)
    mknod -m 666 "$node" c "$major" "$minor" || return
    chown "$1" "$work/data"
    # A node of its own that anybody may open, seen by nobody else.
    # shellcheck disable=SC2016
    as_user=(unshare --mount sh -c 'mount --bind "$0" /dev/userfaultfd && exec "$@"' "$node"
        setpriv --reuid "$1" --regid "$(id -g "$1")" --clear-groups env "HOME=$work/data")
}

postgres=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)

# What both ways to start PostgreSQL ask it: sorts in three sessions at once, transactions in four, and the sums.
# $1 is the step: before or after the restart.
postgres_queries() {
    cat >"$work/data/sort.sql" <<'END'
SET work_mem = '256MB';
SET max_parallel_workers_per_gather = 0;
SELECT count(*), md5(string_agg(word, ',')) FROM
    (SELECT md5((g * 7 + :client_id)::text) AS word FROM generate_series(1, 250000) g ORDER BY 1) sorted;
END
    cat >"$work/data/work.sh" <<END
set -e
export PATH=$postgres:\$PATH PGHOST=$work/data PGDATABASE=postgres PGUSER=postgres
if [ "\$1" = before ]; then pgbench -q -i -s 2 >&2; fi
pgbench -n -c 3 -t 2 -f $work/data/sort.sql >&2
pgbench -n -c 4 -t 200 --random-seed=7 >&2
psql -At -c "SELECT sum(abalance), count(*) FROM pgbench_accounts" -c "SELECT sum(tbalance) FROM pgbench_tellers" \\
    -c "SELECT count(*), sum(delta) FROM pgbench_history" \\
    -c "SELECT md5(string_agg(a::text, ',' ORDER BY md5(a::text))) FROM pgbench_accounts a"
psql -At -v client_id=3 -f $work/data/sort.sql
END
}

postgres_settings="listen_addresses = ''
shared_buffers = 16MB
fsync = off
autovacuum = off"

prepare_postgres() {
    data
    become postgres || return
    postgres_queries
    # The server ends with this script, whatever happens to it in between.
    cat >"$work/data/all.sh" <<END
export PATH=$postgres:\$PATH PGDATA=$work/data/cluster
start() { pg_ctl -w -s -l $work/data/log -o '-k $work/data' start </dev/null >/dev/null 2>&1; }
start && sh $work/data/work.sh before && pg_ctl -w -s -m fast stop && start && sh $work/data/work.sh after
status=\$?
pg_ctl -w -s -m fast stop || status=9
[ \$status = 0 ] || tail -n 20 $work/data/log >&2
exit \$status
END
}

run_postgres() {
    rm -rf "$work/data/cluster" "$work/data/log"
    setpriv --reuid postgres --regid "$(id -g postgres)" --clear-groups \
        "$postgres/initdb" -D "$work/data/cluster" -A trust -N >&2 || return 1
    echo "$postgres_settings" >>"$work/data/cluster/postgresql.conf"
    "${wrap[@]}" sh "$work/data/all.sh"
}

prepare_postgres_cluster() {
    data
    chown postgres "$work/data"
    postgres_queries
    cat >"$work/data/all.sh" <<END
export PG_CLUSTER_CONF_ROOT=$work/data/etc
version=\$1
turn() { pg_ctlcluster --skip-systemctl-redirect \$version compared \$1 </dev/null >&2; }
work() { setpriv --reuid postgres --clear-groups --regid $(id -g postgres) sh $work/data/work.sh \$1; }
turn start && work before && turn restart && work after
status=\$?
turn stop || status=9
exit \$status
END
}

run_postgres_cluster() {
    local version
    version=$(basename "$(dirname "$postgres")")
    rm -rf "$work/data/etc" "$work/data/cluster" "$work/data/log"
    export PG_CLUSTER_CONF_ROOT=$work/data/etc
    pg_createcluster -d "$work/data/cluster" -l "$work/data/log" -s "$work/data" "$version" compared -- -A trust -N >&2 ||
        return 1
    echo "$postgres_settings" >>"$work/data/etc/$version/compared/postgresql.conf"
    local status
    "${wrap[@]}" sh "$work/data/all.sh" "$version"
    status=$?
    # The server's standard error is its log.
    grep -a '^outpage: ' "$work/data/log" >&2
    return $status
}

prepare_redis_rewrite() {
    prepare_redis
}

# Waits until the background work named $1 in redis is over, and checks that it went well by the field $2.
redis_done() {
    while redis-cli -s "$socket" INFO persistence | grep -q "^$1:1"; do sleep 0.05; done
    redis-cli -s "$socket" INFO persistence | grep "^$2:ok" >&2
}

redis_digest() {
    redis-cli -s "$socket" DBSIZE && redis-cli -s "$socket" DEBUG DIGEST
}

# Changes values while redis $1, and waits for that.
redis_while() {
    redis-cli -s "$socket" "$1" >&2 &&
        redis-benchmark -s "$socket" -q -n 20000 -r 60000 -c 10 SETRANGE key:__rand_int__ "$2" xxxx >&2 &&
        redis_done "$3" "$4" && redis_digest
}

run_redis_rewrite() {
    local socket server status=0 kept=$work/data/kept
    rm -rf "$kept" && mkdir "$kept"
    start_redis --dir "$kept" --appendonly yes --appendfsync no || return 1
    {
        redis-cli -s "$socket" --pipe <"$work/data/load" >&2 && redis_digest >"$work/data/full" &&
            redis_while BGREWRITEAOF 100 aof_rewrite_in_progress aof_last_bgrewrite_status >"$work/data/changed" &&
            redis-cli -s "$socket" BGSAVE >&2 && redis_done rdb_bgsave_in_progress rdb_last_bgsave_status &&
            redis_digest >"$work/data/saved"
    } || status=1
    stop_redis || status=1
    # A random part of the keys was changed, so the native redis reads back what was written: the log and the snapshot.
    local wrap=()
    start_redis --dir "$kept" --appendonly yes && redis_digest >"$work/data/log" && stop_redis &&
        start_redis --dir "$kept" --appendonly no && redis_digest >"$work/data/snapshot" && stop_redis || status=1
    cat "$work/data/full"
    cmp "$work/data/log" "$work/data/changed" && cmp "$work/data/saved" "$work/data/snapshot" && return $status
}

# A page that fills memory and paints what came of it.
write_page() {
    cat >"$work/data/page.html" <<'END'
<!doctype html><title>page</title><body style="margin:0;font:16px sans-serif"><p id=text>not yet</p>
<canvas id=canvas width=640 height=400></canvas><script>
let x = 1, sum = 0;
const next = () => x = x * 16807 % 2147483647, parts = [];
for (let i = 0; i < 60; i++) parts.push(Float64Array.from({length: 131072}, next));
for (const part of parts) part.sort();
const objects = Array.from({length: 200000}, (_, i) => ({i, text: 'part ' + next(), next: null}));
objects.sort((a, b) => a.text < b.text ? -1 : a.text > b.text ? 1 : a.i - b.i);
for (const o of objects) sum = (sum * 31 + o.i) % 2147483647;
const paint = canvas.getContext('2d');
for (let i = 0; i < 640; i++) {
    const part = parts[i % 60], height = part[i * 200] / 2147483647 * 400;
    paint.fillStyle = `rgb(${i % 256}, ${part[i] % 256}, ${sum % 256})`;
    paint.fillRect(i, 400 - height, 1, height);
}
text.textContent = 'sum ' + sum;
</script>
END
}

# Paints the page in the browser, with the options $@.
paint_page() {
    local status
    rm -rf "$work/data/profile" "$work/data/page.png"
    "${wrap[@]}" chromium --headless --disable-gpu --hide-scrollbars --no-first-run --disable-extensions \
        --user-data-dir="$work/data/profile" --window-size=800,600 --screenshot="$work/data/page.png" \
        --timeout=60000 "$@" "file://$work/data/page.html" >&2
    status=$?
    cp "$work/data/page.png" . || status=1
    return $status
}

prepare_chromium() {
    data
    write_page
}

run_chromium() {
    paint_page --no-sandbox
}

prepare_chromium_sandbox() {
    prepare_chromium && become nobody
}

run_chromium_sandbox() {
    paint_page
}

# Compiles checked.c with the compiler $1.
prepare_asan() {
    data
    "$1" -g -O1 -fsanitize=address -o "$work/data/checked" "$here/checked.c"
}

# Runs it with the arguments $@; what the sanitizer found is kept without its addresses.
run_asan() {
    local status
    "${wrap[@]}" "$work/data/checked" 64 "$@" 2>"$work/data/report"
    status=$?
    sed -n 's/.*\(ERROR: AddressSanitizer: [a-z-]*\).*/\1/p' "$work/data/report"
    cat "$work/data/report" >&2
    return $status
}

prepare_asan_gcc() { prepare_asan gcc; }
prepare_asan_gcc_overflow() { prepare_asan gcc; }
prepare_asan_clang() { prepare_asan clang; }
prepare_asan_clang_after_free() { prepare_asan clang; }
run_asan_gcc() { run_asan; }
run_asan_gcc_overflow() { run_asan overflow; }
run_asan_clang() { run_asan; }
run_asan_clang_after_free() { run_asan after-free; }
