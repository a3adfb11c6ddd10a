//! Clients that die, lie, flood and break off, and servers that end: who did nothing wrong loses nothing, and nothing is left behind.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use outpage_client::{Client, Share};
use outpage_server::Server;
use outpage_sys::fd;
use outpage_sys::shared::Whole;
use outpage_sys::socket;
use outpage_sys::uffd::Uffd;
use outpage_wire::{Hello, MESSAGE_BYTES_MAX, Refusal, Reply, Request};

mod common;
use common::raw::Raw;
use common::{Random, Served, alone, can_be_served, check, own, survives, write};

/// What a child is to do, and where.
const ROLE: &str = "OUTPAGE_TEST_ROLE";
const SOCKET: &str = "OUTPAGE_TEST_SOCKET";

/// The pages of a child's object: twice the smallest limit of the tests.
const PAGES: u64 = 2048;

fn child(served: &Served, role: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_child_of_another_test", "--nocapture"]);
    command.env(ROLE, role).env(SOCKET, served.socket());
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Does nothing, but where another test started it.
#[test]
fn a_child_of_another_test() {
    let (Ok(role), Ok(path)) = (std::env::var(ROLE), std::env::var(SOCKET)) else {
        return;
    };
    let client = Client::connect(path, Share::default()).unwrap();
    let object = client.create(PAGES * 4096).unwrap();
    let seed = u64::from(std::process::id());
    (0..PAGES).for_each(|page| write(&object, seed, page));
    let mut random = Random(seed);
    for step in 0.. {
        let page = random.below(PAGES);
        match role.as_str() {
            "reads" => check(&object, seed, page),
            "ends" if step == 2000 => std::process::exit(0),
            _ => {
                object.mark(page, 1 + random.below(PAGES - page));
                write(&object, seed, random.below(PAGES));
                if step % 16 == 0 {
                    object.take_back(0, PAGES).unwrap();
                }
            }
        }
    }
}

#[test]
fn garbage_ends_the_connection_that_it_came_by() {
    let _alone = alone();
    if !can_be_served() {
        return;
    }
    let before = own();
    survives(Served::start(1024, |_| {}), PAGES, |served| {
        let mut random = Random(3);
        for round in 0..200 {
            let raw = Raw::connect(&served.socket());
            let length = 1 + random.below(MESSAGE_BYTES_MAX as u64 + 100) as usize;
            let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
            let _uffd = (round % 2 == 0).then(|| raw.hello());
            socket::send(raw.0.number(), &bytes, &[]).unwrap();
            raw.ends_refused();
        }
        // Every message cut short, by one byte and by all but one.
        let pages = outpage_wire::Pages {
            object: 0,
            first: 0,
            pages: 1,
        };
        for request in [
            Request::Create { pages: 1 },
            Request::Flush(pages),
            Request::Stats,
        ] {
            let mut bytes = Vec::new();
            request.encode(1, &mut bytes);
            for length in [1, bytes.len() - 1] {
                let raw = Raw::connect(&served.socket());
                let _uffd = raw.hello();
                socket::send(raw.0.number(), &bytes[..length], &[]).unwrap();
                raw.ends_refused();
            }
        }
        // A descriptor of another kind, too many, none, and hello twice.
        let event = fd::eventfd().unwrap();
        let hello = Request::Hello(Hello {
            minimum_pages: 0,
            weight: 1,
        });
        for along in [&[event.number()][..], &[event.number(); 4], &[]] {
            let raw = Raw::connect(&served.socket());
            raw.send(hello, along);
            raw.ends_refused();
        }
        let raw = Raw::connect(&served.socket());
        let uffd = raw.hello();
        raw.send(hello, &[uffd.fd()]);
        raw.ends_refused();
    });
    assert_eq!(own(), before, "descriptors and threads");
}

#[test]
fn who_floods_or_never_reads_holds_nobody_up() {
    let _alone = alone();
    if !can_be_served() {
        return;
    }
    survives(Served::start(8192, |_| {}), PAGES, |served| {
        let floods: Vec<Raw> = (0..8).map(|_| Raw::connect(&served.socket())).collect();
        let _kept: Vec<Uffd> = floods.iter().map(Raw::hello).collect();
        for raw in &floods {
            socket::set_nonblocking(raw.0.number()).unwrap();
        }
        // None of them reads an answer.
        let mut sent = 0;
        for round in 0..20_000 {
            let mut bytes = Vec::new();
            Request::Stats.encode(round, &mut bytes);
            sent += usize::from(
                socket::send(floods[round as usize % 8].0.number(), &bytes, &[]).is_ok(),
            );
        }
        assert!(sent > 100);
        let other = served.connect();
        let began = Instant::now();
        assert!(other.stats().is_ok());
        println!("an answer beside the flood took {:?}", began.elapsed());
        // Silent ones, too.
        let _silent: Vec<Raw> = (0..50).map(|_| Raw::connect(&served.socket())).collect();
        assert!(served.connect().stats().is_ok());
    });
}

#[test]
fn who_says_nothing_loses_its_place_only_to_somebody_else() {
    let _alone = alone();
    if !can_be_served() {
        return;
    }
    let served = Served::start(1024, |options| options.clients_max = 3);
    let silent: Vec<Raw> = (0..2).map(|_| Raw::connect(&served.socket())).collect();
    let client = served.connect();
    // All places are taken, and nobody has been silent for long.
    assert!(Client::connect(served.socket(), Share::default()).is_err());
    std::thread::sleep(Duration::from_millis(5500));
    let other = served.connect();
    assert!(client.stats().is_ok() && other.stats().is_ok());
    // One of the two had to go; the other is welcome still.
    let uffd = silent[1].hello();
    assert!(silent[0].receive().is_none());
    drop((silent, uffd, client, other));
    served.end_empty();
}

/// It says that its object is mapped where other memory is, and has frames that it was not given.
#[test]
fn a_client_that_lies_harms_itself_alone() {
    let _alone = alone();
    if !can_be_served() {
        return;
    }
    survives(Served::start(1024, |_| {}), PAGES, |served| {
        let raw = Raw::connect(&served.socket());
        let uffd = raw.hello();
        raw.send(Request::Create { pages: 4096 }, &[]);
        let Some((Reply::Created { object, .. }, files)) = raw.receive() else {
            panic!("not created");
        };
        let elsewhere = outpage_sys::shared::create(c"elsewhere", 4096 * 4096).unwrap();
        let other = Whole::new(elsewhere.number(), 4096 * 4096).unwrap();
        for address in [0, 4095, u64::MAX, 1 << 47] {
            raw.send(Request::Map { object, address }, &[]);
            assert_eq!(
                raw.receive().map(|answer| answer.0),
                Some(Reply::Refused(Refusal::Bounds))
            );
        }
        let address = other.address() as u64;
        uffd.register_shared(other.address(), 4096 * 4096).unwrap();
        raw.send(Request::Map { object, address }, &[]);
        assert_eq!(raw.receive().map(|answer| answer.0), Some(Reply::Done));
        // Bits of pages that it never had, set and cleared at random, by somebody who does not count either.
        let marks = Whole::new(files[1].number(), 8192).unwrap();
        let mut random = Random(1);
        for _ in 0..5000 {
            let word = random.below(marks.words().len() as u64) as usize;
            marks.words()[word].store(random.0, Ordering::Relaxed);
        }
        raw.send(Request::Stats, &[]);
        assert!(matches!(raw.receive(), Some((Reply::Stats(_), _))));
        // The file's frames are counted: more than the limit, and nobody gave them to it.
        fd::allocate(files[0].number(), 0, 4096 * 4096).unwrap();
        assert!(raw.receive().is_none(), "it is not served any more");
        common::wait_until("its frames are taken", || {
            fd::allocated(files[0].number()).unwrap() < 1 << 20
        });
    });
}

#[test]
fn killed_clients_leave_nothing_behind() {
    let _alone = alone();
    if !can_be_served() {
        return;
    }
    let before = own();
    survives(Served::start(4096, |_| {}), PAGES, |served| {
        let mut random = Random(17);
        let mut children = Vec::new();
        for round in 0..12 {
            let role = ["reads", "marks", "ends"][round % 3];
            children.push(child(served, role));
            if children.len() > 3 {
                let at = random.below(children.len() as u64) as usize;
                std::thread::sleep(Duration::from_millis(random.below(300)));
                let mut gone = children.swap_remove(at);
                let _ = gone.kill();
                gone.wait().unwrap();
            }
        }
        for mut child in children {
            let failed = child.try_wait().unwrap().filter(|status| !status.success());
            assert_eq!(failed, None, "a client that nobody harmed failed");
            let _ = child.kill();
            child.wait().unwrap();
        }
    });
    assert_eq!(own(), before, "descriptors and threads");
}

/// `SIGBUS` (signal(7), x86-64).
const SIGBUS: i32 = 7;

fn dies_of_sigbus(mut child: Child) {
    let mut status = None;
    common::wait_until("the client hangs", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().signal(), Some(SIGBUS));
}

#[test]
fn when_the_server_ends_a_touch_is_a_signal_and_nobody_hangs() {
    let _alone = alone();
    if !can_be_served() {
        return;
    }
    // One that goes on touching, and one that waits for a page that never comes.
    let served = Served::start(1024, |_| {});
    let touches = child(&served, "reads");
    std::thread::sleep(Duration::from_millis(700));
    let bystander = served.connect();
    served.pause();
    std::thread::sleep(Duration::from_millis(200));
    let _ = served.end();
    dies_of_sigbus(touches);
    common::wait_until("the library sees the end", || bystander.check().is_err());
    assert_eq!(
        bystander.create(4096).err(),
        Some(outpage_client::Error::Gone)
    );
    assert_eq!(bystander.stats().err(), Some(outpage_client::Error::Gone));
}

#[test]
fn a_second_server_at_a_path_is_refused_and_a_dead_ones_socket_is_not() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let precious = directory.path().join("precious");
    std::fs::write(&precious, "content").unwrap();
    std::os::unix::fs::symlink(&precious, directory.path().join("link")).unwrap();
    for name in ["precious", "link", "."] {
        let error = outpage_server::listen(&directory.path().join(name));
        let error = error.err().unwrap().to_string();
        assert!(error.contains("no socket"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "content");
    assert!(directory.path().join("link").is_symlink());
    let first = outpage_server::listen(&path).unwrap();
    let taken = outpage_server::listen(&path).err().unwrap().to_string();
    assert!(taken.contains("another server"), "{taken}");
    drop(first);
    let listener = outpage_server::listen(&path).unwrap();
    let mut options = outpage_server::Options::new(1024);
    options.discard = "sometimes".to_owned();
    let error = Server::new(options, listener).err().unwrap().to_string();
    assert!(
        error.contains("sometimes") && error.contains("on-demand"),
        "{error}"
    );
}
