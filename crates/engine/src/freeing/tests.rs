//! Freed memory: what was announced, and the loop over an address space without a kernel in which threads free, write, move and fork.

use std::sync::Mutex;

use super::*;
use crate::tests::fake::{State, at};
use crate::tests::paged::{LIMIT, Paged};
use crate::tests::random::Random;
use crate::world::Mechanism;

const fn page(page: usize) -> usize {
    page * PAGE_BYTES
}

#[test]
fn a_range_is_taken_once_piece_by_piece_and_also_when_the_call_is_over() {
    let freeing = Freeing::new();
    assert!(freeing.announce(page(8), page(1)).is_none(), "closed");
    freeing.set_open(true);
    let takes = |from, to| freeing.takes(page(from), page(to));
    let call = freeing.announce(page(8), page(4) - 5).unwrap();
    assert!(!takes(7, 9) && !takes(8, 13));
    assert!(takes(8, 10) && !takes(8, 10));
    freeing.attended();
    call.over(false);
    assert!(takes(10, 12) && !takes(10, 12));
    freeing.announce(page(8), page(4)).unwrap().over(false);
    freeing.attended();
    assert!(!takes(8, 12), "nothing more comes");
}

#[test]
fn a_range_is_freed_once_when_the_kernel_did_it() {
    let freeing = Freeing::new();
    freeing.set_open(true);
    let freed = || {
        let mut freed = Vec::new();
        freeing.each_freed(|start, end| freed.push((start / PAGE_BYTES, end / PAGE_BYTES)));
        freeing.attended();
        freed
    };
    let call = freeing.announce(page(8), page(4) - 5).unwrap();
    assert!(freeing.takes(page(8), page(10)));
    assert_eq!(freed(), [], "not yet");
    call.over(true);
    assert!(freeing.takes(page(10), page(12)), "still waited");
    assert_eq!(freed(), [(8, 12)]);
    assert_eq!(freed(), []);
    freeing.announce(page(8), page(4)).unwrap().over(false);
    assert_eq!(freed(), [], "refused");
    assert!(!freeing.takes(page(8), page(12)));
}

#[test]
fn calls_beyond_the_slots_act_at_once() {
    let freeing = Freeing::new();
    freeing.set_open(true);
    let held: Vec<_> = (1..=CALLS)
        .map(|n| freeing.announce(page(n), 1).unwrap())
        .collect();
    assert!(freeing.announce(page(1), 1).is_none());
    held.into_iter().for_each(|call| call.over(false));
    assert!(freeing.announce(page(1), 1).is_none(), "messages may wait");
    freeing.attended();
    assert!(freeing.announce(page(1), 1).is_some());
}

/// Pages of the program.
const PAGES: usize = 2 * LIMIT;
/// Pages that are freed or moved at once.
const CHUNK: usize = 16;

/// What the program's pages may hold.
struct Model {
    /// Where each chunk lies.
    chunks: Vec<usize>,
    bytes: Vec<u8>,
    /// Freed and not written since: zeroes as well.
    or_zero: Vec<bool>,
}

impl Model {
    fn new() -> Self {
        Self {
            chunks: (0..PAGES / CHUNK).map(|chunk| chunk * CHUNK).collect(),
            bytes: vec![0; PAGES],
            or_zero: vec![false; PAGES],
        }
    }

    fn place(&self, page: usize) -> usize {
        self.chunks[page / CHUNK] + page % CHUNK
    }

    /// Which page lies at `address`.
    fn page_at(&self, address: usize) -> usize {
        let is_there = |page: &usize| at(self.place(*page)) == address;
        (0..PAGES).find(is_there).expect("one of the program's")
    }

    fn wrote(&mut self, page: usize, byte: u8) {
        self.bytes[page] = byte;
        self.or_zero[page] = false;
    }

    fn found(&mut self, page: usize, byte: u8) {
        let old = self.bytes[page];
        assert!(
            byte == old || byte == 0 && self.or_zero[page],
            "{page}: {byte} for {old}"
        );
        if byte == 0 {
            self.wrote(page, 0);
        }
    }

    /// Where nothing ever was.
    fn elsewhere(&self) -> usize {
        self.chunks.iter().max().expect("some") + 2 * CHUNK
    }
}

