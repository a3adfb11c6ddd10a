use std::ffi::CString;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use outpage_stats::{ObjectUse, liveness};

use super::*;

mod direct;

const CHILD_SESSION: &str = "OUTPAGE_TEST_SESSION";
const CHILD_MEMBER: &str = "OUTPAGE_TEST_MEMBER";

fn create(limit_pages: u64) -> (Session, Fd) {
    Session::create(limit_pages, 4 * EXTENT_BYTES).expect("session")
}

/// A second view with a description of its own, as another process would have.
fn another(file: &Fd) -> Session {
    Session::from_fd(file.number()).expect("view")
}

/// Not a test: the body of the processes that [`spawn`] starts. It joins, takes two extents and ten
/// frames, counts three page-ins, says so, and waits to be killed.
#[test]
fn child_process() {
    let Ok(path) = std::env::var(CHILD_SESSION) else {
        return;
    };
    let mut session = Session::open(&CString::new(path).expect("path")).expect("open");
    match std::env::var(CHILD_MEMBER) {
        Ok(text) if text == "direct" => {
            session.join_direct().expect("join_direct");
            assert_eq!(session.reserve(10), 10);
            // What keeps a member alive is not the view.
            drop(session);
            println!("\njoined");
            return wait_for_parent();
        }
        Ok(text) => {
            let (id, generation) = text.split_once(' ').expect("two numbers");
            let id = MemberId(id.parse().expect("id"));
            let generation = generation.parse().expect("generation");
            let reserved = Reserved { id, generation };
            session.join_forked(reserved).expect("join_forked");
        }
        Err(_) => drop(session.join().expect("join")),
    }
    assert_eq!(session.reserve(10), 10);
    assert!(session.lease_extent().is_some());
    session.counters().count_read(3);
    println!("\njoined");
    wait_for_parent();
}

fn wait_for_parent() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("parent");
}

/// Waits until one member is found dead. A process that another test is just starting holds copies
/// of all descriptors, locks included, until it executes its program.
fn bury_one(watcher: &Session) {
    loop {
        match watcher.reap() {
            0 => std::thread::yield_now(),
            buried => return assert_eq!(buried, 1),
        }
    }
}

struct Spawned(Child);

/// Starts [`child_process`] on the session behind `file` and waits until it has joined.
fn spawn(file: &Fd, reserved: Option<Reserved>) -> Spawned {
    let member = reserved.map(|Reserved { id, generation }| format!("{} {generation}", id.index()));
    spawn_as(file, member.as_deref())
}

