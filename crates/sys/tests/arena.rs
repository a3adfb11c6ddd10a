//! The arena, as the global allocator of this test program and on its own.

use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::thread;

use outpage_sys::arena::{Arena, CLASS_BYTES_MAX};
use outpage_sys::own;

#[global_allocator]
static GLOBAL: Arena = Arena::new();

/// A pseudo-random sequence (xorshift64*), the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

/// An allocation filled with a byte that tells it from the others.
struct Block {
    start: *mut u8,
    layout: Layout,
    mark: u8,
}

impl Block {
    fn new(arena: &Arena, layout: Layout, mark: u8) -> Self {
        // SAFETY: the layout is not empty.
        let start = unsafe { arena.alloc(layout) };
        assert!(!start.is_null());
        let block = Self {
            start,
            layout,
            mark,
        };
        block.fill();
        block
    }

    fn fill(&self) {
        assert_eq!(
            self.start.addr() % self.layout.align(),
            0,
            "{:?}",
            self.layout
        );
        // SAFETY: the block has `size` bytes.
        unsafe { self.start.write_bytes(self.mark, self.layout.size()) };
    }

    fn check(&self, len: usize) {
        // SAFETY: the block has at least `len` bytes, all written.
        let bytes = unsafe { std::slice::from_raw_parts(self.start, len) };
        assert!(
            bytes.iter().all(|&byte| byte == self.mark),
            "{:?} was overwritten",
            self.layout
        );
    }

    fn resize(&mut self, arena: &Arena, size: usize) {
        // SAFETY: allocated here with this layout; the new size is not 0.
        self.start = unsafe { arena.realloc(self.start, self.layout, size) };
        let old = self.layout.size();
        self.layout = Layout::from_size_align(size, self.layout.align()).unwrap();
        self.check(old.min(size));
        self.fill();
    }

    fn free(self, arena: &Arena) {
        self.check(self.layout.size());
        // SAFETY: allocated here with this layout, and gone afterwards.
        unsafe { arena.dealloc(self.start, self.layout) };
    }
}

/// Mostly small sizes, some around every limit between classes, some large.
fn any_layout(random: &mut Random) -> Layout {
    let size = match random.next(10) {
        0..6 => 1 + random.next(300),
        6 | 7 => (16 << random.next(15)) - 1 + random.next(3),
        8 => 1 + random.next(40_000),
        _ => CLASS_BYTES_MAX - 5000 + random.next(400_000),
    };
    Layout::from_size_align(size, 1 << random.next(8)).unwrap()
}

/// Allocates, resizes and frees at random; every block keeps its content and its place to itself.
fn exercise(arena: &Arena, seed: u64, steps: usize) {
    let mut random = Random(seed);
    let mut blocks = Vec::new();
    for step in 0..steps {
        match random.next(8) {
            0..4 => blocks.push(Block::new(arena, any_layout(&mut random), step as u8)),
            4 if !blocks.is_empty() => {
                let index = random.next(blocks.len());
                let size = any_layout(&mut random).size();
                blocks[index].resize(arena, size);
            }
            _ if !blocks.is_empty() => {
                let index = random.next(blocks.len());
                blocks.swap_remove(index).free(arena);
            }
            _ => {}
        }
        if blocks.len() > 200 {
            blocks.drain(..100).for_each(|block| block.free(arena));
        }
    }
    blocks.into_iter().for_each(|block| block.free(arena));
}

#[test]
fn blocks_keep_their_content() {
    let arena = Arena::new();
    exercise(&arena, 1, 5_000);
    let mapped = arena.mapped_bytes();
    assert!(mapped > 0);
    for seed in 2..5 {
        exercise(&arena, seed, 5_000);
    }
    assert!(
        arena.mapped_bytes() < 3 * mapped,
        "freed chunks are used again"
    );
}

