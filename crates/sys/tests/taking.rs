//! Pages that are taken to a landing: what is moved, what is refused and what is heard of it.

mod common;

use std::thread;

use common::{area, peek, poke, uffd};
use outpage_core::units::PAGE_BYTES;
use outpage_sys::landing::{self, Landing};
use outpage_sys::map::{self, Area};
use outpage_sys::pagemap::Pagemap;
use outpage_sys::raw::Errno;
use outpage_sys::uffd::{CopyMode, Features, Message, Mode, Uffd};

/// Four pages that are registered, of which all but the last have a byte of their own.
fn registered() -> Option<(Uffd, Area)> {
    let uffd = uffd(Features::EVENT_REMAP)?;
    let program = area(4);
    uffd.register(program.start(), program.len(), Mode::both())
        .unwrap();
    let source = area(1);
    for index in 0..3 {
        poke(source.start(), index as u8 + 1);
        let to = program.start() + index * PAGE_BYTES;
        let copied = uffd.copy(to, source.start(), PAGE_BYTES, CopyMode::default());
        assert_eq!(copied.stop, None);
    }
    Some((uffd, program))
}

/// Takes from `from` to `to` by another thread, and returns what was said of it.
fn take(uffd: &Uffd, from: usize, len: usize, to: usize) -> (Result<(), Errno>, Vec<Message>) {
    let thread = thread::spawn(move || landing::take(from, len, to));
    let mut said = Vec::new();
    while !thread.is_finished() {
        uffd.let_change_pass();
        said.extend(std::iter::from_fn(|| uffd.next_change()));
    }
    (thread.join().unwrap(), said)
}

#[test]
fn what_is_taken_is_there_and_its_mapping_stays_without_pages() {
    let Some((uffd, program)) = registered() else {
        return;
    };
    let (from, len) = (program.start(), program.len());
    let landing = Landing::new(4).unwrap();
    let to = landing.start();
    let (taken, said) = take(&uffd, from, len, to);
    assert_eq!(
        (taken, said),
        (Ok(()), vec![Message::Remapped { from, to, len }])
    );

    let pagemap = Pagemap::open().unwrap();
    for index in 0..4 {
        let at = index * PAGE_BYTES;
        assert!(pagemap.page(from + at).unwrap().empty(), "{index}");
        assert_eq!(
            pagemap.page(to + at).unwrap().present(),
            index < 3,
            "{index}"
        );
    }
    assert_eq!([0, 1, 2].map(|i| peek(to + i * PAGE_BYTES)), [1, 2, 3]);
    assert_eq!(uffd.is_registered(from), Some(true));

    // Cleared by the thread that reads messages, so none may come of it.
    let (start, bytes) = landing.span();
    uffd.unregister(start, bytes).unwrap();
    landing.clear().unwrap();
    assert!(pagemap.page(to).unwrap().empty());
    assert!(!uffd.has_read() && uffd.is_calm());
}

#[test]
fn what_is_locked_stays_and_stays_locked() {
    let Some((uffd, program)) = registered() else {
        return;
    };
    map::mlock(program.start(), PAGE_BYTES, true).unwrap();
    let landing = Landing::new(4).unwrap();
    // Of two pages one is locked.
    let (taken, said) = take(&uffd, program.start(), 2 * PAGE_BYTES, landing.start());
    assert_eq!((taken, said), (Err(Errno::EINVAL), vec![]));
    assert_eq!(peek(program.start()), 1);
    assert_eq!(
        map::release(program.start(), PAGE_BYTES),
        Err(Errno::EINVAL)
    );
}

/// So who takes from it can tell.
#[test]
fn nothing_is_said_of_memory_that_is_not_registered_and_it_can_be_put_back() {
    let Some((uffd, _program)) = registered() else {
        return;
    };
    let other = area(1);
    poke(other.start(), 9);
    let landing = Landing::new(1).unwrap();
    let (taken, said) = take(&uffd, other.start(), PAGE_BYTES, landing.start());
    assert_eq!((taken, said), (Ok(()), vec![]));
    assert_eq!((peek(other.start()), peek(landing.start())), (0, 9));
    let (put_back, said) = take(&uffd, landing.start(), PAGE_BYTES, other.start());
    assert_eq!((put_back, said), (Ok(()), vec![]));
    assert_eq!(peek(other.start()), 9);
}
