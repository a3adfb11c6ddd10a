//! Many clients on one server, created and killed at random, of which half do what no client should: who does nothing wrong loses nothing, the limit holds,
//! and nothing is left behind.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use outpage_client::{Client, Object, Share};
use outpage_sys::shared::Whole;
use outpage_sys::socket;
use outpage_wire::{MESSAGE_BYTES_MAX, Pages, Reply, Request};

mod common;
use common::raw::Raw;
use common::{Random, Served, alone, can_be_served, check, own, survives, write};

/// What a child is to do, and where.
const ROLE: &str = "OUTPAGE_TEST_ROLE";
const SOCKET: &str = "OUTPAGE_TEST_SOCKET";

/// Half of them are clients as they should be.
const ROLES: [&str; 10] = [
    "reads", "marks", "ends", "marks", "reads", "garbage", "cuts", "floods", "flips", "silent",
];

/// Of the children one is killed in as many rounds, on average: with sixty-four at once they have ten seconds each.
const LIFE: u64 = 4;

/// The pages of a child's object: four times what it has of the limit.
const PAGES: u64 = 2048;

fn child(served: &Served, role: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_child_of_another_test", "--nocapture"]);
    command.env(ROLE, role).env(SOCKET, served.socket());
    command.stdout(Stdio::null());
    // Of one that does as it should, why it failed is to be read.
    if !ROLES[..ROLES.len() / 2].contains(&role) {
        command.stderr(Stdio::null());
    }
    command.spawn().unwrap()
}

/// Does nothing, but where another test started it.
#[test]
fn a_child_of_another_test() {
    let (Ok(role), Ok(path)) = (std::env::var(ROLE), std::env::var(SOCKET)) else {
        return;
    };
    let mut random = Random(u64::from(std::process::id()));
    let path = Path::new(&path);
    match role.as_str() {
        "garbage" => sends_garbage(path, &mut random),
        "cuts" => cuts_short(path, &mut random),
        "floods" => floods(path),
        "flips" => flips(path, &mut random),
        "silent" => says_nothing(path, &mut random),
        honest => works(path, honest, &mut random),
    }
}

/// Reads or gives up what is its own, and looks at it.
fn works(path: &Path, role: &str, random: &mut Random) {
    let client = Client::connect(path, Share::default()).unwrap();
    let object = client.create(PAGES * 4096).unwrap();
    let seed = u64::from(std::process::id());
    (0..PAGES).for_each(|page| write(&object, seed, page));
    for step in 0.. {
        match role {
            "marks" => {
                let page = random.below(PAGES);
                object.mark(page, 1 + random.below(PAGES - page));
                write(&object, seed, random.below(PAGES));
                if step % 16 == 0 {
                    takes_back(&object, seed, random);
                }
            }
            "ends" if step == 500 => std::process::exit(0),
            _ => check(&object, seed, random.below(PAGES)),
        }
    }
}

/// What was kept is as it was. What was lost is written anew.
fn takes_back(object: &Object, seed: u64, random: &mut Random) {
    let lost = object.take_back(0, PAGES).unwrap();
    let gone = (0..PAGES).filter(|&page| lost.contains(page));
    gone.for_each(|page| write(object, seed, page));
    (0..64).for_each(|_| check(object, seed, random.below(PAGES)));
}

