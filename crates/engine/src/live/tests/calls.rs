//! What a program asks of its pager beside touching pages: where they are, that they stay, leave, come, or need not be kept.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use outpage_core::contract::Advice;
use outpage_core::notify::Guest;
use outpage_core::page::State;
use outpage_core::units::{Nanos, PAGE_BYTES};
use outpage_sys::shared::{self, Words};

use super::{PAGES, each};
use crate::call::Call;
use crate::leaving::{BELL_WORDS, Leaving, Topic};
use crate::notify::subscription;
use crate::tell::{self, Place};
use crate::tests::fake::at;
use crate::tests::paged::{LIMIT, Paged};
use crate::tests::random::Random;

const EAGAIN: isize = -(libc::EAGAIN as isize);
const EINVAL: isize = -(libc::EINVAL as isize);
const ENOMEM: isize = -(libc::ENOMEM as isize);

/// Address and length of `count` pages from `first` on.
const fn range(first: usize, count: usize) -> (usize, usize) {
    (at(first), count * PAGE_BYTES)
}

/// `make` of `count` pages from `first` on.
fn of(make: fn(usize, usize) -> Call, first: usize, count: usize) -> Call {
    let (addr, len) = range(first, count);
    make(addr, len)
}

fn pin(first: usize, count: usize) -> Call {
    of(|addr, len| Call::Pin { addr, len }, first, count)
}

fn unpin(first: usize, count: usize) -> Call {
    of(|addr, len| Call::Unpin { addr, len }, first, count)
}

fn lock(first: usize, count: usize) -> Call {
    of(|addr, len| Call::Mlock { addr, len }, first, count)
}

fn discardable(first: usize, count: usize) -> Call {
    of(|addr, len| Call::Discardable { addr, len }, first, count)
}

fn take_back(first: usize, count: usize) -> Call {
    of(|addr, len| Call::TakeBack { addr, len }, first, count)
}

fn advise(first: usize, count: usize, advice: Advice) -> Call {
    let (addr, len) = range(first, count);
    Call::Advise { addr, len, advice }
}

/// What `call` answers, and the words that it wrote.
fn ask(paged: &mut Paged, words: usize, call: Call) -> (isize, Arc<Words>) {
    let words = Arc::new(shared::new_words(words).expect("memory"));
    paged.live.calls.offer(words.clone()).expect("no other");
    let answer = paged.call(call);
    // Whoever was refused takes it back.
    paged.live.calls.take_offer();
    (answer, words)
}

/// Of the subscription that has the page at `addr`: pages that went out and came back, major and minor faults.
fn traffic(paged: &mut Paged, addr: usize) -> [u64; 4] {
    let (answer, words) = ask(paged, tell::TRAFFIC_WORDS, Call::Traffic { addr });
    assert_eq!(answer, 0);
    [0, 1, 2, 3].map(|number| tell::wide(&words, number))
}

/// Major and minor faults of the pager.
fn faults(paged: &Paged) -> [u64; 2] {
    let stats = paged.live.pager.stats();
    [stats.major_faults, stats.minor_faults]
}

fn places(paged: &mut Paged, first: usize, count: usize) -> Vec<Place> {
    let (addr, len) = range(first, count);
    let (answer, words) = ask(paged, Place::words(count), Call::Places { addr, len });
    assert_eq!(answer, 0);
    (0..count).map(|page| Place::read(&words, page)).collect()
}

/// The pages of the range, counted from its first, that were dropped since they need not be kept.
fn wanted(paged: &mut Paged, first: usize, count: usize) -> Vec<usize> {
    let (addr, len) = range(first, count);
    let call = Call::Wanted { addr, len };
    let (answer, words) = ask(paged, tell::bit_words(count), call);
    let dropped: Vec<_> = (0..count).filter(|&page| tell::bit(&words, page)).collect();
    assert_eq!(answer, dropped.len() as isize);
    dropped
}

fn write_all(paged: &mut Paged, pages: Range<usize>, byte: u8) {
    for page in pages {
        paged.touch(1, page, Some(byte));
    }
}

/// What was refused as a victim may be one again.
fn tick(paged: &mut Paged) {
    paged.live.next_tick = Nanos(0);
    paged.live.between_events();
    paged.settle();
}

