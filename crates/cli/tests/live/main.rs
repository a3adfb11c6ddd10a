//! Real programs under a limit that is half of what they need: one suite, over every way pages move.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

#[path = "../common/mod.rs"]
mod common;
mod files;
mod freed;
mod harness;
mod lent;
mod room;
mod secrecy;
mod sharing;

use files::{
    a_lost_file_is_not_read, files_are_as_without, files_are_left_alone,
    mapped_files_keep_to_the_limit,
};
use freed::{
    freed_pages_go_at_once, freed_pages_go_in_their_turn, freed_pages_go_unless_written,
    freed_pages_go_where_pages_are_copied,
};
use harness::{Done, compiled, have, run};
use lent::{
    lost_shared_memory_signals, processes_share_what_is_paged, shared_memory_keeps_to_the_limit,
    shared_memory_of_one_at_home, shared_memory_of_several_is_as_without,
    without_its_home_a_process_ends,
};
use room::{room_comes_back, room_is_had_again, room_that_a_child_holds_is_had_again};
use sharing::{
    shared_memory_goes_back, shared_memory_is_paged, shared_memory_stays, torture_beside_shared,
    unseen_calls_never_show_holes,
};

/// A case: a directory for its files, and the options that choose the mechanism and the store.
struct Case<'a> {
    directory: &'a Path,
    how: &'a [&'a str],
}

impl Case<'_> {
    fn run(&self, options: &[&str], program: &[&str]) -> Done {
        run(self.directory, &[self.how, options].concat(), program)
    }

    /// A program of `tests/programs`.
    fn compiled(&self, name: &str) -> String {
        compiled(self.directory, name)
            .to_str()
            .expect("UTF-8")
            .to_owned()
    }

    fn torture(&self, options: &[&str], arguments: &[&str]) -> Done {
        let program = self.compiled("torture");
        let directory = self.directory.to_str().expect("UTF-8");
        let fixed = [&program, "-m", "64", "-r", "7", "-d", directory];
        self.run(
            &[&["--memory", "32M"], options].concat(),
            &[&fixed, arguments].concat(),
        )
    }

    fn fill(&self, options: &[&str], arguments: &[&str]) -> Done {
        let program = self.compiled("fill");
        self.run(
            &[&["--memory", "32M"], options].concat(),
            &[&[program.as_str()], arguments].concat(),
        )
    }

    fn script(&self, text: &str) -> String {
        let path = self.directory.join("script.py");
        fs::write(&path, text).expect("write");
        path.to_str().expect("UTF-8").to_owned()
    }
}

/// Everything that one process does to its memory through libc.
const ALONE: &str = "rw,dontneed,free,advise,remap,mremap,dontunmap,protect,mlock,guard,process,shm,memfd,uffd,\
    pipe,file,direct,vmsplice,peek,closefrom,signal";
/// And past it: memory that comes so is part of the limit from the next look at the mappings on.
const RAW: &str = "rw,dontneed,mremap,rawmap,rawmove,rawdiscard,rawprotect,rawtrim";
/// Every kind of child.
const CHILDREN: &str = "rw,mremap,dontneed,fork,orphan,exec,spawn,clone3,clone,rawfork,vfork,vmchild,outlive,\
    wipe,dontfork,namespace,seccomp,confine,seal";

fn torture_alone(case: &Case) {
    case.torture(&[], &["-s", "6", "-o", ALONE])
        .paged_well()
        .within_limit();
}

fn torture_past_libc(case: &Case) {
    case.torture(&[], &["-s", "5", "-o", RAW]).paged_well();
}

fn torture_with_children(case: &Case) {
    let done = case.torture(&[], &["-s", "6", "-o", CHILDREN]);
    done.paged_well();
    // A page that read-ahead lost may not have been touched.
    assert_eq!(done.count("checksum_errors"), 0, "{}", done.stats);
}

/// Errors that pass cost no byte.
fn torture_with_store_faults(case: &Case) {
    let faults = ["--faults", "seed=7,read=5,write=5,short=5,page=20,flip=2"];
    let done = case.torture(&faults, &["-s", "5", "-o", ALONE]);
    done.paged_well().within_limit();
    assert!(
        done.count("store_errors") > 0,
        "no fault struck: {}",
        done.stats
    );
    assert_eq!(done.count("poisoned"), 0, "{}", done.stats);
}

