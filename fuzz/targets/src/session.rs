//! A session whose memory holds anything: another process of the tree may have gone mad.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

use outpage_engine::session::{EXTENT_BYTES, Session};
use outpage_stats::run::Run;
use outpage_sys::fd::Fd;

use crate::cursor::Cursor;

/// Frames of the session.
const LIMIT_PAGES: u64 = 1000;
/// Extents of its swap file.
const EXTENTS: u64 = 40;

/// Bytes written anywhere into a session before it is opened and while it is used.
pub fn session(data: &[u8]) {
    let mut choices = Cursor(data);
    let (mut first, file) =
        Session::create(LIMIT_PAGES, EXTENTS * EXTENT_BYTES).expect("a session");
    let joined = first.join();
    assert!(joined.is_ok(), "nothing is written yet");
    if choices.byte() & 1 == 0 {
        damage(&file, &mut choices);
    }
    let opened = Session::from_fd(file.number());
    if let Ok(mut second) = opened {
        let member = second.join().is_ok();
        let mut forks = Vec::new();
        for _ in 0..16 {
            if choices.is_empty() {
                break;
            }
            damage(&file, &mut choices);
            let what = choices.byte();
            use_view(&first, what, &mut choices);
            if member {
                use_view(&second, what >> 4, &mut choices);
                if what == 0x77 {
                    forks.extend(second.begin_fork().ok());
                }
            }
        }
        for child in forks {
            second.fork_done(child, u32::MAX >> 1);
            second.cancel_fork(child);
        }
        look(&second);
        let _ = second.leave();
    }
    look(&first);
    look_from_outside(&file);
    let _ = first.leave();
}

/// What `outpage status` reads.
fn look_from_outside(file: &Fd) {
    let path = format!("/proc/self/fd/{}", file.number());
    let opened = File::open(path).expect("a file of this process");
    match Run::new(opened).and_then(|run| run.look()) {
        Ok(seen) => {
            assert!(seen.lent_pages <= seen.limit_pages, "more than the limit");
            assert!(seen.objects.largest.len() <= 16);
            let _ = (seen.waits.minor.quantile(0.5), seen.totals.each().count());
        }
        Err(why) => assert!(!why.to_string().contains('\n'), "one line"),
    }
}

/// Writes some bytes somewhere, near the beginning as a rule.
fn damage(file: &Fd, choices: &mut Cursor<'_>) {
    let path = format!("/proc/self/fd/{}", file.number());
    let Ok(mut memory) = OpenOptions::new().write(true).open(path) else {
        return;
    };
    let bytes = memory.metadata().map_or(0, |found| found.len()).max(1);
    for _ in 0..choices.byte() % 8 {
        let at = match choices.byte() {
            kind @ 0..=127 => u64::from(kind) * 8,
            _ => choices.word(),
        } % bytes;
        let _ = memory.write_all_at(choices.bytes(64), at.min(bytes - 64));
    }
    let _ = memory.flush();
}

/// One use of a view that has joined; what it returns must make sense, whatever it is.
fn use_view(view: &Session, what: u8, choices: &mut Cursor<'_>) {
    match what % 8 {
        0 => {
            let asked = choices.number();
            let granted = view.reserve(asked);
            assert!(granted <= asked, "more than was asked for");
            view.release(granted);
        }
        1 => {
            if let Some(extent) = view.lease_extent() {
                assert!((extent as usize) < outpage_engine::session::EXTENTS_MAX);
                let _ = view.shares_any(&[extent]);
                view.release_extent(extent);
            }
        }
        2 => {
            view.want(choices.number());
            let _ = view.target(&mut Vec::new());
        }
        3 => {
            let _ = view.reap();
        }
        4 => look(view),
        5 => view.counters().count_write(1 + choices.number() % 1024),
        6 => view.counters().count_read(1 + choices.number() % 1024),
        _ => {
            let _ = (view.held_pages(), view.limit_pages(), view.extents_cap());
        }
    }
}

/// What the launcher reads at the end.
fn look(view: &Session) {
    let _ = (
        view.totals(),
        view.waits(),
        view.mechanism(),
        view.peak_pages(),
    );
    let uses = view.object_uses(16);
    assert!(uses.largest.len() <= 16);
    let waits = view.waits();
    let _ = (waits.minor.quantile(0.5), waits.major.quantile(0.99));
    let _ = view.members().count();
}
