//! Processes that hold no view of the session.

use super::*;

/// A session that has a keeper: this process.
fn kept(limit_pages: u64) -> (Session, Fd) {
    let (session, file) = create(limit_pages);
    session.keep(this_process());
    (session, file)
}

#[test]
fn a_process_in_direct_mode_keeps_its_part_without_a_view() {
    let (watcher, file) = kept(100);
    let mut first = another(&file);
    first.join_direct().expect("join");
    assert_eq!(first.reserve(10), 10);
    drop(first);
    assert_eq!(watcher.reap_all(), Ok(0), "it lives");
    let mut second = another(&file);
    second.join_direct().expect("join");
    assert_eq!((second.held_pages(), watcher.members().count()), (10, 1));
    assert_eq!(second.reserve(5), 5);
    drop(second);
    let mut third = another(&file);
    assert_eq!(third.rejoin_direct(), Ok(true));
    third.leave().expect("leave");
    assert_eq!(
        (watcher.reserved_pages(), watcher.members().count()),
        (0, 0)
    );
    assert_eq!(another(&file).rejoin_direct(), Ok(false));
}

#[test]
fn a_pager_takes_over_what_its_process_was_lent() {
    let (watcher, file) = kept(100);
    let mut direct = another(&file);
    direct.join_direct().expect("join");
    direct.reserve(30);
    drop(direct);
    let mut pager = another(&file);
    pager.join().expect("join");
    assert_eq!((pager.held_pages(), watcher.members().count()), (30, 1));
    let view = watcher.members().next().expect("a member");
    assert_eq!(view.state, State::Live);
    drop(pager);
    bury_one(&watcher);
    assert_eq!(watcher.reserved_pages(), 0);
}

#[test]
fn what_a_process_only_asks_for_is_bounded() {
    let (watcher, file) = kept(100);
    let mut direct = another(&file);
    direct.join_direct().expect("join");
    assert_eq!(direct.most_without_pager(0), 100, "nobody is the program");
    // Another process than this one.
    let head = watcher.head();
    head.program_pid.store(1, SeqCst);
    assert_eq!(direct.most_without_pager(0), 25);
    assert_eq!(direct.most_without_pager(20), 40, "it has touched so many");
    assert_eq!(direct.most_without_pager(80), 100);
    let child = spawn_as(&file, Some("direct"));
    assert_eq!(direct.most_without_pager(0), 15, "one holds ten");
    let children = [child, spawn_as(&file, Some("direct"))];
    assert_eq!(direct.most_without_pager(0), 12, "two hold ten each");
    assert_eq!(direct.most_without_pager(20), 40);
    drop(children);
    assert_eq!(watcher.reap_all(), Ok(2));
    direct.leave().expect("leave");
    let mut pager = another(&file);
    pager.join().expect("join");
    let mut direct = another(&file);
    direct.join_direct().expect("join");
    assert_eq!(direct.most_without_pager(80), 25, "one pages");
}

#[test]
fn a_killed_process_in_direct_mode_gives_its_part_back() {
    let (watcher, file) = kept(100);
    let child = spawn_as(&file, Some("direct"));
    assert_eq!(watcher.reap_all(), Ok(0), "it lives");
    assert_eq!(watcher.reserved_pages(), 10);
    drop(child);
    assert_eq!(watcher.reap_all(), Ok(1));
    assert_eq!(watcher.reserved_pages(), 0);
}

#[test]
fn nobody_judges_by_another_proc() {
    let (watcher, file) = kept(100);
    let child = spawn_as(&file, Some("direct"));
    drop(child);
    let started = &watcher.head().keeper_started;
    started.fetch_add(1, SeqCst);
    assert_eq!(watcher.reap_all(), Ok(0));
    assert_eq!(another(&file).join_direct(), Err(SessionError::Unreachable));
    started.fetch_sub(1, SeqCst);
    assert_eq!(watcher.reap_all(), Ok(1));
}

#[test]
fn a_search_looks_up_few_processes_and_the_next_goes_on() {
    let (watcher, _file) = kept(100);
    // Process 1 did not start at tick 1 of a machine's time.
    for index in 0..40 {
        let id = MemberId(index * 7);
        watcher.reset(id, 1, 0);
        watcher.member(id).since.store(1, SeqCst);
        watcher.set_state(id, State::Direct);
    }
    let buried: Vec<usize> = (0..4).map(|_| watcher.reap()).collect();
    assert_eq!(buried, [16, 16, 8, 0]);
}

#[test]
fn a_full_table_makes_room_for_the_dead() {
    let (watcher, file) = kept(100);
    for id in MemberId::all() {
        watcher.reset(id, 1, 0);
        watcher.member(id).since.store(1, SeqCst);
        watcher.set_state(id, State::Direct);
    }
    let mut late = another(&file);
    assert_eq!(late.join_direct(), Ok(()));
    assert!(watcher.members().count() < MEMBERS_MAX);
}
