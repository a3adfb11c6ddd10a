use std::io::Read;

use outpage_core::units::{ObjectId, PageNo};
use outpage_sys::fd::{self, Fd};
use outpage_sys::libc;
use outpage_sys::proc;
use outpage_sys::shared::{Mapped, lock_byte};

use super::*;
use crate::ObjectUse;
use crate::layout::FILE_NAME;

/// A session as a launcher makes it, and its memory.
fn session() -> (Fd, Mapped<Board>) {
    let file = shared::create(FILE_NAME, size_of::<Board>() as u64 + 4096).expect("memfd");
    let board: Mapped<Board> = shared::map(file.number()).expect("map");
    board.head.magic.store(MAGIC, Relaxed);
    board.head.version.store(VERSION, Relaxed);
    board.head.limit_pages.store(100, Relaxed);
    (file, board)
}

/// The file as somebody else opens it.
fn opened(file: &Fd) -> File {
    File::open(format!("/proc/self/fd/{}", file.number())).expect("open")
}

fn run(file: &Fd) -> Run {
    Run::new(opened(file)).expect("a session")
}

fn join(board: &Board, index: usize, state: State, pid: u32) {
    board.members[index].pid.store(pid, Relaxed);
    board.members[index].state.store(state as u32, Relaxed);
}

#[test]
fn a_run_is_read_as_its_processes_write_it() {
    let (file, board) = session();
    let run = run(&file);
    assert_eq!(run.look().expect("a look").processes.len(), 0);
    let locks = proc::reopen(file.number(), libc::O_RDWR).expect("reopen");
    assert_eq!(lock_byte(locks.number(), 7), Ok(true));
    for (index, pid) in [(7, 70), (8, 80)] {
        join(&board, index, State::Live, pid);
        let ledger = &board.ledgers[index];
        ledger.counters.count_read(5);
        ledger.counters.resident_pages.set(30);
        ledger.latencies.major.record(1000);
    }
    board.retired.counters.count_read(100);
    board.head.reserved.word.store(60, Relaxed);
    board.head.mechanism.store(1, Relaxed);
    let seen = run.look().expect("a look");
    let told: Vec<_> = seen.processes.iter().map(|p| (p.pid, p.alive)).collect();
    assert_eq!(told, [(70, true), (80, false)]);
    // The dead have read, and hold nothing.
    assert_eq!(
        (seen.totals.page_ins, seen.totals.resident_pages),
        (110, 30)
    );
    assert_eq!(seen.waits.major.count(), 2);
    assert_eq!((seen.lent_pages, seen.mechanism), (60, "move"));
}

#[test]
fn objects_of_all_processes_stand_in_order() {
    let (file, board) = session();
    let object = |page_ins| {
        let page = PageNo::new(ObjectId(1), 16);
        let counts = outpage_core::swap_cache::SwapCache {
            page_ins,
            ..outpage_core::swap_cache::SwapCache::ZERO
        };
        ObjectUse {
            pid: 70,
            first: page,
            last: page,
            counts,
        }
    };
    join(&board, 0, State::Live, 70);
    board.objects[0].set(3, &object(5));
    board.retired_objects.set(0, &object(9));
    let uses = run(&file).look().expect("a look").objects;
    let read: Vec<u64> = uses.largest.iter().map(|o| o.counts.page_ins).collect();
    assert_eq!(read, [9, 5]);
}

#[test]
fn the_program_and_the_keeper_are_told_while_they_run() {
    let (file, board) = session();
    let Some(own) = liveness::own() else {
        panic!("no /proc");
    };
    board.head.program_pid.store(own.pid.into(), Relaxed);
    board.head.program_started.store(own.started, Relaxed);
    board.head.keeper_pid.store(own.pid, Relaxed);
    board.head.keeper_started.store(own.started - 1, Relaxed);
    let seen = run(&file).look().expect("a look");
    assert_eq!((seen.program, seen.keeper), (Some(own.pid), None));
}