#[test]
fn threads_do_not_meddle() {
    static ARENA: Arena = Arena::new();
    let threads: Vec<_> = (10..14)
        .map(|seed| thread::spawn(move || exercise(&ARENA, seed, 5_000)))
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn every_alignment_is_met() {
    let arena = Arena::new();
    for shift in 0..21 {
        for size in [1, 100, 5000, 300_000] {
            let layout = Layout::from_size_align(size, 1 << shift).unwrap();
            let (one, two) = (Block::new(&arena, layout, 1), Block::new(&arena, layout, 2));
            let mut three = Block::new(&arena, layout, 3);
            three.resize(&arena, size * 3);
            [one, two, three]
                .into_iter()
                .for_each(|block| block.free(&arena));
        }
    }
}

#[test]
fn fresh_zeroed_memory_is_zero_and_reused_memory_too() {
    let arena = Arena::new();
    for size in [24, 5000, CLASS_BYTES_MAX, CLASS_BYTES_MAX + 1, 1 << 20] {
        let layout = Layout::from_size_align(size, 8).unwrap();
        for _ in 0..2 {
            // SAFETY: the layout is not empty; the block has `size` bytes and is freed once.
            unsafe {
                let start = arena.alloc_zeroed(layout);
                assert!(
                    std::slice::from_raw_parts(start, size)
                        .iter()
                        .all(|&byte| byte == 0)
                );
                start.write_bytes(0xff, size);
                arena.dealloc(start, layout);
            }
        }
    }
}

/// Pages in RAM of `layout.size()` bytes from `start` on, which begin at a page.
fn resident(start: *mut u8, layout: Layout) -> usize {
    let mut resident = vec![0_u8; layout.size() / 4096];
    // SAFETY: the block is mapped and begins at a page, as `class_of` aligns it; there is a byte for each of its pages.
    let status = unsafe { libc::mincore(start.cast(), layout.size(), resident.as_mut_ptr()) };
    assert_eq!(status, 0);
    resident.iter().filter(|&&bits| bits & 1 != 0).count()
}

#[test]
fn zeroed_memory_takes_no_ram_until_it_is_written_and_a_page_when_free() {
    let arena = Arena::new();
    let layout = Layout::from_size_align(CLASS_BYTES_MAX / 4, 8).unwrap();
    let mut starts = Vec::new();
    for _ in 0..2 {
        // SAFETY: the layout is not empty; the block has `size` bytes and is freed once, after which the arena still has it.
        unsafe {
            let start = arena.alloc_zeroed(layout);
            assert_eq!(resident(start, layout), 0);
            start.write_bytes(0xff, layout.size());
            assert_eq!(resident(start, layout), layout.size() / 4096);
            arena.dealloc(start, layout);
            assert_eq!(resident(start, layout), 1);
            starts.push(start);
        }
    }
    assert_eq!(starts[0], starts[1], "the second is the first again");
}

#[test]
fn large_blocks_are_given_back_and_small_ones_kept() {
    let arena = Arena::new();
    let small = Layout::from_size_align(100, 8).unwrap();
    Block::new(&arena, small, 1).free(&arena);
    let mapped = arena.mapped_bytes();
    let large = Layout::from_size_align(10 << 20, 8).unwrap();
    let block = Block::new(&arena, large, 2);
    let address = block.start.addr();
    assert!(own::contains(address) && own::contains(address + (10 << 20) - 1));
    assert_eq!(arena.mapped_bytes(), mapped + (10 << 20));
    block.free(&arena);
    assert_eq!(arena.mapped_bytes(), mapped);
}

#[test]
fn an_impossible_size_is_refused() {
    let layout = Layout::from_size_align(1 << 50, 8).unwrap();
    // SAFETY: the layout is not empty.
    assert!(unsafe { Arena::new().alloc(layout) }.is_null());
}

#[test]
fn the_arena_serves_a_whole_program() {
    let before = Box::new(1);
    assert!(own::contains((&raw const *before).addr()));
    let mut map = BTreeMap::new();
    for index in 0..10_000usize {
        map.insert(
            index.wrapping_mul(0x9e37_79b9) % 100_003,
            format!("{index}"),
        );
    }
    assert!(
        map.values()
            .all(|text| text.parse::<usize>().unwrap() < 10_000)
    );
}

/// Leaves a forked child with `ok`, and waits for it.
fn in_a_child(ok: impl FnOnce() -> bool) {
    let held = GLOBAL.hold();
    // SAFETY: the child allocates from this arena only, whose lock the guard frees, and leaves by _exit.
    let child = unsafe { libc::fork() };
    drop(held);
    if child == 0 {
        let ok = ok();
        // SAFETY: leaves at once.
        unsafe { libc::_exit(i32::from(!ok)) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[test]
fn a_forked_child_can_allocate() {
    in_a_child(|| {
        (0..1000usize)
            .map(|size| vec![size; size].len())
            .sum::<usize>()
            == 499_500
    });
}

/// As at vm.max_map_count: what was mapped before serves for a while.
#[test]
fn chunks_last_for_a_block_after_the_kernel_gives_no_more() {
    in_a_child(|| {
        let arena = Arena::new();
        let layout = Layout::from_size_align(1 << 10, 8).expect("a layout");
        // SAFETY: the layout is not empty, here and below; nothing is freed.
        let first = unsafe { arena.alloc(layout) };
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: reads `none`.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const none) };
        // SAFETY: as above.
        let served = (0..4 << 10)
            .take_while(|_| !unsafe { arena.alloc(layout) }.is_null())
            .count();
        // Two blocks of a mebibyte, less the first chunk.
        !first.is_null() && set == 0 && served == (2 << 10) - 1
    });
}
