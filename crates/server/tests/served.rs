//! Clients of a server in this process: what they read is what they wrote, whatever left in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use outpage_client::{Client, Object, Share};
use outpage_server::{Options, Server, listen};

const WORDS: usize = 512;

/// A server on a thread of its own.
struct Served {
    directory: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<(usize, usize)>>,
}

impl Served {
    fn start(limit_pages: u64, change: impl FnOnce(&mut Options)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Options::new(limit_pages);
        change(&mut options);
        let listener = listen(&directory.path().join("socket")).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let mut server = Server::new(options, listener).unwrap();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                server.round().unwrap();
            }
            server.held()
        });
        Self {
            directory,
            stop,
            thread: Some(thread),
        }
    }

    fn connect(&self, share: Share) -> Client {
        Client::connect(self.directory.path().join("socket"), share).unwrap()
    }

    /// Clients and extents that it has at its end.
    fn end(mut self) -> (usize, usize) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn content(seed: u64, page: u64, word: u64) -> u64 {
    (seed << 48 ^ page << 16 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

fn write(object: &Object, seed: u64, page: u64) {
    let words = &object.words()[page as usize * WORDS..][..WORDS];
    for (word, at) in words.iter().zip(0..) {
        word.store(content(seed, page, at), Ordering::Relaxed);
    }
}

fn check(object: &Object, seed: u64, page: u64) {
    let words = &object.words()[page as usize * WORDS..][..WORDS];
    for (word, at) in words.iter().zip(0..) {
        assert_eq!(
            word.load(Ordering::Relaxed),
            content(seed, page, at),
            "page {page}, word {at}"
        );
    }
}

#[test]
fn four_times_the_limit_is_read_as_it_was_written() {
    let served = Served::start(2048, |_| {});
    let client = served.connect(Share::default());
    let pages = 8192;
    let object = client.create(pages * 4096).unwrap();
    (0..pages).for_each(|page| write(&object, 1, page));
    (0..pages).for_each(|page| check(&object, 1, page));
    let stats = client.stats().unwrap();
    println!("{stats:?}");
    assert!(stats.paged_in > 6000 && stats.paged_out > 6000);
    assert!(stats.frames <= 2048);
    drop((object, client));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(served.end(), (0, 0));
}
