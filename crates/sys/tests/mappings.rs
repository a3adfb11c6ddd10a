//! Mappings as the kernel shows them.

mod common;

use std::ops::ControlFlow;

use common::{area, peek, poke, skipped};
use outpage_core::units::PAGE_BYTES;
use outpage_sys::map::{self, Area, HUGE_BYTES, Memory};
use outpage_sys::maps::{self, Kind};
use outpage_sys::own::{self, Fork};
use outpage_sys::pagemap::Pagemap;
use outpage_sys::raw::Errno;

/// Kind (as text), protection and end of the mapping at `address`.
fn entry(address: usize) -> Option<(String, i32, usize)> {
    let mut found = None;
    maps::for_each(&mut [0; 16384], |entry| {
        if (entry.start..entry.end).contains(&address) {
            found = Some((format!("{:?}", entry.kind()), entry.prot, entry.end));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

#[test]
fn an_area_is_known_as_the_pagers_own() {
    let area = area(3);
    let start = area.start();
    assert!(own::contains(start) && own::contains(start + 3 * PAGE_BYTES - 1));
    let (kind, prot, _) = entry(start).unwrap();
    assert_eq!(prot, libc::PROT_READ | libc::PROT_WRITE);
    let named = format!("{:?}", Kind::Named(b"outpage"));
    assert!(kind == named || kind == "Anonymous", "{kind}");
}

#[test]
fn areas_are_whole_pages() {
    for len in [0, 1, PAGE_BYTES + 1] {
        assert_eq!(Area::new(len, Fork::Inherited).unwrap_err(), Errno::EINVAL);
    }
}

#[test]
fn a_contiguous_area_is_a_huge_page_or_the_first_part_of_one() {
    for (wanted, huge) in [(HUGE_BYTES, HUGE_BYTES), (128 * PAGE_BYTES, 0)] {
        check_contiguous(wanted, huge);
    }
}

fn check_contiguous(wanted: usize, huge: usize) {
    match Area::contiguous(wanted, Fork::ParentOnly) {
        Ok(mut area) => {
            let (start, len) = (area.start(), area.len());
            assert!(len == wanted && start.is_multiple_of(HUGE_BYTES));
            assert!(is_own(start, start + len));
            assert_eq!(huge_bytes(start), huge);
            assert!(area.bytes(0, len).iter().all(|&byte| byte == 0));
            area.bytes_mut(len - 1, 1)[0] = 1;
            drop(area);
            assert!(!is_own(start, start + len));
        }
        Err(error) => skipped(&format!("no huge page is to be had: {}", error.text())),
    }
}

/// Whether the table of own ranges holds just this one. Other tests have theirs, but none as long.
fn is_own(start: usize, end: usize) -> bool {
    let mut found = false;
    own::for_each(|from, to| found |= (from, to) == (start, end));
    found
}

/// Bytes in huge pages of the mapping at `start`, from /proc/self/smaps.
fn huge_bytes(start: usize) -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let ours = smaps.split_once(&format!("{start:x}-")).unwrap().1;
    let line = ours.lines().find(|line| line.starts_with("AnonHugePages:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<usize>().unwrap() << 10
}

#[test]
#[should_panic(expected = "leaves the area")]
fn an_area_has_bounds() {
    let _ = area(1).bytes(1, PAGE_BYTES);
}

#[test]
fn memory_without_access_rights_can_be_read() {
    let mut area = area(2);
    area.bytes_mut(100, 5).copy_from_slice(b"hello");
    map::mprotect(area.start(), area.len(), libc::PROT_NONE).unwrap();
    let memory = Memory::open().unwrap();
    let mut text = [0; 5];
    assert_eq!(memory.read(area.start() + 100, &mut text), Ok(5));
    assert_eq!(&text, b"hello");
    // Below vm.mmap_min_addr: never mapped.
    assert_eq!(memory.read(PAGE_BYTES, &mut text), Err(Errno::EIO));
}

#[test]
fn reserved_space_is_made_usable_piece_by_piece() {
    let start = map::reserve(8 * PAGE_BYTES).unwrap();
    assert_eq!(entry(start).unwrap().1, libc::PROT_NONE);
    map::mprotect(
        start + PAGE_BYTES,
        2 * PAGE_BYTES,
        libc::PROT_READ | libc::PROT_WRITE,
    )
    .unwrap();
    poke(start + PAGE_BYTES, 1);
    let (_, prot, end) = entry(start + PAGE_BYTES).unwrap();
    assert_eq!(
        (prot, end),
        (libc::PROT_READ | libc::PROT_WRITE, start + 3 * PAGE_BYTES)
    );
    map::munmap(start, 8 * PAGE_BYTES).unwrap();
}

#[test]
fn pages_are_populated_and_released() {
    let area = area(2);
    let pagemap = Pagemap::open().unwrap();
    map::populate(area.start(), area.len()).unwrap();
    assert!(pagemap.page(area.start() + PAGE_BYTES).unwrap().present());
    poke(area.start(), 9);
    map::release(area.start(), PAGE_BYTES).unwrap();
    assert!(pagemap.page(area.start()).unwrap().empty());
    assert_eq!(peek(area.start()), 0);
}

#[test]
fn a_mapping_moves_with_its_content() {
    let start = map::anonymous(2 * PAGE_BYTES).unwrap();
    poke(start, 4);
    let target = map::reserve(4 * PAGE_BYTES).unwrap();
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    assert_eq!(
        map::mremap(start, 2 * PAGE_BYTES, 4 * PAGE_BYTES, flags, target),
        Ok(target)
    );
    assert_eq!(peek(target), 4);
    map::munmap(target, 4 * PAGE_BYTES).unwrap();
}

#[test]
fn making_a_page_exclusive_keeps_its_content() {
    let mut area = area(1);
    area.bytes_mut(0, 1)[0] = 0xa5;
    assert!(map::make_exclusive(area.start()));
    assert_eq!(area.bytes(0, 1), [0xa5]);
}

#[test]
fn the_break_can_be_asked_for() {
    assert_ne!(map::brk(0), 0);
    assert_eq!(
        map::brk(1),
        map::brk(0),
        "a break below the program is refused"
    );
}
