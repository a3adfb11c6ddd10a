//! The server chooses where a client's thread wakes that waited for a page. Nothing of that is left, neither to the thread nor to what it begins.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use outpage_client::{Client, Share};
use outpage_sys::process::{self, CpuSet, Tid};
use outpage_sys::tasks::{self, Scheduling};

mod common;
use common::{Random, Served, can_be_served, check, write};

/// Where the server is that a child of the test is a client of.
const SOCKET: &str = "OUTPAGE_TEST_SOCKET";
const LIMIT: u64 = 2048;
const TOUCHES: u64 = 6000;
/// Of so many touches one is followed by a thread at once, and of ten times as many by a process.
const THREAD_EACH: u64 = 25;
/// A server that was interrupted gives back when it goes on.
const PATIENCE: Duration = Duration::from_secs(20);

type Chosen = (CpuSet, Option<Scheduling>);

fn of(tid: Tid) -> Chosen {
    let cpus = process::affinity(tid).expect("it lives");
    (cpus, tasks::scheduling(tid))
}

/// What `tid` has, once that is what is expected, or in the end.
fn soon(tid: Tid, expected: Chosen) -> Chosen {
    let began = Instant::now();
    while of(tid) != expected && began.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
    of(tid)
}

#[test]
fn what_a_client_begins_between_two_faults_may_run_where_the_client_may() {
    if !can_be_served() {
        return;
    }
    let served = Served::start(LIMIT, |_| {});
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "a_child_of_the_other_test", "--nocapture"]);
    let ended = child.env(SOCKET, served.socket()).status().unwrap();
    assert!(ended.success(), "{ended}");
    served.end_empty();
}

/// Does nothing, but where the other test started it.
#[test]
fn a_child_of_the_other_test() {
    let Ok(socket) = std::env::var(SOCKET) else {
        return;
    };
    let own = process::tid();
    let expected = of(own);
    let client = Client::connect(socket, Share::default()).unwrap();
    let pages = 4 * LIMIT;
    let object = client.create(pages * 4096).unwrap();
    (0..pages).for_each(|page| write(&object, 1, page));
    let (mut random, mut threads, mut processes) = (Random(1), Vec::new(), Vec::new());
    for touch in 0..TOUCHES {
        check(&object, 1, random.below(pages));
        if touch % THREAD_EACH == 0 {
            threads.push(thread::spawn(move || soon(process::tid(), expected)));
        }
        if touch % (10 * THREAD_EACH) == 0 {
            processes.push(Command::new("sleep").arg("600").spawn().unwrap());
        }
    }
    let major_faults = client.stats().unwrap().major_faults;
    let of_processes: Vec<_> = (processes
        .iter()
        .map(|child| soon(Tid(child.id()), expected)))
    .collect();
    for mut child in processes {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(of_processes.iter().all(|&of| of == expected), "processes");
    for thread in threads {
        assert_eq!(thread.join().unwrap(), expected);
    }
    assert_eq!(soon(own, expected), expected);
    assert!(major_faults > TOUCHES / 2);
}