/// The same as `member`: "direct", or the entry and generation that a parent reserved.
fn spawn_as(file: &Fd, member: Option<&str>) -> Spawned {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args([
            "--exact",
            "session::tests::child_process",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(
            CHILD_SESSION,
            format!("/proc/{}/fd/{}", std::process::id(), file.number()),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if let Some(member) = member {
        command.env(CHILD_MEMBER, member);
    }
    let mut child = command.spawn().expect("spawn");
    let lines = BufReader::new(child.stdout.as_mut().expect("stdout")).lines();
    let said: Vec<String> = lines
        .map_while(Result::ok)
        .take_while(|line| line != "joined")
        .collect();
    // Lines follow if the child goes on.
    let spawned = Spawned(child);
    assert!(!said.iter().any(|line| line.contains("FAILED")), "{said:?}");
    spawned
}

impl Drop for Spawned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn members_join_leave_and_are_counted() {
    let (watcher, file) = create(100);
    let (mut a, mut b) = (another(&file), another(&file));
    assert_eq!((a.join(), b.join()), (Ok(MemberId(0)), Ok(MemberId(1))));
    a.counters().count_write(16);
    b.counters().count_write(1);
    b.counters().resident_pages.set(7);
    assert_eq!(watcher.totals().page_outs, 17);
    assert_eq!(watcher.totals().resident_pages, 7);
    b.leave().expect("leave");
    assert_eq!(
        watcher.totals().page_outs,
        17,
        "the counters of the gone are kept"
    );
    assert_eq!(watcher.totals().resident_pages, 0);
    assert_eq!(watcher.members().count(), 1);
    assert_eq!(b.join(), Ok(MemberId(1)), "the entry is free again");
}

#[test]
fn the_limit_is_never_exceeded_and_frames_come_back() {
    let (watcher, file) = create(100);
    let (mut a, mut b) = (another(&file), another(&file));
    a.join().expect("join");
    b.join().expect("join");
    assert_eq!(a.reserve(60), 60);
    assert_eq!(b.reserve(60), 40);
    assert_eq!(b.reserve(1), 0);
    assert_eq!((watcher.reserved_pages(), watcher.peak_pages()), (100, 100));
    a.release(10);
    assert_eq!(b.reserve(20), 10);
    drop(a);
    bury_one(&watcher);
    assert_eq!(watcher.reserved_pages(), 50);
    assert_eq!(b.held_pages(), 50);
}

#[test]
fn targets_divide_the_limit_by_what_frames_are_worth() {
    let (_watcher, file) = create(100);
    let (mut a, mut b) = (another(&file), another(&file));
    let claims = &mut Vec::new();
    a.join().expect("join");
    b.join().expect("join");
    a.reserve(90);
    assert_eq!(a.target(claims), u64::MAX, "nobody wants more");
    b.reserve(10);
    b.want(5);
    assert_eq!(a.target(claims), 85, "b asks for 15 in all and gets it");
    // Of two that say nothing none gets more than the other.
    for _ in 0..40 {
        b.want(500);
        let (for_a, for_b) = (a.target(claims), b.target(claims));
        assert!(for_a >= 50 && for_b <= 50);
        a.release(a.held_pages() - for_a);
        b.reserve(for_b - b.held_pages());
    }
    assert_eq!((a.held_pages(), b.held_pages()), (50, 50));
    let mut worth = Worth {
        near: 1_000_000,
        near_pages: 2,
        ..Worth::default()
    };
    a.bid(&worth);
    worth.gains[4] = 20_000_000;
    b.bid(&worth);
    assert_eq!((a.target(claims), b.target(claims)), (47, 53));
    a.bid(&Worth {
        asleep: true,
        least_pages: 7,
        ..worth
    });
    assert_eq!((a.target(claims), b.target(claims)), (25, 75));
    let seen = |view: &Session, id: MemberId| view.member(id).target_pages.load(SeqCst);
    assert_eq!([0, 1].map(|id| seen(&a, MemberId(id))), [25, 75]);
}

#[test]
fn extents_are_leased_once_and_shared_by_fork() {
    let (watcher, file) = create(100);
    let (mut a, mut b) = (another(&file), another(&file));
    let parent = a.join().expect("join");
    b.join().expect("join");
    assert_eq!(
        (a.lease_extent(), b.lease_extent(), a.lease_extent()),
        (Some(0), Some(1), Some(2))
    );
    let child = a.begin_fork().expect("fork");
    assert_eq!(watcher.extent_holders(0), 2);
    a.release_extent(0);
    assert_eq!(
        (b.lease_extent(), b.lease_extent()),
        (Some(3), None),
        "the child still holds 0"
    );
    assert_eq!(watcher.extents_of(parent).collect::<Vec<_>>(), [2]);
    assert_eq!(watcher.extents_of(child.id).collect::<Vec<_>>(), [0, 2]);
    a.cancel_fork(child);
    assert_eq!(b.lease_extent(), Some(0));
}

#[test]
fn extents_stay_shared_while_a_grandchild_lives() {
    let (watcher, file) = create(100);
    let (mut parent, mut child) = (another(&file), another(&file));
    parent.join().expect("join");
    let mine = [parent.lease_extent().expect("extent")];
    assert!(!parent.shares_any(&mine));
    let id = parent.begin_fork().expect("fork");
    child.join_forked(id).expect("join");
    let childs = child.lease_extent().expect("extent");
    assert!(parent.shares_any(&mine));
    assert!(!child.shares_any(&[childs]), "the parent got none of it");
    let grandchild = child.begin_fork().expect("fork");
    drop(child);
    bury_one(&watcher);
    assert!(parent.shares_any(&mine), "the child's child needs it");
    parent.cancel_fork(grandchild);
    assert!(!parent.shares_any(&mine));
}

#[test]
fn leases_from_many_threads_never_meet() {
    const MEMBERS: usize = 100;
    let (_watcher, file) = Session::create(1, 400 * EXTENT_BYTES).expect("session");
    let views: Vec<Session> = (0..MEMBERS)
        .map(|_| {
            let mut view = another(&file);
            view.join().expect("join");
            view
        })
        .collect();
    let mut leased: Vec<u32> = std::thread::scope(|scope| {
        let workers: Vec<_> = views
            .chunks(MEMBERS / 4)
            .map(|chunk| scope.spawn(move || lease_four_each(chunk)))
            .collect();
        workers
            .into_iter()
            .flat_map(|w| w.join().expect("worker"))
            .collect()
    });
    leased.sort_unstable();
    leased.dedup();
    assert_eq!(leased.len(), 400);
}

fn lease_four_each(views: &[Session]) -> Vec<u32> {
    views
        .iter()
        .flat_map(|view| (0..4).filter_map(|_| view.lease_extent()))
        .collect()
}

#[test]
fn a_killed_process_leaves_nothing_but_its_counters() {
    let (watcher, file) = create(100);
    let child = spawn(&file, None);
    assert_eq!(watcher.reap(), 0, "it lives");
    let view = watcher.members().next().expect("a member");
    assert_eq!(
        (view.pid, view.held_pages, view.state),
        (child.0.id(), 10, State::Live)
    );
    drop(child);
    bury_one(&watcher);
    assert_eq!(
        (watcher.reserved_pages(), watcher.extent_holders(0)),
        (0, 0)
    );
    assert_eq!(watcher.totals().page_ins, 3);
}

#[test]
fn a_forked_child_keeps_what_its_dead_parent_held() {
    let (watcher, file) = create(100);
    let mut parent = another(&file);
    parent.join().expect("join");
    let extent = parent.lease_extent().expect("extent");
    let id = parent.begin_fork().expect("fork");
    let child = spawn(&file, Some(id));
    parent.fork_done(id, child.0.id());
    drop(parent);
    bury_one(&watcher);
    assert_eq!(watcher.extent_holders(extent), 1, "the child");
    drop(child);
    bury_one(&watcher);
    assert_eq!(watcher.extent_holders(extent), 0);
}

#[test]
fn a_child_that_dies_before_it_joins_is_buried() {
    let (watcher, file) = create(100);
    let mut parent = another(&file);
    parent.join().expect("join");
    let id = parent.begin_fork().expect("fork");
    assert_eq!(watcher.reap(), 0, "the fork has not returned: nobody knows");
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .spawn()
        .expect("cat");
    parent.fork_done(id, child.id());
    assert_eq!(watcher.reap(), 0, "it lives");
    drop(child.stdin.take());
    child.wait().expect("wait");
    bury_one(&watcher);
    let mut late = another(&file);
    assert_eq!(late.join_forked(id), Err(SessionError::Expired));
}

#[test]
fn a_fork_that_its_parent_did_not_survive_is_buried_when_no_child_can_come() {
    let (watcher, file) = create(100);
    let mut parent = another(&file);
    parent.join().expect("join");
    let extent = parent.lease_extent().expect("extent");
    let reserved = parent.begin_fork().expect("fork");
    let since = &watcher.member(reserved.id).since;
    since.store(0, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(watcher.reap(), 0, "whoever forks lives");
    drop(parent);
    while watcher.extent_holders(extent) > 0 {
        watcher.reap();
    }
    let mut late = another(&file);
    assert_eq!(late.join_forked(reserved), Err(SessionError::Expired));
    let mut other = another(&file);
    other.join().expect("join");
    while other.begin_fork().expect("fork").id != reserved.id {}
    assert_eq!(
        late.join_forked(reserved),
        Err(SessionError::Expired),
        "that is another's"
    );
}

#[test]
fn a_child_may_join_after_its_parent_is_gone() {
    let (watcher, file) = create(100);
    let mut parent = another(&file);
    parent.join().expect("join");
    let reserved = parent.begin_fork().expect("fork");
    drop(parent);
    bury_one(&watcher);
    assert_eq!(watcher.reap(), 0, "a child may still come");
    let mut child = another(&file);
    assert_eq!(child.join_forked(reserved), Ok(()));
}

#[test]
fn the_keeper_waits_for_launcher_and_members() {
    let (launcher, file) = create(100);
    launcher.hold_for_launcher().expect("hold");
    let child = spawn(&file, None);
    let keeper = another(&file);
    let waiting = std::thread::spawn(move || {
        keeper
            .wait_launcher_gone()
            .and_then(|()| keeper.wait_members_gone())
    });
    drop(launcher);
    assert!(!waiting.is_finished(), "a member lives");
    drop(child);
    assert_eq!(waiting.join().expect("keeper"), Ok(()));
}

#[test]
fn other_files_are_no_sessions() {
    assert!(matches!(
        Session::open(c"/nonexistent"),
        Err(SessionError::Os(_, Errno::ENOENT))
    ));
    let bytes = size_of::<Layout>() as u64;
    let zeroes = shared::create(c"outpage-test", bytes).expect("memfd");
    assert!(matches!(
        Session::from_fd(zeroes.number()),
        Err(SessionError::Foreign)
    ));
}

#[test]
fn paths_survive_the_environment() {
    let paths = SessionPaths {
        session: Some(c"/proc/7/fd/8".into()),
        swap: Some(c"/proc/7/fd/9".into()),
        uffd_device: Some(10),
        keeper: Some(this_process()),
        home: Some(c"outpage-7-8".into()),
    };
    let vars = paths.to_env();
    let lookup = |name: &str| {
        vars.iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| v.clone())
    };
    assert_eq!(SessionPaths::from_env(lookup), paths);
    assert_eq!(SessionPaths::from_env(|_| None), SessionPaths::default());
}

#[test]
fn objects_outlive_their_process_and_keep_exact_sums() {
    use outpage_core::swap_cache::{OBJECTS_MAX, SwapCache};
    use outpage_core::units::{ObjectId, PageNo};

    let (watcher, file) = create(100);
    let read = |object: u32, page_ins: u64| ObjectUse {
        pid: 1,
        first: PageNo::new(ObjectId(object), 5),
        last: PageNo::new(ObjectId(object), 9),
        counts: SwapCache {
            page_ins,
            ..SwapCache::ZERO
        },
    };
    let mut expected = 0;
    for process in 0..3 {
        let mut member = another(&file);
        let id = member.join().expect("join");
        for object in 0..OBJECTS_MAX as u32 {
            let pages = u64::from(object * 3 + process);
            expected += pages;
            member.set_object(id, object as usize, &read(object, pages));
        }
        let living = watcher.object_uses(2).largest;
        assert_eq!(living[0].counts.page_ins, u64::from(63 * 3 + process));
        member.leave().expect("leave");
    }
    let uses = watcher.object_uses(4);
    let pages: Vec<u64> = uses.largest.iter().map(|o| o.counts.page_ins).collect();
    assert_eq!(pages, [191, 190, 189, 188]);
    assert_eq!(pages.iter().sum::<u64>() + uses.others.page_ins, expected);
}

/// Shared memory gets a frame for each page that is looked at. What nobody used must not be.
#[test]
fn a_session_of_few_processes_takes_few_frames() {
    let (launcher, file) = Session::create(100, 64 << 30).expect("session");
    let mut one = another(&file);
    one.join().expect("join");
    assert!(one.lease_extent().is_some());
    let child = one.begin_fork().expect("fork");
    one.cancel_fork(child);
    assert_eq!(one.target(&mut Vec::new()), u64::MAX);
    one.leave().expect("leave");
    assert_eq!((launcher.reap(), launcher.totals().page_ins), (0, 0));
    let path = format!("/proc/self/fd/{}", file.number());
    let taken = std::fs::metadata(path).expect("the memfd").blocks() * 512;
    assert!(taken <= 128 << 10, "{taken} bytes for one member");
}

/// This process as a session's keeper.
pub(super) fn this_process() -> Keeper {
    Keeper::of(std::process::id()).expect("/proc")
}

#[test]
fn a_fork_without_a_namespace_to_judge_by_ends_with_its_time() {
    let (watcher, file) = create(100);
    let mut parent = another(&file);
    parent.join().expect("join");
    let child = parent.begin_fork().expect("fork");
    parent.fork_done(child, 1 << 22);
    watcher.member(child.id).pid_namespace.store(0, SeqCst);
    assert_eq!(watcher.reap(), 0, "a child may come");
    watcher.member(child.id).since.store(0, SeqCst);
    assert_eq!(watcher.reap(), 1);
    let again = parent.begin_fork().expect("fork");
    let since = &watcher.member(again.id).since;
    watcher.member(again.id).pid_namespace.store(0, SeqCst);
    since.store(u64::MAX, SeqCst);
    parent.fork_done(again, 1 << 22);
    assert_eq!(watcher.reap(), 1, "no fork began in a time to come");
}

#[test]
fn a_session_out_of_reach_is_told_from_one_whose_keeper_was_killed() {
    let mut keeper = Command::new("cat")
        .stdin(Stdio::piped())
        .spawn()
        .expect("cat");
    let started = match liveness::look(keeper.id()) {
        liveness::Seen::Running(identity) => identity.started,
        seen => panic!("{seen:?}"),
    };
    let namespace = this_process().namespace;
    let mut paths = SessionPaths {
        session: CString::new(format!("/proc/{}/fd/99", keeper.id())).ok(),
        keeper: Some(Keeper {
            pid: keeper.id(),
            started,
            namespace,
        }),
        ..SessionPaths::default()
    };
    let error = |paths: &SessionPaths| paths.open().err();
    let absent = Some(SessionError::Os("open the session", Errno::ENOENT));
    assert_eq!(
        error(&paths),
        absent,
        "the keeper lives and has no such file"
    );
    keeper.kill().expect("kill");
    // A zombie first, then nothing.
    let gone = [Some(SessionError::KeeperGone), absent];
    while error(&paths) != gone[0] {
        assert!(gone.contains(&error(&paths)), "{:?}", error(&paths));
    }
    keeper.wait().expect("wait");
    assert_eq!(error(&paths), gone[0]);
    paths.keeper = paths.keeper.map(|keeper| Keeper {
        namespace: namespace + 1,
        ..keeper
    });
    assert_eq!(error(&paths), Some(SessionError::Unreachable));
}