/// What cannot be read back ends whoever touches it, and never reads as anything else.
fn unreadable_pages_signal(case: &Case) {
    let done = case.fill(&["--faults", "seed=7,read=1000"], &["64", "poisoned"]);
    assert!(done.status.success(), "{}{}", done.stdout, done.stderr);
    assert!(
        done.stdout.ends_with(" pages lost, 0 wrong\n") && !done.stdout.starts_with("0 "),
        "{}",
        done.stdout
    );
    assert!(done.count("poisoned") > 0, "{}", done.stats);
    let untouched = case.fill(&["--faults", "seed=7,read=1000"], &["64"]);
    assert_eq!(
        untouched.status.signal(),
        Some(libc::SIGBUS),
        "{}",
        untouched.stderr
    );
    // Counted before the signal ends the process.
    assert!(untouched.count("poisoned") > 0, "{}", untouched.stats);
    assert!(
        untouched.stderr.contains("could not be read back")
            && untouched.stderr.lines().count() == 1,
        "{}",
        untouched.stderr
    );
}

fn full_swap_ends_the_program(case: &Case) {
    full_swap_ends(case, &["96"]);
    // Whose standard error is no longer that of a first thread.
    full_swap_ends(case, &["96", "thread"]);
    let done = case.fill(&[], &["64", "thread"]);
    done.paged_well();
    assert_eq!(done.stdout, "16384 pages were right\n");
}

fn full_swap_ends(case: &Case, args: &[&str]) {
    let done = case.fill(&["--swap-cap", "16M"], args);
    assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{}", done.stderr);
    assert!(
        done.stderr.contains("swap file is full") && done.stderr.contains("--swap-cap"),
        "{}",
        done.stderr
    );
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    assert_eq!(done.stdout, "");
}

fn ends_as_the_program_does(case: &Case) {
    assert_eq!(
        case.fill(&[], &["64", "exit", "7"]).paged().status.code(),
        Some(7)
    );
    assert_eq!(
        case.fill(&[], &["64", "signal", "15"])
            .paged()
            .status
            .signal(),
        Some(15)
    );
    assert_eq!(
        case.fill(&[], &["64", "signal", "9"]).status.signal(),
        Some(9)
    );
}

fn exec_keeps_the_limit(case: &Case) {
    let done = case.fill(&[], &["64", "exec"]);
    done.paged_well().within_limit();
    assert_eq!(done.stdout, "16384 pages were right\n");
    // Both images paged: each had to write at least half of its pages.
    assert!(done.count("page_outs") > 2 * 8192, "{}", done.stats);
}

fn forked(case: &Case) -> Done {
    let done = case.fill(&[], &["64", "fork"]);
    done.paged_well();
    assert_eq!(done.stdout, "both were right\n");
    done
}

fn both_page(case: &Case) {
    forked(case);
}

/// What the tree has beyond the limit are pages that the pagers duplicated to detach them, or to read into
/// them, and they are counted. Not with write-protect, which duplicates none.
fn duplicates_are_counted(case: &Case) {
    let done = forked(case);
    assert!(done.count("cow_duplicates") > 0, "{}", done.stats);
    done.within_limit_and_duplicates();
}

fn parent_exits_first(case: &Case) {
    let done = case.fill(&[], &["64", "leave"]);
    assert!(done.status.success(), "{}", done.stderr);
    assert_eq!(done.stdout, "the child was right\n");
}

/// A slot that was shared by two forks is not reused while the second one's process lives.
fn daemon_stays(case: &Case) {
    let done = case.fill(&["--slots", "blist"], &["64", "daemon"]);
    assert!(done.status.success(), "{}", done.stderr);
    assert_eq!(done.stdout, "the grandchild was right\n");
    assert_eq!(done.count("checksum_errors"), 0, "{}", done.stats);
}

/// Lines in a fixed disorder, 34 MiB.
fn disordered_lines() -> String {
    let mut value = 12345_u64;
    let mut next = || {
        value = value
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        value >> 11
    };
    (0..1_050_000)
        .map(|_| format!("{:016}\n", next()))
        .collect()
}

/// What the kernel does at a thread's end is done, be the thread's memory paged out or not.
fn threads_end(case: &Case) {
    let program = case.compiled("exits");
    let done = case.run(&["--memory", "32M"], &[&program, "96", "64"]);
    done.paged_well();
    assert_eq!(done.stdout, "64 threads ended\n");
}