/// A thread frees a chunk, as the hook does it.
fn free(paged: &mut Paged, model: &Mutex<Model>, chunk: usize) {
    let place = model.lock().unwrap().chunks[chunk];
    let calls = Arc::clone(&paged.live.calls);
    calls.freeing.set_open(true);
    let call = calls.freeing.announce(at(place), CHUNK * PAGE_BYTES);
    paged.fake.state().begin_to_free(place, CHUNK);
    paged.rounds_until(|paged| !paged.fake.state().is_telling());
    // By then another thread may have moved it, as the model has it.
    if model.lock().unwrap().chunks[chunk] == place {
        paged.fake.state().free(place, CHUNK);
        model.lock().unwrap().or_zero[chunk * CHUNK..(chunk + 1) * CHUNK].fill(true);
    }
    call.expect("a slot is free").over(true);
}

/// Thread `tid` reads or writes a page, wherever that moves meanwhile.
fn touch(paged: &mut Paged, model: &Mutex<Model>, tid: u32, page: usize, write: Option<u8>) -> u8 {
    loop {
        let place = model.lock().unwrap().place(page);
        if let Some(byte) = paged.fake.touch(tid, at(place), write) {
            return byte;
        }
        paged.rounds_until(|paged| !paged.fake.sleeps(tid));
    }
}

/// What a thread does at the moment at which pages from an address on are to be dropped.
fn meddle(model: &Arc<Mutex<Model>>, what: usize) -> crate::tests::fake::AtDrop {
    let model = Arc::clone(model);
    Box::new(move |state: &mut State, first| {
        let mut model = model.lock().unwrap();
        let page = model.page_at(first);
        match what {
            0 => {
                assert!(state.write_at_once(first, 201), "it was there");
                model.wrote(page, 201);
            }
            1 => {
                let (chunk, to) = (page / CHUNK, model.elsewhere());
                state.remap(model.chunks[chunk], to, CHUNK);
                model.chunks[chunk] = to;
            }
            _ => state.fork(),
        }
    })
}

#[test]
fn freed_pages_leave_without_a_write_while_others_are_in_the_kernel() {
    let mut paged = Paged::new(Mechanism::Move, PAGES);
    paged.fake.state().lingers = true;
    let model = Mutex::new(Model::new());
    for page in 0..LIMIT / 2 {
        paged.touch(1, page, Some(7));
    }
    for chunk in 0..LIMIT / 2 / CHUNK {
        free(&mut paged, &model, chunk);
    }
    for page in LIMIT / 2..LIMIT + LIMIT / 4 {
        // Each frame is wanted while somebody is on its way out of the kernel.
        paged.fake.state().lingering = 1;
        paged.touch(1, page, Some(7));
    }
    let stats = paged.live.pager.stats();
    assert_eq!((stats.freed_kept, stats.page_outs), (0, 0));
    assert!(stats.freed_dropped as usize >= LIMIT / 4);
}

#[test]
fn any_order_of_frees_and_of_what_meddles_with_drops_finds_every_byte() {
    let mut meddled = [0; 3];
    for seed in 0..2 {
        let mut paged = Paged::new(Mechanism::Move, PAGES);
        paged.fake.state().lingers = true;
        let model = Arc::new(Mutex::new(Model::new()));
        let mut random = Random(seed);
        for _ in 0..6000 {
            let page = random.index(PAGES);
            let tid = 1 + random.index(4) as u32;
            match random.index(60) {
                0 => free(&mut paged, &model, page / CHUNK),
                1 => {
                    let what = random.index(3);
                    let before = paged.fake.state().at_drop.replace(meddle(&model, what));
                    meddled[what] += usize::from(before.is_none());
                }
                2..30 => {
                    let byte = 1 + random.index(200) as u8;
                    touch(&mut paged, &model, tid, page, Some(byte));
                    model.lock().unwrap().wrote(page, byte);
                }
                _ => {
                    let byte = touch(&mut paged, &model, tid, page, None);
                    model.lock().unwrap().found(page, byte);
                }
            }
        }
        paged.fake.state().at_drop = None;
        paged.settle();
        let stats = *paged.live.pager.stats();
        assert!(stats.freed_dropped > 0 && stats.freed_kept > 0 && stats.page_ins > 0);
        for page in 0..PAGES {
            let byte = touch(&mut paged, &model, 1, page, None);
            model.lock().unwrap().found(page, byte);
        }
    }
    assert!(meddled.iter().all(|&times| times > 1), "{meddled:?}");
}