/// Pages from `other` on are written until one of `pages` is out. It is looked after each of them: read-ahead may bring it back before the last. What was
/// refused as a victim is tried again at a tick. In a loop one victim of 32 is an old one, and one of as many as there are of those had been refused:
/// that took 0 to 27 rounds in 48 tries.
fn leave_in_the_end(paged: &mut Paged, pages: Range<usize>, other: usize) {
    for _ in 0..100 {
        tick(paged);
        for page in other..PAGES {
            paged.touch(1, page, Some(1));
            if pages
                .clone()
                .any(|page| state(paged, page) == State::PagedOut)
            {
                return;
            }
        }
    }
    panic!("all of {pages:?} stay");
}

fn state(paged: &Paged, page: usize) -> State {
    paged.live.pager.state(paged.number(page))
}

#[test]
fn pinned_pages_stay_until_they_are_unpinned() {
    each(|mut paged| {
        write_all(&mut paged, 0..32, 7);
        assert_eq!(paged.call(pin(8, 16)), 0);
        for page in 8..24 {
            paged.touch(1, page, None);
        }
        for _ in 0..3 {
            write_all(&mut paged, 32..PAGES, 1);
            tick(&mut paged);
            let pinned: Vec<_> = (8..24).map(|page| state(&paged, page)).collect();
            assert!(pinned.iter().all(|&s| s == State::Resident), "{pinned:?}");
        }
        assert_eq!(state(&paged, 0), State::PagedOut);
        assert_eq!(paged.call(unpin(8, 16)), 0);
        leave_in_the_end(&mut paged, 8..9, 32);
        assert_eq!(paged.touch(1, 8, None), 7);
    });
}

#[test]
fn pins_are_counted() {
    each(|mut paged| {
        paged.touch(1, 8, Some(7));
        assert_eq!(paged.call(pin(8, 1)), 0);
        assert_eq!(paged.call(pin(0, 16)), 0);
        assert_eq!(paged.call(unpin(0, 16)), 0);
        write_all(&mut paged, 32..PAGES, 1);
        tick(&mut paged);
        write_all(&mut paged, 32..PAGES, 1);
        assert_eq!(state(&paged, 8), State::Resident);
        assert_eq!(paged.call(unpin(8, 1)), 0);
        leave_in_the_end(&mut paged, 8..9, 32);
    });
}

#[test]
fn half_of_the_limit_may_be_pinned_and_the_first_pin_whatever_it_is() {
    each(|mut paged| {
        let most = paged.live.lockable();
        assert!(most <= LIMIT / 2);
        assert_eq!(paged.call(pin(0, most)), 0);
        assert_eq!(paged.call(pin(most, 1)), EAGAIN);
        assert_eq!(paged.call(unpin(0, most)), 0);
        assert_eq!(paged.call(pin(0, most + 1)), 0, "the first");
        assert_eq!(paged.call(pin(PAGES - 1, 1)), EAGAIN);
        assert_eq!(paged.call(unpin(0, most + 1)), 0);
        assert_eq!(paged.call(pin(PAGES - 1, 1)), 0);
    });
}

#[test]
fn half_of_the_limit_may_be_locked_and_nothing_of_what_is_beyond() {
    each(|mut paged| {
        let most = paged.live.lockable();
        assert_eq!(paged.call(lock(0, most + 1)), ENOMEM);
        assert_eq!(paged.live.world.space.locked_bytes(), 0);
        assert_eq!(paged.call(lock(0, most)), 0);
        // Locked already: nothing more is.
        assert_eq!(paged.call(lock(1, most - 1)), 0);
        assert_eq!(paged.call(lock(most, 1)), ENOMEM);
        write_all(&mut paged, 0..PAGES, 3);
        tick(&mut paged);
        assert!((0..most).all(|page| state(&paged, page) == State::Resident));
        let (addr, len) = range(0, most);
        assert_eq!(paged.call(Call::Munlock { addr, len }), 0);
        assert_eq!(paged.live.world.space.locked_bytes(), 0);
        leave_in_the_end(&mut paged, 0..most, most);
    });
}

#[test]
fn every_page_has_a_place() {
    each(|mut paged| {
        paged.touch(1, 1, Some(7));
        paged.push_out(1, 600..PAGES);
        paged.settle();
        paged.touch(1, 2, Some(7));
        let beyond = places(&mut paged, PAGES - 1, 3);
        assert_eq!(beyond[1..], [Place::Unmanaged; 2]);
        let found = places(&mut paged, 1, 2);
        assert_eq!(found, [Place::PagedOut, Place::Resident]);
        // Beyond what is filled with zeroes along with a touch.
        assert_eq!(places(&mut paged, 300, 1), [Place::Untouched]);
        paged.fake.remove(2, 1, false);
        assert_eq!(places(&mut paged, 2, 1), [Place::Untouched]);
    });
}