/// What the kernel refuses because there are too many mappings costs no byte.
fn mappings_at_their_limit(case: &Case) {
    let program = case.compiled("mappings");
    let done = case.run(&["--memory", "32M"], &[&program, "64"]);
    done.paged_well();
    assert_eq!(done.stdout, "nothing is lost\n");
}

/// What a program may not write any more is part of the limit, whether its pager runs or not.
fn protected_memory_counts(case: &Case) {
    let program = case.compiled("barrier");
    let done = case.run(&["--memory", "32M"], &[&program, "64"]);
    done.paged_well().within_limit();
    assert_eq!(done.stdout, "64 blocks are right\n");
}

/// Nobody sees that a waiting thread is bound to a CPU, nor that several are.
fn cpus_stay(case: &Case) {
    let program = case.compiled("cpus");
    for (rounds, others) in [("60", "0"), ("24", "2")] {
        let done = case.run(&["--memory", "32M"], &[&program, "64", rounds, others]);
        if done.status.code() == Some(77) {
            return harness::skipped("there is one CPU");
        }
        done.paged_well();
    }
}

fn sort(case: &Case) {
    let input = case.directory.join("lines");
    fs::write(&input, disordered_lines()).expect("write");
    let sort = [
        "sort",
        "-S",
        "300M",
        "--parallel=2",
        input.to_str().expect("UTF-8"),
    ];
    let free = Command::new(sort[0])
        .args(&sort[1..])
        .output()
        .expect("sort");
    let done = case.run(&["--memory", "32M"], &sort);
    done.paged_well().within_limit();
    assert!(free.stdout == done.stdout.as_bytes(), "the outputs differ");
}

const PYTHON: &str = "\
import hashlib, random
numbers = random.Random(5)
words = [numbers.getrandbits(40) for _ in range(400_000)]
words.sort()
print(hashlib.sha256(','.join(map(str, words)).encode()).hexdigest())
";

fn python(case: &Case) {
    same_as_free(case, PYTHON, "16M").within_limit();
}

const POOL: &str = "\
import multiprocessing, random
numbers = random.Random(6)
data = [numbers.getrandbits(40) for _ in range(900_000)]
def part(i):
    return sum(data[i::8])
if __name__ == '__main__':
    with multiprocessing.get_context('fork').Pool(2) as pool:
        sums = pool.map(part, range(8))
    print(sums, sum(sums) == sum(data))
";

/// Children that read, and by counting references write, what their parent filled.
fn python_pool(case: &Case) {
    same_as_free(case, POOL, "48M");
}

fn same_as_free(case: &Case, script: &str, limit: &str) -> Done {
    let script = case.script(script);
    let free = Command::new("/usr/bin/python3")
        .arg(&script)
        .output()
        .expect("python3");
    let done = case.run(&["--memory", limit], &["/usr/bin/python3", &script]);
    done.paged_well();
    assert_eq!(String::from_utf8_lossy(&free.stdout), done.stdout);
    done
}

fn stress_ng(case: &Case) {
    if !have("stress-ng") {
        return;
    }
    let stress = [
        "stress-ng",
        "--vm",
        "2",
        "--vm-method",
        "all",
        "--verify",
        "--vm-bytes",
        "256M",
        "-t",
        "5",
    ];
    case.run(
        &["--memory", "64M"],
        &[&stress[..], &["--temp-path", "/tmp"]].concat(),
    )
    .paged_well();
}

/// Every kind of system call of the pager fails once, in the middle of the run: no byte is wrong, and a program that cannot
/// go on ends with one line.
fn refused_calls(case: &Case) {
    refuse(case, "");
}

/// What only this store calls.
fn refused_rings(case: &Case) {
    refuse(case, "io_uring");
}