fn sends_garbage(path: &Path, random: &mut Random) {
    loop {
        let raw = Raw::connect(path);
        let length = 1 + random.below(MESSAGE_BYTES_MAX as u64 + 100) as usize;
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        let _uffd = (random.below(2) == 0).then(|| raw.hello());
        let _ = socket::send(raw.0.number(), &bytes, &[]);
        while raw.receive().is_some() {}
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn cuts_short(path: &Path, random: &mut Random) {
    let pages = Pages {
        object: 0,
        first: 0,
        pages: 1,
    };
    let requests = [
        Request::Create { pages: 9 },
        Request::Flush(pages),
        Request::TakeBack(pages),
        Request::Stats,
    ];
    loop {
        let raw = Raw::connect(path);
        let _uffd = raw.hello();
        let mut bytes = Vec::new();
        requests[random.below(4) as usize].encode(1, &mut bytes);
        let length = 1 + random.below(bytes.len() as u64 - 1) as usize;
        let _ = socket::send(raw.0.number(), &bytes[..length], &[]);
        while raw.receive().is_some() {}
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Asks, and never reads an answer.
fn floods(path: &Path) {
    let raw = Raw::connect(path);
    let _uffd = raw.hello();
    socket::set_nonblocking(raw.0.number()).unwrap();
    let mut bytes = Vec::new();
    loop {
        Request::Stats.encode(1, &mut bytes);
        if socket::send(raw.0.number(), &bytes, &[]).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Changes the bits and their count while the server reads them, and touches the pages beside.
fn flips(path: &Path, random: &mut Random) {
    let raw = Raw::connect(path);
    let uffd = raw.hello();
    raw.send(Request::Create { pages: PAGES }, &[]);
    let Some((Reply::Created { object, .. }, files)) = raw.receive() else {
        return;
    };
    let content = Whole::new(files[0].number(), PAGES as usize * 4096).unwrap();
    let marks = Whole::new(files[1].number(), 8192).unwrap();
    let address = content.address();
    uffd.register_shared(address, PAGES as usize * 4096)
        .unwrap();
    let address = address as u64;
    raw.send(Request::Map { object, address }, &[]);
    assert!(raw.receive().is_some());
    let mut other = Random(random.below(1 << 30));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let word = other.below(PAGES * 512) as usize;
                content.words()[word].fetch_add(1, Ordering::Relaxed);
            }
        });
        for round in 0_u64.. {
            let word = random.below(marks.words().len() as u64) as usize;
            marks.words()[word].store(random.0, Ordering::Relaxed);
            if round % 4096 == 0 {
                let pages = PAGES;
                let all = Pages {
                    object,
                    first: 0,
                    pages,
                };
                raw.send(Request::TakeBack(all), &[]);
                if raw.receive().is_none() {
                    return;
                }
            }
        }
    });
}

/// Connects, says hello or not even that, asks a little and never hears.
fn says_nothing(path: &Path, random: &mut Random) {
    let raw = Raw::connect(path);
    let _uffd = (random.below(2) == 0).then(|| raw.hello());
    for _ in 0..40 {
        raw.send(Request::Create { pages: 1 }, &[]);
    }
    std::thread::sleep(Duration::from_secs(3600));
}

/// A number from the environment.
fn asked(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// As many at once as `OUTPAGE_STRESS_CLIENTS` says, for `OUTPAGE_STRESS_SECONDS`; a few for three seconds without.
#[test]
fn survivors_of_a_crowd_read_what_they_wrote() {
    let _alone = alone();
    if !can_be_served() {
        return;
    }
    let most = asked("OUTPAGE_STRESS_CLIENTS", 6);
    let seconds = asked("OUTPAGE_STRESS_SECONDS", 3);
    let before = own();
    let frames = 1024 + 512 * most;
    let served = Served::start(frames, |options| options.clients_max = 4 * most as usize);
    survives(served, PAGES, |served| {
        let (mut random, end) = (Random(29), Instant::now() + Duration::from_secs(seconds));
        let mut children: Vec<(usize, Child)> = Vec::new();
        let (mut rounds, mut done, mut began) = (0_u64, 0_u64, [0_u64; ROLES.len()]);
        let mut most_frames = 0;
        while Instant::now() < end {
            rounds += 1;
            if (children.len() as u64) < most {
                let role = random.below(ROLES.len() as u64) as usize;
                began[role] += 1;
                children.push((role, child(served, ROLES[role])));
            }
            std::thread::sleep(Duration::from_millis(random.below(40)));
            children.retain_mut(|(role, child)| {
                let status = child.try_wait().unwrap();
                let honest = *role < ROLES.len() / 2;
                assert!(
                    !honest || status.is_none_or(|status| status.success()),
                    "a client that {} failed: {status:?}",
                    ROLES[*role]
                );
                if status.is_none() && random.below(LIFE * most) == 0 {
                    let _ = child.kill();
                    child.wait().unwrap();
                    return false;
                }
                done += u64::from(status.is_some());
                status.is_none()
            });
            if rounds % 16 == 0 {
                let now = served.frames();
                most_frames = most_frames.max(now);
                assert!(now <= frames, "{now} frames of {frames}");
            }
        }
        println!(
            "{rounds} rounds, {} clients, {done} ended by themselves, at most {most_frames} frames of {frames}",
            began.iter().sum::<u64>()
        );
        for (role, count) in ROLES.iter().zip(began) {
            println!("{role}: {count}");
        }
        for (_, mut child) in children {
            let _ = child.kill();
            child.wait().unwrap();
        }
    });
    assert_eq!(own(), before, "descriptors and threads");
}
