//! The notifier's area under a guest that writes anything anywhere, and a guest over an area that holds anything.

use std::sync::atomic::{AtomicU32, Ordering};

use outpage_core::notify::{Guest, Host, Layout};

use crate::cursor::Cursor;

/// More than a word of bits, and not whole words.
const FRAMES: u32 = 70;
const ENTRIES: u32 = 16;
/// Words of the area: a page, two rings, the bits.
const WORDS: usize = 1024 + 2 * ENTRIES as usize + 3;
/// Behind the area.
const GUARD: u32 = 0xdead_beef;

fn words(area: &[AtomicU32]) -> Vec<u32> {
    let words = area.iter().map(|word| word.load(Ordering::Relaxed));
    words.collect()
}

/// A host that tells, a guest that drains, and bytes that choose what a mad guest overwrites. The host writes but its own
/// words; a guest that drains is told of no frame that there is not; who behaves is told the truth.
pub fn notify(data: &[u8]) {
    let mut choices = Cursor(data);
    let layout = Layout::new(FRAMES, ENTRIES).expect("a sound layout");
    let mut area: Vec<_> = (0..WORDS).map(|_| AtomicU32::new(0)).collect();
    area.push(AtomicU32::new(GUARD));
    let mut host = Host::new(&area, layout).expect("long enough");
    let mut guest = Guest::attach(&area).expect("it was just made");
    let (mut mad, mut holds, mut believed) = (false, [false; 128], [false; 128]);
    while !choices.is_empty() {
        match choices.byte() {
            what @ 0..=0x7f => tell(&mut host, &area, u32::from(what), true, &mut holds),
            what @ 0x80..=0xef => tell(&mut host, &area, u32::from(what - 0x80), false, &mut holds),
            0xf0..=0xf7 => {
                guest.drain(&area, |frame, out| {
                    assert!(frame < FRAMES);
                    believed[frame as usize] = out;
                });
                assert!(mad || believed == holds, "told otherwise");
            }
            _ => {
                mad = true;
                let at = choices.number() as usize % WORDS;
                area[at].store(choices.number() as u32, Ordering::Relaxed);
            }
        }
        assert_eq!(area[WORDS].load(Ordering::Relaxed), GUARD);
    }
    // Whatever stands there: it is refused, or can be drained.
    if let Ok(mut guest) = Guest::attach(&area) {
        guest.drain(&area, |_, _| {});
    }
}

fn tell(host: &mut Host, area: &[AtomicU32], frame: u32, out: bool, holds: &mut [bool; 128]) {
    let (before, lost) = (words(area), host.lost());
    if out {
        host.paged_out(area, frame);
    } else {
        host.paged_in(area, frame);
    }
    if frame < FRAMES {
        holds[frame as usize] = out;
    }
    assert!(host.lost().wrapping_sub(lost) <= 1);
    let (ring, head) = if out {
        (1024, 16)
    } else {
        (1024 + ENTRIES as usize, 17)
    };
    let bits = 1024 + 2 * ENTRIES as usize;
    let may = |at: usize| {
        at == head || at == 18 || at >= bits || (ring..ring + ENTRIES as usize).contains(&at)
    };
    let after = words(area);
    let changed = (0..=WORDS).filter(|&at| before[at] != after[at]);
    let changed: Vec<_> = changed.collect();
    assert!(
        changed.len() <= 3 && changed.iter().all(|&at| may(at)),
        "{changed:?}"
    );
}
