use std::io::Write as _;
use std::os::fd::AsRawFd as _;

use proptest::prelude::*;

use super::*;

/// Memory of the test's own, unmapped at the end.
struct Mapped {
    at: usize,
    len: usize,
}

impl Mapped {
    fn new(len: usize, flags: i32, file: i32) -> Self {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping replaces nothing.
        let at = unsafe { raw::mmap(0, len, prot, libc::MAP_PRIVATE | flags, file, 0) };
        assert!(at > 0, "mmap: {at}");
        Self {
            at: at as usize,
            len,
        }
    }

    /// Anonymous pages with `bytes` at their end, before a page that nobody can read.
    fn before_a_gap(bytes: &[u8]) -> (Self, usize) {
        let len = bytes.len().next_multiple_of(PAGE_BYTES);
        let mapped = Self::new(len + PAGE_BYTES, libc::MAP_ANONYMOUS, -1);
        // SAFETY: the last page of the mapping above.
        let closed = unsafe { raw::mprotect(mapped.at + len, PAGE_BYTES, libc::PROT_NONE) };
        assert_eq!(closed, 0);
        let at = mapped.at + len - bytes.len();
        // SAFETY: within the pages before it.
        unsafe { (at as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        (mapped, at)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped readable and writable, and borrowed through `self` only.
        unsafe { core::slice::from_raw_parts_mut(self.at as *mut u8, self.len) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nobody else knows the mapping.
        unsafe { raw::munmap(self.at, self.len) };
    }
}

/// A file header, and program headers of (type, address, bytes in memory) right behind it, room for 32.
fn object(kind: u16, loads: &[(u32, u64, u64)]) -> Vec<u8> {
    let mut out = vec![0; 64 + 32 * 56];
    out[..4].copy_from_slice(b"\x7fELF");
    out[16..18].copy_from_slice(&kind.to_le_bytes());
    out[32..40].copy_from_slice(&64_u64.to_le_bytes());
    out[56..58].copy_from_slice(&(loads.len() as u16).to_le_bytes());
    for (index, &(kind, address, bytes)) in loads.iter().enumerate() {
        let at = 64 + index * 56;
        out[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        out[at + 16..at + 24].copy_from_slice(&address.to_le_bytes());
        out[at + 40..at + 48].copy_from_slice(&bytes.to_le_bytes());
    }
    out
}

fn span_of(object: &[u8]) -> Option<usize> {
    let (_mapped, at) = Mapped::before_a_gap(object);
    elf_span_bytes(at)
}

const DYNAMIC: u16 = libc::ET_DYN;
const LOAD: u32 = libc::PT_LOAD;
/// Of a program header that says something else.
const NOTE: u32 = 4;

#[test]
fn a_library_reaches_from_its_first_page_to_the_end_of_its_bss() {
    let text_and_data = [(LOAD, 0, 0x1800), (NOTE, 0x9000, 8), (LOAD, 0x2f00, 0x5000)];
    assert_eq!(span_of(&object(DYNAMIC, &text_and_data)), Some(0x8000));
    // Linked to an address, as prelinked libraries are, and in another order than the addresses have.
    let prelinked = [(LOAD, 0x7_3000, 0x10), (LOAD, 0x7_1234, 0x10)];
    assert_eq!(span_of(&object(DYNAMIC, &prelinked)), Some(0x3000));
}

#[test]
fn the_kernels_and_the_loaders_word_are_the_same() {
    let mut compared = 0;
    for (start, end) in loaded_now().spans {
        if let Some(bytes) = elf_span_bytes(start) {
            assert_eq!(end - start, bytes, "{start:x}");
            compared += 1;
        }
    }
    assert!(compared >= 2, "this program and libc at least");
}

/// A debugger maps a core file, whose segments lie all over the address space: what follows it in memory is the program's.
#[test]
fn files_that_the_loader_would_not_load_are_no_libraries() {
    let loads = [
        (LOAD, 0x5555_5555_4000, 0x1000),
        (LOAD, 0x7fff_f7dc_0000, 0x1000),
    ];
    for kind in [
        libc::ET_CORE,
        libc::ET_EXEC,
        libc::ET_REL,
        libc::ET_NONE,
        0xfe00,
    ] {
        assert_eq!(span_of(&object(kind, &loads)), None, "type {kind}");
        let small = object(kind, &[(LOAD, 0, 0x1000)]);
        assert_eq!(span_of(&small), None, "type {kind}");
    }
    // Nor has a library's span room behind where it lies.
    assert_eq!(
        span_of(&object(
            DYNAMIC,
            &[(LOAD, 0, 1 << 46), (LOAD, 1 << 46, 1 << 46)]
        )),
        None
    );
}

#[test]
fn damaged_headers_are_no_library() {
    let good = object(DYNAMIC, &[(LOAD, 0, 0x1000)]);
    assert_eq!(span_of(&good), Some(0x1000));
    let damaged = |at: usize, bytes: &[u8]| {
        let mut object = good.clone();
        object[at..at + bytes.len()].copy_from_slice(bytes);
        span_of(&object)
    };
    assert_eq!(damaged(0, b"\x7fELG"), None, "magic");
    assert_eq!(damaged(56, &[0, 0]), None, "no program headers");
    let ends = [u64::MAX, u64::MAX - 63, 1 << 63, 1 << 47, 0x10_0000];
    for offset in ends.map(u64::to_le_bytes) {
        assert_eq!(damaged(32, &offset), None, "table at {offset:x?}");
    }
    // A segment that wraps around, and one whose last page does.
    assert_eq!(
        span_of(&object(DYNAMIC, &[(LOAD, u64::MAX - 9, 0x1000)])),
        None
    );
    assert_eq!(span_of(&object(DYNAMIC, &[(LOAD, u64::MAX - 9, 9)])), None);
    assert_eq!(
        span_of(&object(DYNAMIC, &[(LOAD, 0, 0)])),
        None,
        "nothing to load"
    );
    assert_eq!(
        span_of(&object(DYNAMIC, &[(NOTE, 0, 0x1000)])),
        None,
        "nothing to load"
    );
}

#[test]
fn a_header_that_ends_early_is_no_library() {
    let good = object(DYNAMIC, &[(LOAD, 0, 0x1000)]);
    for len in [1, 3, 4, 16, 63, 64, 119, good.len() - 1] {
        assert_eq!(span_of(&good[..len]), None, "{len} bytes before the gap");
    }
    assert_eq!(elf_span_bytes(0), None);
    assert_eq!(elf_span_bytes(usize::MAX - 3), None);
}

#[test]
fn more_program_headers_than_are_looked_at_are_cut() {
    let mut object = object(DYNAMIC, &[(LOAD, 0, 0x1000); 32]);
    object[56..58].copy_from_slice(&u16::MAX.to_le_bytes());
    assert_eq!(span_of(&object), Some(0x1000));
}

proptest! {
    /// No file that a program maps ends it, or hides memory that lies before the file or at no address at all.
    #[test]
    fn any_headers_give_a_range_or_nothing(
        loads in proptest::collection::vec((0..3_u32, any::<u64>(), any::<u64>()), 0..4),
        shift in 0..64_u32,
        offset in prop_oneof![Just(64_u64), any::<u64>()],
        count in prop_oneof![0..5_u16, any::<u16>()],
    ) {
        let loads: Vec<_> = loads.iter().map(|l| (l.0, l.1 >> shift, l.2 >> shift)).collect();
        let mut object = object(DYNAMIC, &loads);
        object[32..40].copy_from_slice(&offset.to_le_bytes());
        object[56..58].copy_from_slice(&count.to_le_bytes());
        let (_mapped, at) = Mapped::before_a_gap(&object);
        if let Some(bytes) = elf_span_bytes(at) {
            prop_assert!(bytes > 0 && bytes % PAGE_BYTES == 0);
            prop_assert!(at + bytes <= ADDRESSES_END);
            if offset == 64 && usize::from(count) == loads.len() {
                let load = loads.iter().find(|load| load.0 == LOAD).expect("a segment");
                prop_assert!(load.2 <= bytes as u64);
            }
        }
    }
}

#[test]
fn nothing_in_a_library_of_later_can_be_managed_while_the_pager_starts() {
    // Nothing is remembered here, so that every library counts as loaded later.
    let malloc = libc::malloc as *const () as usize;
    let within = without_later(|| (own::contains(malloc), 7));
    assert_eq!(within, (true, 7));
    assert!(!own::contains(malloc), "the loader may unmap it afterwards");
}

/// A private mapping of a file with `pages` pages, at most 255, every third all zeroes, others of their number.
fn data_segment(pages: usize) -> (Mapped, tempfile::NamedTempFile, Vec<u8>) {
    let content: Vec<u8> = (0..pages)
        .flat_map(|page| [if page % 3 == 0 { 0 } else { page as u8 }; PAGE_BYTES])
        .collect();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(&content).expect("written");
    let mapped = Mapped::new(content.len(), 0, file.as_raw_fd());
    (mapped, file, content)
}

/// The mapping that starts at `at`: whether it is private and anonymous, its end and its protection.
fn mapping(at: usize) -> Option<(bool, usize, i32)> {
    let mut found = None;
    let mut buffer = vec![0; 16 << 10];
    maps::for_each(&mut buffer, |entry| {
        if (entry.start..entry.end).contains(&at) {
            found = Some((entry.is_private_anonymous(), entry.end, entry.prot));
        }
        ControlFlow::Continue(())
    })
    .expect("the list of mappings");
    found
}

#[test]
fn a_data_segment_becomes_anonymous_with_the_bytes_that_it_had() {
    let (mut segment, file, mut content) = data_segment(240);
    // What relocation and constructors wrote is in no file.
    segment.bytes()[5 * PAGE_BYTES + 9] = 0xaa;
    content[5 * PAGE_BYTES + 9] = 0xaa;
    segment.bytes()[4 * PAGE_BYTES..5 * PAGE_BYTES].fill(0);
    content[4 * PAGE_BYTES..5 * PAGE_BYTES].fill(0);
    // A single byte, the last of its page.
    segment.bytes()[7 * PAGE_BYTES - 1] = 1;
    content[7 * PAGE_BYTES - 1] = 1;
    replace_by_copy(segment.at, segment.len);
    assert_eq!(segment.bytes(), content);
    let (anonymous, end, prot) = mapping(segment.at).expect("still mapped");
    assert!(anonymous && end >= segment.at + segment.len);
    assert_eq!(prot, libc::PROT_READ | libc::PROT_WRITE);
    // And it is the program's from then on: the file is not.
    segment.bytes().fill(0x55);
    let stored = std::fs::read(file.path()).expect("the file");
    assert!(
        stored[PAGE_BYTES..2 * PAGE_BYTES]
            .iter()
            .all(|&byte| byte == 1)
    );
}

#[test]
fn pages_of_zeroes_take_no_memory_in_the_copy() {
    let (segment, _file, _) = data_segment(240);
    replace_by_copy(segment.at, segment.len);
    let mut present = vec![0_u8; 240];
    // SAFETY: the kernel writes a byte a page of the segment.
    let told =
        unsafe { libc::mincore(segment.at as *mut c_void, segment.len, present.as_mut_ptr()) };
    assert_eq!(told, 0);
    let zeroes = present.iter().step_by(3).filter(|&&page| page & 1 == 1);
    assert_eq!(zeroes.count(), 0);
    assert_eq!(present.iter().filter(|&&page| page & 1 == 1).count(), 160);
}

#[test]
fn a_segment_that_the_kernel_does_not_exchange_stays_as_it_was() {
    let (mut segment, _file, content) = data_segment(8);
    let before = mapping(segment.at);
    // A place that is no page's start is refused, after the copy was made.
    let mut unaligned = Mapped::new(3 * PAGE_BYTES, libc::MAP_ANONYMOUS, -1);
    unaligned.bytes().fill(3);
    replace_by_copy(unaligned.at + 8, PAGE_BYTES);
    assert!(unaligned.bytes().iter().all(|&byte| byte == 3));
    // A length beyond all memory: no copy.
    replace_by_copy(segment.at, 1 << 47);
    assert_eq!(segment.bytes(), content);
    assert_eq!(mapping(segment.at), before);
}