#[test]
fn an_answer_needs_words_that_hold_it() {
    each(|mut paged| {
        let (addr, len) = range(0, 64);
        let asked = [
            Call::Places { addr, len },
            Call::Wanted { addr, len },
            Call::Counts,
            Call::Subscribe { addr, len },
            Call::Traffic { addr },
        ];
        for call in asked {
            assert_eq!(paged.call(call), EAGAIN, "{call:?}");
        }
        let few = [Call::Places { addr, len }, Call::Counts];
        for call in few {
            assert_eq!(ask(&mut paged, 1, call).0, EINVAL, "{call:?}");
        }
        // Nor is half a page one.
        let (addr, len) = (addr + 1, len);
        for call in [
            Call::Discardable { addr, len },
            Call::TakeBack { addr, len },
        ] {
            assert_eq!(paged.call(call), EINVAL, "{call:?}");
        }
    });
}

#[test]
fn what_was_counted_is_told() {
    each(|mut paged| {
        write_all(&mut paged, 0..PAGES, 1);
        paged.touch(1, 0, None);
        paged.settle();
        let (answer, words) = ask(&mut paged, tell::COUNTS_WORDS, Call::Counts);
        assert_eq!(answer, 0);
        let told = tell::counts(&words);
        let stats = paged.live.pager.stats();
        assert_eq!(told.zero_fills, stats.zero_fills);
        assert_eq!(told.page_outs, stats.page_outs);
        assert_eq!(told.major_faults, stats.major_faults);
        assert!(told.page_outs > 0 && told.major_faults > 0);
    });
}

#[test]
fn what_need_not_be_kept_is_dropped_and_told() {
    each(|mut paged| {
        write_all(&mut paged, 0..64, 7);
        assert_eq!(paged.call(discardable(16, 32)), 0);
        let before = paged.live.pager.stats().page_outs;
        write_all(&mut paged, 64..64 + LIMIT, 1);
        paged.settle();
        let dropped = wanted(&mut paged, 16, 32);
        assert!(!dropped.is_empty());
        for page in 16..48 {
            let lost = dropped.contains(&(page - 16));
            assert_eq!(paged.touch(1, page, None), if lost { 0 } else { 7 });
        }
        for page in (0..16).chain(48..64) {
            assert_eq!(paged.touch(1, page, None), 7);
        }
        assert!(paged.live.pager.stats().page_outs > before);
        // What is wanted is kept from now on.
        write_all(&mut paged, 16..48, 9);
        write_all(&mut paged, 64..PAGES, 1);
        assert!(wanted(&mut paged, 16, 32).is_empty());
        for page in 16..48 {
            assert_eq!(paged.touch(1, page, None), 9);
        }
    });
}

#[test]
fn what_is_cold_leaves_first_and_what_is_needed_comes() {
    each(|mut paged| {
        write_all(&mut paged, 0..LIMIT / 2, 7);
        assert_eq!(paged.call(advise(64, 32, Advice::Cold)), 0);
        let out = |paged: &Paged, pages: Range<usize>| {
            pages
                .filter(|&page| state(paged, page) == State::PagedOut)
                .count()
        };
        // Each write takes neighbours along that are staged: two of them have all of the cold pages.
        let mut next = LIMIT;
        while out(&paged, 64..96) < 32 {
            paged.touch(1, next, Some(1));
            next += 1;
        }
        let all = out(&paged, 0..LIMIT / 2);
        assert!(all <= 128, "{all} pages left before all cold ones had");
        write_all(&mut paged, LIMIT..PAGES, 1);
        paged.settle();
        assert_eq!(state(&paged, 64), State::PagedOut);
        assert_eq!(paged.call(advise(64, 8, Advice::WillNeed)), 0);
        paged.rounds_until(|paged| (64..72).all(|page| state(paged, page) != State::Reading));
        paged.settle();
        let there: Vec<_> = (64..72).map(|page| state(&paged, page)).collect();
        assert!(!there.contains(&State::PagedOut), "{there:?}");
        let reads = paged.live.pager.stats().page_in_reads;
        assert!((64..72).all(|page| paged.touch(1, page, None) == 7));
        assert_eq!(paged.live.pager.stats().page_in_reads, reads);
    });
}

