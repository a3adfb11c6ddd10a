//! With the kernel's own userfaultfd: what is taken, what is given back, and when.

use std::thread;

use outpage_sys::landing;
use outpage_sys::map::{self, Area};
use outpage_sys::own::Fork;
use outpage_sys::say;
use outpage_sys::uffd::{Features, Message, Mode, Wanted};

use super::*;

/// Registered pages, and what a pager sees them by.
struct Stage {
    uffd: Uffd,
    pagemap: Pagemap,
    memory: Memory,
    program: Area,
    turns: Arc<Turns>,
    releaser: Releaser,
}

impl Stage {
    /// Of `pages` pages, each with its number plus 1 in every byte; `None`, said loudly, without a userfaultfd.
    fn new(pages: usize) -> Option<Self> {
        let events = Features::EVENT_REMAP.plus(Features::EVENT_REMOVE);
        let wanted = Wanted {
            inherited: None,
            required: Features::PAGEFAULT_FLAG_WP.plus(events),
            optional: Features::NONE,
        };
        let uffd = match Uffd::open(&wanted) {
            Ok(uffd) => uffd,
            Err(error) => {
                say::say(&["SKIPPED: ", &error.to_string()]);
                return None;
            }
        };
        let area = |pages| Area::new(pages * PAGE_BYTES, Fork::Inherited).expect("memory");
        let (program, mut source) = (area(pages), area(1));
        let registered = uffd.register(program.start(), program.len(), Mode::both());
        registered.expect("registered");
        for page in 0..pages {
            source.bytes_mut(0, PAGE_BYTES).fill(page as u8 + 1);
            let to = program.start() + page * PAGE_BYTES;
            let copied = uffd.copy(to, source.start(), PAGE_BYTES, CopyMode::default());
            assert_eq!(copied.stop, None);
        }
        let turns = Arc::<Turns>::default();
        Some(Self {
            uffd,
            pagemap: Pagemap::open().expect("pagemap"),
            memory: Memory::open().expect("mem"),
            program,
            releaser: Releaser::new(turns.clone()),
            turns,
        })
    }

    fn senses(&self) -> Senses<'_> {
        Senses {
            uffd: &self.uffd,
            pagemap: &self.pagemap,
            memory: &self.memory,
        }
    }

    fn part(&self) -> Part {
        Part {
            address: self.program.start(),
            pages: self.program.len() / PAGE_BYTES,
        }
    }

    fn is_empty(&self, page: usize) -> bool {
        let at = self.program.start() + page * PAGE_BYTES;
        self.pagemap.page(at).expect("looked up").empty()
    }

    /// Has another thread make `call`, and hears what is said until it is made.
    fn beside<T: Send>(&self, call: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let thread = scope.spawn(call);
            while !thread.is_finished() {
                let hears = |uffd: &Uffd| uffd.let_change_pass();
                self.releaser.listen(&self.uffd, hears);
            }
            thread.join().expect("no panic")
        })
    }

    /// Moves the last page of the program's on to itself, past all hooks.
    fn move_unseen(&self) {
        let from = self.program.start() + self.program.len() - PAGE_BYTES;
        let to = map::reserve(PAGE_BYTES).expect("address space");
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        let moved = self.beside(|| map::mremap(from, PAGE_BYTES, PAGE_BYTES, flags, to));
        assert_eq!(moved, Ok(to));
        self.uffd.unregister(to, PAGE_BYTES).expect("unregistered");
        map::munmap(to, PAGE_BYTES).expect("unmapped");
        while self.uffd.next_change().is_some() {}
    }
}

#[test]
fn what_was_moved_there_and_taken_is_given_back() {
    let Some(stage) = Stage::new(3) else { return };
    let (part, mut takes) = (stage.part(), Takes::new().expect("memory"));
    let (to, len) = (takes.start(), part.pages * PAGE_BYTES);
    let taken = stage.beside(|| landing::take(part.address, len, to));
    assert_eq!(taken, Ok(()));
    takes.keep(part, to, &stage.pagemap, &stage.memory);
    takes.clear(&stage.uffd).expect("cleared");
    // Attended to: what it says is not news any more.
    assert!(matches!(
        stage.uffd.next_change(),
        Some(Message::Remapped { .. })
    ));

    let second = part.address + PAGE_BYTES;
    stage.releaser.takes.replace(Some(takes));
    assert!(stage.releaser.give_back(second, &stage.uffd));
    assert_eq!(
        [0, 1, 2].map(|page| stage.is_empty(page)),
        [true, false, true]
    );
    assert_eq!(stage.program.bytes(PAGE_BYTES, PAGE_BYTES), [2; PAGE_BYTES]);
    assert!(
        !stage.releaser.give_back(part.end(), &stage.uffd),
        "of nobody"
    );

    stage.releaser.undisturbed();
    assert!(!stage.releaser.give_back(part.address, &stage.uffd));
}

#[test]
fn pages_are_thrown_away_until_memory_was_moved_unseen_and_taken_from_then_on() {
    let Some(stage) = Stage::new(3) else { return };
    let mut out = [Released::NEITHER];
    let first = Part {
        pages: 1,
        ..stage.part()
    };
    let released = stage.releaser.release(&[first], stage.senses(), &mut out);
    assert_eq!((released, out[0].done), (Ok(()), true));
    assert!(stage.releaser.takes.borrow().is_none());

    stage.move_unseen();
    let second = Part {
        address: first.end(),
        pages: 1,
    };
    let released = stage.releaser.release(&[second], stage.senses(), &mut out);
    assert_eq!((released, out[0].done), (Ok(()), true));
    assert!(stage.is_empty(0) && stage.is_empty(1));
    let takes = stage.releaser.takes.borrow();
    let landing = takes.as_ref().expect("a landing").start();
    assert!(stage.pagemap.page(landing).expect("looked up").empty());
    // Nothing of it is the program's.
    assert_eq!(stage.uffd.next_change(), None);
}

#[test]
fn who_moves_memory_in_its_turn_is_no_reason() {
    let Some(stage) = Stage::new(2) else { return };
    let turns = stage.turns.clone();
    let to = map::reserve(PAGE_BYTES).expect("address space");
    let from = stage.program.start();
    let moved = stage.beside(move || {
        let _turn = turns.take();
        landing::take(from, PAGE_BYTES, to)
    });
    assert_eq!(moved, Ok(()));
    assert!(!stage.releaser.moves_unseen.get());
    stage.move_unseen();
    assert!(stage.releaser.moves_unseen.get());
    stage.uffd.unregister(to, PAGE_BYTES).expect("unregistered");
    map::munmap(to, PAGE_BYTES).expect("unmapped");
}