/// Has each call of the pager whose name begins with `only` fail, one at a time.
fn refuse(case: &Case, only: &str) {
    if !have("python3") {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/inject.py");
    let output = Command::new("python3")
        .arg(script)
        .args([
            "--where",
            "middle",
            "--outpage",
            common::OUTPAGE,
            "--only",
            only,
            "--options",
        ])
        .arg(case.how.join(" "))
        .output()
        .expect("python3");
    let told = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(77) {
        return harness::skipped(told.trim());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}{errors}");
    assert!(told.contains("went on"), "{told}");
}

fn with_case(how: &[&str], test: fn(&Case)) {
    if !common::can_page() {
        return harness::skipped("programs cannot be paged here");
    }
    let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
    test(&Case {
        directory: directory.path(),
        how,
    });
}

/// A module of tests: each case, run in one way.
macro_rules! suite {
    ($module:ident, $how:expr, $($case:ident)*) => {
        mod $module {
            $(#[test]
            fn $case() {
                super::with_case(&$how, super::$case);
            })*
        }
    };
}

macro_rules! whole_suite {
    ($module:ident, $how:expr) => {
        suite!($module, $how, torture_alone torture_past_libc torture_with_store_faults torture_with_children
            unreadable_pages_signal full_swap_ends_the_program ends_as_the_program_does exec_keeps_the_limit
            both_page parent_exits_first daemon_stays threads_end cpus_stay
            mappings_at_their_limit protected_memory_counts room_comes_back sort stress_ng python python_pool);
    };
}

whole_suite!(moving, ["--mechanism", "move"]);
whole_suite!(protecting, ["--mechanism", "write-protect"]);
suite!(
    freeing,
    ["--mechanism", "move"],
    freed_pages_go_in_their_turn
);
suite!(
    freeing_by_default,
    ["--mechanism", "move"],
    freed_pages_go_unless_written
);
suite!(
    freed_compressed,
    [
        "--tier",
        "lz4",
        "--discard",
        "on-demand",
        "--mechanism",
        "move"
    ],
    freed_pages_go_unless_written
);
suite!(
    freed_protected,
    ["--discard", "on-demand", "--mechanism", "write-protect"],
    freed_pages_go_where_pages_are_copied
);
suite!(freed_never, ["--discard", "none"], freed_pages_go_at_once);
suite!(shared, ["--mechanism", "move"], shared_memory_is_paged shared_memory_goes_back unseen_calls_never_show_holes
    shared_memory_stays);
suite!(
    shared_compressed,
    ["--tier", "lz4", "--mechanism", "move"],
    shared_memory_is_paged
);
suite!(
    shared_protected,
    ["--mechanism", "write-protect"],
    shared_memory_is_paged shared_memory_goes_back
);

suite!(lent_moved, ["--mechanism", "move"], processes_share_what_is_paged shared_memory_of_several_is_as_without
    shared_memory_of_one_at_home shared_memory_keeps_to_the_limit lost_shared_memory_signals without_its_home_a_process_ends);
suite!(
    lent_protected,
    ["--tier", "lz4", "--mechanism", "write-protect"],
    processes_share_what_is_paged
);
suite!(files_moved, ["--mechanism", "move"], files_are_as_without files_are_left_alone
    mapped_files_keep_to_the_limit a_lost_file_is_not_read);
suite!(
    files_protected,
    ["--mechanism", "write-protect"],
    files_are_as_without
);
suite!(lent_beside, ["--shared", "tree"], torture_beside_shared);
suite!(shared_beside, ["--shared", "on"], torture_beside_shared torture_with_children);
suite!(room_held, ["--mechanism", "move"], room_is_had_again room_that_a_child_holds_is_had_again);
suite!(forked, ["--mechanism", "move"], duplicates_are_counted);
// Several choices go together here, each of which would take a suite of its own: what they have in common is little.
suite!(pool, ["--store", "pool", "--encrypt", "off", "--reclaim", "fifo"], torture_alone torture_with_store_faults
    parent_exits_first refused_calls);
suite!(uring, ["--store", "uring"], refused_rings);
// Encryption is the default where the CPU has instructions for it.
suite!(unencrypted, ["--encrypt", "off"], both_page);
suite!(encrypted, ["--encrypt", "on", "--store", "pool"], torture_with_children exec_keeps_the_limit
    unreadable_pages_signal daemon_stays);
suite!(compressed, ["--tier", "lz4", "--mechanism", "move"], torture_alone torture_with_store_faults torture_with_children
    daemon_stays both_page);
suite!(compressed_little, ["--tier", "lz4:pool=10", "--reclaim", "two-queue:in=10", "--mechanism", "move"],
    torture_alone torture_with_children);
suite!(compressed_zstd, ["--tier", "zstd", "--reclaim", "s3-fifo", "--mechanism", "move"],
    torture_alone torture_with_children);
suite!(compressed_protected, ["--tier", "auto", "--mechanism", "write-protect"], torture_alone torture_with_children);
