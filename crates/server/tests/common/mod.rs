//! A server in the test's process, and contents that tell pages apart.
#![allow(dead_code)] // each test binary uses a part

pub mod raw;

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use outpage_client::{Client, Error, Object, Share};
use outpage_server::{Options, Server, listen};

/// Words of a page.
pub const WORDS: usize = 512;

/// Whether this machine has what a client needs; says so where it has not.
pub fn can_be_served() -> bool {
    let missing = Client::connect("/nowhere/socket", Share::default()).err();
    if let Some(Error::Uffd(why)) = missing {
        println!("SKIPPED: {why}");
        return false;
    }
    true
}

/// A server on a thread of its own.
pub struct Served {
    directory: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    pause: Arc<AtomicBool>,
    /// It is paused, and knows it.
    paused: Arc<AtomicBool>,
    /// Clients and extents that it has, after its last round.
    held: Arc<[AtomicUsize; 2]>,
    thread: Option<JoinHandle<(usize, usize)>>,
}

impl Served {
    pub fn start(limit_pages: u64, change: impl FnOnce(&mut Options)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Options::new(limit_pages);
        change(&mut options);
        let listener = listen(&directory.path().join("socket")).unwrap();
        let [stop, pause, paused] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        let held = Arc::<[AtomicUsize; 2]>::default();
        let (stopped, to_pause, is_paused) = (stop.clone(), pause.clone(), paused.clone());
        let says = held.clone();
        let mut server = Server::new(options, listener).unwrap();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let pause = to_pause.load(Ordering::Acquire);
                is_paused.store(pause, Ordering::Release);
                if pause {
                    std::thread::sleep(Duration::from_millis(1));
                } else {
                    server.round().unwrap();
                    let (clients, extents) = server.held();
                    says[0].store(clients, Ordering::Relaxed);
                    says[1].store(extents, Ordering::Relaxed);
                }
            }
            server.held()
        });
        Self {
            directory,
            stop,
            pause,
            paused,
            held,
            thread: Some(thread),
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub fn connect(&self) -> Client {
        self.connect_with(Share::default())
    }

    pub fn connect_with(&self, share: Share) -> Client {
        Client::connect(self.socket(), share).unwrap()
    }

    /// It serves nobody from now on, and does not end.
    pub fn pause(&self) {
        self.pause.store(true, Ordering::Release);
    }

    /// Frames that all objects have at a moment in which the server serves nobody.
    pub fn frames(&self) -> u64 {
        self.paused.store(false, Ordering::Relaxed);
        self.pause();
        wait_until("the server pauses", || self.paused.load(Ordering::Acquire));
        let frames = frames_of_objects();
        self.pause.store(false, Ordering::Relaxed);
        frames
    }

    /// Extents that clients have, after its last round.
    pub fn extents(&self) -> usize {
        self.held[1].load(Ordering::Relaxed)
    }

    /// Clients and extents that it has at its end.
    pub fn end(mut self) -> (usize, usize) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }

    /// Ends once nobody is connected any more: nothing is left behind.
    pub fn end_empty(self) {
        wait_until("the last client is forgotten", || {
            self.held[0].load(Ordering::Relaxed) == 0
        });
        assert_eq!(self.end(), (0, 0), "clients and extents");
    }
}

/// Pages that the primary objects of a server in this process have.
fn frames_of_objects() -> u64 {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let objects = descriptors.filter(|entry| {
        let name = std::fs::read_link(entry.path()).unwrap_or_default();
        name.to_string_lossy().contains("outpage-object")
    });
    let pages = objects.map(|entry| {
        let file = std::fs::metadata(entry.path());
        // Blocks of 512 bytes (stat(2)).
        file.map_or(0, |file| file.blocks() / 8)
    });
    pages.sum()
}

/// A client that reads and writes what is its own while `others` do what they do; then nothing is left but it.
pub fn survives(served: Served, pages: u64, others: impl FnOnce(&Served)) {
    let client = served.connect();
    let object = client.create(pages * 4096).unwrap();
    (0..pages).for_each(|page| write(&object, 5, page));
    others(&served);
    (0..pages).for_each(|page| check(&object, 5, page));
    client.check().unwrap();
    drop((object, client));
    served.end_empty();
}

pub fn content(seed: u64, page: u64, word: u64) -> u64 {
    (seed << 48 ^ page << 16 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

pub fn write(object: &Object, seed: u64, page: u64) {
    let words = &object.words()[page as usize * WORDS..][..WORDS];
    for (word, at) in words.iter().zip(0..) {
        word.store(content(seed, page, at), Ordering::Relaxed);
    }
}

/// Every byte of the page is as [`write`] left it.
pub fn check(object: &Object, seed: u64, page: u64) {
    let words = &object.words()[page as usize * WORDS..][..WORDS];
    for (word, at) in words.iter().zip(0..) {
        let found = word.load(Ordering::Relaxed);
        assert_eq!(
            found,
            content(seed, page, at),
            "page {page}, word {at}, seed {seed}"
        );
    }
}

/// Every byte of the page is zero.
pub fn check_zero(object: &Object, page: u64) {
    let words = &object.words()[page as usize * WORDS..][..WORDS];
    let first = words
        .iter()
        .position(|word| word.load(Ordering::Relaxed) != 0);
    assert_eq!(first, None, "page {page}");
}

/// Numbers that look random, the same for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// Waits until `what` is so; fails after ten seconds in which it was not.
pub fn wait_until(what: &str, is: impl FnMut() -> bool) {
    wait_within(Duration::from_secs(10), what, is);
}

/// What has not come after so long never comes.
pub fn wait_within(never: Duration, what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < never, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One test at a time: those that count what the process has.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Descriptors of this process, and threads of Outpage's.
pub fn own() -> (usize, usize) {
    let ours = |task: &std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| name.starts_with("outpage"))
    };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    (descriptors, tasks.filter(ours).count())
}