#[test]
fn who_subscribes_knows_what_is_out() {
    each(|mut paged| {
        write_all(&mut paged, 0..PAGES, 1);
        paged.settle();
        let area = shared::new_words(subscription(64).expect("a size").words());
        let area = Arc::new(area.expect("memory"));
        let (addr, len) = range(0, 64);
        paged.live.calls.offer(area.clone()).expect("no other");
        let call = Call::Subscribe { addr, len };
        assert_eq!(paged.call(call), 0);
        let again = ask(&mut paged, 64, call).0;
        assert_eq!(again, -(libc::EBUSY as isize));
        for page in [3, 5] {
            paged.touch(1, page, Some(2));
        }
        write_all(&mut paged, 64..64 + LIMIT, 2);
        let before = (traffic(&mut paged, addr), faults(&paged));
        let mut were_out = 0;
        for page in [3, 9] {
            were_out += u64::from(state(&paged, page) == State::PagedOut);
            paged.touch(1, page, None);
        }
        paged.settle();
        let after = (traffic(&mut paged, addr), faults(&paged));
        // What the pager counted meanwhile was of these two pages alone.
        let [_, _, major, minor] = [0, 1, 2, 3].map(|at| after.0[at] - before.0[at]);
        assert_eq!([major, minor], [0, 1].map(|at| after.1[at] - before.1[at]));
        assert!(major == were_out && major > 0, "{major} of {were_out}");
        let mut out = [false; 64];
        let mut reader = Guest::attach(&area).expect("an area that was made");
        let _ = reader.drain(&area, |page, is_out| out[page as usize] = is_out);
        for (page, &told) in out.iter().enumerate() {
            let is_out = state(&paged, page) == State::PagedOut;
            assert_eq!(told, is_out, "page {page}");
        }
        assert!(!out[3] && !out[9]);
        let [went, came, ..] = after.0;
        assert!(went >= 1 && came >= 3, "{went} out, {came} back");
        let other = Call::Traffic { addr: at(64) };
        assert_eq!(ask(&mut paged, tell::TRAFFIC_WORDS, other).0, EINVAL);
    });
}

#[test]
fn who_listens_hears_of_each_page_before_it_is_out() {
    each(|mut paged| {
        write_all(&mut paged, 0..LIMIT / 2, 1);
        let (addr, len) = range(0, 64);
        let words = subscription(64).expect("a size").words() + BELL_WORDS;
        let area = Arc::new(shared::new_words(words).expect("memory"));
        paged.live.calls.offer(area.clone()).expect("no other");
        let call = Call::Listen { addr, len };
        assert_eq!(paged.call(call), 0);
        let guest = Guest::attach(&area).expect("an area that was made");
        let mut leaving = Leaving::new(area, guest, addr);
        let ear = leaving.ear();
        write_all(&mut paged, LIMIT / 2..PAGES, 1);
        paged.settle();
        let mut told = [false; 64];
        assert!(leaving.wait(|bytes| {
            let pages = (bytes.start - addr) / PAGE_BYTES..(bytes.end - addr) / PAGE_BYTES;
            told[pages].fill(true);
        }));
        let out = |paged: &Paged, page| state(paged, page) == State::PagedOut;
        assert!((0..64).any(|page| out(&paged, page)));
        for (page, &told) in told.iter().enumerate() {
            assert!(told || !out(&paged, page), "page {page}");
        }
        // What is unmapped is told of no more.
        assert_eq!(paged.live.world.who_hears(Topic::Leaving).len(), 1);
        paged.fake.remove(0, 64, true);
        write_all(&mut paged, 64..PAGES, 2);
        assert!(paged.live.world.who_hears(Topic::Leaving).is_empty());
        ear.close();
        assert!(!leaving.wait(|_| panic!("after the end")));
    });
}

/// What is written to `page`; not zero, or it would have no frame.
const fn byte(page: usize) -> u8 {
    1 + (page % 250) as u8
}