#[test]
fn what_is_no_session_says_why() {
    let refused = |damage: &dyn Fn(&Board)| {
        let (file, board) = session();
        damage(&board);
        Run::new(opened(&file)).and_then(|run| run.look()).err()
    };
    assert_eq!(refused(&|_| {}), None);
    let head = |damage: fn(&Head)| refused(&|board| damage(&board.head));
    assert_eq!(
        head(|h| h.magic.store(0, Relaxed)),
        Some(Unreadable::NoSession)
    );
    let fresh = |h: &Head| {
        h.magic.store(0, Relaxed);
        h.version.store(0, Relaxed);
    };
    assert_eq!(head(fresh), Some(Unreadable::NotBegun));
    let swapped = Some(Unreadable::Endianness);
    assert_eq!(
        head(|h| h.magic.store(MAGIC.swap_bytes(), Relaxed)),
        swapped
    );
    let version = Some(Unreadable::Version(4));
    assert_eq!(head(|h| h.version.store(4, Relaxed)), version);
    let lent = Some(Unreadable::Damaged("the sum of what is lent"));
    assert_eq!(head(|h| h.reserved.word.store(101, Relaxed)), lent);
    let mechanism = Some(Unreadable::Damaged("its mechanism"));
    assert_eq!(head(|h| h.mechanism.store(3, Relaxed)), mechanism);
    let state = Some(Unreadable::Damaged("the state of an entry"));
    assert_eq!(refused(&|b| b.members[511].state.store(4, Relaxed)), state);
}

#[test]
fn a_file_that_is_cut_short_says_so_wherever_it_ends() {
    let (file, _board) = session();
    let mut whole = Vec::new();
    opened(&file).read_to_end(&mut whole).expect("read");
    let cut = |bytes: usize| {
        let file = shared::create(c"cut", bytes as u64).expect("memfd");
        fd::pwrite(file.number(), &whole[..bytes], 0).expect("write");
        Run::new(opened(&file)).err()
    };
    for bytes in [0, 7, 8, 11, 12, size_of::<Head>(), size_of::<Board>() - 1] {
        assert_eq!(cut(bytes), Some(Unreadable::Short(bytes as u64)), "{bytes}");
    }
    assert_eq!(cut(size_of::<Board>()), None);
    assert!(Run::new(File::open("/").expect("a directory")).is_err());
}

#[test]
fn a_run_that_is_spoiled_meanwhile_says_so_at_the_next_look() {
    let (file, board) = session();
    let run = run(&file);
    board.head.magic.store(0, Relaxed);
    assert_eq!(run.look().err(), Some(Unreadable::NoSession));
}

#[test]
fn a_run_that_ended_is_read_as_it_was() {
    let (file, board) = session();
    let run = run(&file);
    board.retired.counters.count_read(5);
    drop((file, board));
    assert_eq!(run.look().expect("a look").totals.page_ins, 5);
}

/// A splitmix64 generator (Steele, Lea and Flood, OOPSLA 2014).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn any_numbers_are_read_and_added() {
    let mut state = 7;
    for _ in 0..20 {
        let (file, board) = session();
        join(&board, 3, State::Live, random(&mut state) as u32);
        join(&board, 4, State::Direct, random(&mut state) as u32);
        let parts = [
            (offset_of!(Board, members), size_of::<Member>() * 6),
            (offset_of!(Board, ledgers), size_of::<Ledger>() * 6),
            (offset_of!(Board, retired), size_of::<Ledger>()),
            (offset_of!(Board, objects), size_of::<Table>() * 6),
        ];
        for (start, bytes) in parts {
            for _ in 0..200 {
                let word = [random(&mut state), u64::MAX, 0][random(&mut state) as usize % 3];
                let at = start + random(&mut state) as usize % (bytes / 8) * 8;
                fd::pwrite(file.number(), &word.to_ne_bytes(), at as u64).expect("write");
            }
        }
        // The states may be anything now, and then that is what is said.
        match run(&file).look() {
            Err(why) => assert_eq!(why, Unreadable::Damaged("the state of an entry")),
            Ok(seen) => drop((seen.waits.major.quantile(0.99), seen.totals.each().count())),
        }
        for member in &board.members {
            member.state.store(State::Live as u32, Relaxed);
        }
        let seen = run(&file).look().expect("every state is one");
        assert!(seen.objects.largest.len() <= OBJECTS_LISTED);
        assert_eq!(seen.processes.len(), MEMBERS_MAX);
    }
}