#[test]
fn what_goes_back_has_its_bytes_and_is_not_the_pagers() {
    each(|mut paged| {
        for page in 0..PAGES {
            paged.touch(1, page, Some(byte(page)));
        }
        assert_eq!(paged.call(take_back(100, 700)), 0);
        for page in 100..800 {
            let there = paged.fake.touch(1, at(page), None);
            assert_eq!(there, Some(byte(page)));
        }
        let found = places(&mut paged, 99, 702);
        assert!(found[1..701].iter().all(|&p| p == Place::Unmanaged));
        assert!(found[0] != Place::Unmanaged && found[701] != Place::Unmanaged);
        let used = paged.live.pager.frames_used();
        assert!(used <= paged.live.pager.limits().frames, "{used} frames");
        for page in (0..100).chain(800..PAGES) {
            assert_eq!(paged.touch(1, page, None), byte(page));
        }
    });
}

#[test]
fn what_was_mapped_over_is_forgotten_when_it_is_told() {
    each(|mut paged| {
        write_all(&mut paged, 0..PAGES, 1);
        paged.fake.cover(10, 20);
        let (addr, len) = range(10, 20);
        assert_eq!(paged.call(Call::Replaced { addr, len }), 0);
        let found = places(&mut paged, 9, 22);
        assert!(found[1..21].iter().all(|&p| p == Place::Unmanaged));
        // Mapped anew it is empty.
        paged.manage(10, 20);
        for page in 10..30 {
            paged.fake.state().forget_page(page);
            assert_eq!(paged.touch(1, page, None), 0);
        }
        assert_eq!((paged.touch(1, 9, None), paged.touch(1, 30, None)), (1, 1));
    });
}

/// What the program of [`any_order_of_calls_and_touches_finds_every_byte`] knows.
struct Model {
    bytes: Vec<u8>,
    /// Chunks that are pinned.
    pinned: Vec<usize>,
    /// Chunks that need not be kept.
    loose: Vec<usize>,
}

const CHUNK: usize = 8;

impl Model {
    fn call(&mut self, paged: &mut Paged, random: &mut Random) {
        let chunk = random.index(PAGES / CHUNK);
        let first = chunk * CHUNK;
        match random.index(6) {
            0 if paged.call(pin(first, CHUNK)) == 0 => self.pinned.push(chunk),
            1 => {
                if let Some(chunk) = self.pinned.pop() {
                    assert_eq!(paged.call(unpin(chunk * CHUNK, CHUNK)), 0);
                }
            }
            2 => {
                assert_eq!(paged.call(discardable(first, CHUNK)), 0);
                self.loose.push(chunk);
            }
            3 => {
                if let Some(chunk) = self.loose.pop() {
                    self.loose.retain(|&other| other != chunk);
                    for page in wanted(paged, chunk * CHUNK, CHUNK) {
                        self.bytes[chunk * CHUNK + page] = 0;
                    }
                }
            }
            4 => assert_eq!(paged.call(advise(first, CHUNK, Advice::Cold)), 0),
            _ => assert_eq!(paged.call(advise(first, CHUNK, Advice::WillNeed)), 0),
        }
    }
}

#[test]
fn any_order_of_calls_and_touches_finds_every_byte() {
    for seed in 0..3 {
        each(|mut paged| {
            let mut random = Random(seed);
            let mut model = Model {
                bytes: vec![0; PAGES],
                pinned: Vec::new(),
                loose: Vec::new(),
            };
            for step in 0..4000 {
                let page = random.index(PAGES);
                // What need not be kept holds what it held, or zeroes.
                if model.loose.contains(&(page / CHUNK)) || step % 20 == 0 {
                    model.call(&mut paged, &mut random);
                    continue;
                }
                if random.index(3) == 0 {
                    let byte = random.index(256) as u8;
                    paged.touch(1, page, Some(byte));
                    model.bytes[page] = byte;
                } else {
                    assert_eq!(paged.touch(2, page, None), model.bytes[page], "seed {seed}");
                }
                let used = paged.live.pager.frames_used();
                assert!(used <= paged.live.pager.limits().frames, "{used} frames");
            }
            assert!(paged.live.pager.stats().page_ins > 0);
        });
    }
}

#[test]
fn an_offer_is_taken_once() {
    let paged = Paged::new(crate::world::Mechanism::Move, 8);
    let words = Arc::new(shared::new_words(1).expect("memory"));
    let calls = &paged.live.calls;
    calls.offer(words.clone()).expect("no other");
    assert!(calls.offer(words.clone()).is_err());
    words[0].store(5, Relaxed);
    assert_eq!(calls.take_offer().expect("it")[0].load(Relaxed), 5);
    assert!(calls.take_offer().is_none());
}
