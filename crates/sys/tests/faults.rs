//! Faults as the kernel reports them, and the calls that resolve them.

mod common;

use std::thread;

use common::{area, next_fault, peek, poke, uffd};
use outpage_core::units::PAGE_BYTES;
use outpage_sys::fd;
use outpage_sys::map;
use outpage_sys::process;
use outpage_sys::raw::Errno;
use outpage_sys::uffd::{
    CopyMode, FaultAccess, FaultKind, Features, Mode, OpenError, Stop, Uffd, Wanted,
};

#[test]
fn a_missing_page_is_reported_and_copied_in() {
    let Some(uffd) = uffd(Features::THREAD_ID) else {
        return;
    };
    let (target, mut source) = (area(2), area(1));
    source.bytes_mut(0, PAGE_BYTES).fill(9);
    uffd.register(target.start(), target.len(), Mode::missing())
        .unwrap();
    let touched = target.start() + PAGE_BYTES + 100;
    thread::scope(|threads| {
        let reader = threads.spawn(move || (peek(touched), process::tid().0));
        let fault = next_fault(&uffd);
        assert_eq!(
            fault.address & !(PAGE_BYTES - 1),
            target.start() + PAGE_BYTES
        );
        if uffd.features().has(Features::EXACT_ADDRESS) {
            assert_eq!(fault.address, touched);
        }
        assert_eq!(
            (fault.kind, fault.access),
            (FaultKind::Missing, FaultAccess::Read)
        );
        let page = fault.address & !(PAGE_BYTES - 1);
        let copied = uffd.copy(page, source.start(), PAGE_BYTES, CopyMode::default());
        assert_eq!((copied.bytes, copied.stop), (PAGE_BYTES, None));
        assert_eq!(reader.join().unwrap(), (9, fault.tid));
    });
}

#[test]
fn a_write_is_told_from_a_read_and_zeroes_can_be_mapped() {
    let Some(uffd) = uffd(Features::NONE) else {
        return;
    };
    let target = area(4);
    uffd.register(target.start(), target.len(), Mode::missing())
        .unwrap();
    thread::scope(|threads| {
        let writer = threads.spawn(|| poke(target.start(), 3));
        let fault = next_fault(&uffd);
        assert_eq!(
            (fault.kind, fault.access),
            (FaultKind::Missing, FaultAccess::Write)
        );
        let filled = uffd.zeropage(target.start(), 4 * PAGE_BYTES);
        assert_eq!((filled.bytes, filled.stop), (4 * PAGE_BYTES, None));
        writer.join().unwrap();
    });
    assert_eq!(
        (peek(target.start()), peek(target.start() + PAGE_BYTES)),
        (3, 0)
    );
}

#[test]
fn a_system_call_into_a_missing_page_waits_like_a_thread() {
    let Some(uffd) = uffd(Features::NONE) else {
        return;
    };
    let mut target = area(1);
    uffd.register(target.start(), target.len(), Mode::missing())
        .unwrap();
    let page = target.start();
    let zero = fd::open(c"/proc/self/exe", libc::O_RDONLY).unwrap();
    thread::scope(|threads| {
        let reader = threads.spawn(|| fd::pread(zero.number(), target.bytes_mut(0, 4), 0));
        next_fault(&uffd);
        assert_eq!(uffd.zeropage(page, PAGE_BYTES).stop, None);
        assert_eq!(reader.join().unwrap(), Ok(4));
    });
    assert_eq!(target.bytes(0, 4), b"\x7fELF");
}

#[test]
fn write_protection_reports_writes_until_it_is_taken_off() {
    let Some(uffd) = uffd(Features::PAGEFAULT_FLAG_WP) else {
        return;
    };
    let target = area(3);
    map::populate(target.start(), target.len()).unwrap();
    uffd.register(target.start(), target.len(), Mode::write_protect())
        .unwrap();
    let pagemap = outpage_sys::pagemap::Pagemap::open().unwrap();
    assert_eq!(
        uffd.write_protect(target.start(), target.len(), true).stop,
        None
    );
    assert!(pagemap.page(target.start()).unwrap().write_protected());
    assert_eq!(peek(target.start()), 0);
    thread::scope(|threads| {
        let writer = threads.spawn(|| poke(target.start() + PAGE_BYTES, 5));
        let fault = next_fault(&uffd);
        assert_eq!(
            (fault.kind, fault.access),
            (FaultKind::WriteProtect, FaultAccess::Write)
        );
        assert_eq!(
            peek(target.start() + PAGE_BYTES),
            0,
            "the write has not happened"
        );
        assert_eq!(
            uffd.write_protect(target.start() + PAGE_BYTES, PAGE_BYTES, false)
                .stop,
            None
        );
        writer.join().unwrap();
    });
    assert_eq!(peek(target.start() + PAGE_BYTES), 5);
    assert!(pagemap.page(target.start()).unwrap().write_protected());
    assert!(
        !pagemap
            .page(target.start() + PAGE_BYTES)
            .unwrap()
            .write_protected()
    );
}

#[test]
fn a_copy_can_arrive_protected() {
    let Some(uffd) = uffd(Features::PAGEFAULT_FLAG_WP) else {
        return;
    };
    let (target, source) = (area(1), area(1));
    map::populate(source.start(), PAGE_BYTES).unwrap();
    uffd.register(target.start(), target.len(), Mode::both())
        .unwrap();
    let how = CopyMode {
        write_protect: true,
        dont_wake: false,
    };
    assert_eq!(
        uffd.copy(target.start(), source.start(), PAGE_BYTES, how)
            .stop,
        None
    );
    let pagemap = outpage_sys::pagemap::Pagemap::open().unwrap();
    assert!(pagemap.page(target.start()).unwrap().write_protected());
}

#[test]
fn a_copy_stops_at_a_page_that_is_there() {
    let Some(uffd) = uffd(Features::NONE) else {
        return;
    };
    let (target, source) = (area(4), area(4));
    map::populate(source.start(), source.len()).unwrap();
    poke(target.start() + 2 * PAGE_BYTES, 1);
    uffd.register(target.start(), target.len(), Mode::missing())
        .unwrap();
    let copy = |page: usize| {
        let skip = page * PAGE_BYTES;
        let (to, from) = (target.start() + skip, source.start() + skip);
        uffd.copy(to, from, 4 * PAGE_BYTES - skip, CopyMode::default())
    };
    let first = copy(0);
    assert_eq!(first.bytes, 2 * PAGE_BYTES);
    assert!(first.stop.is_some());
    let second = copy(2);
    assert_eq!((second.bytes, second.stop), (0, Some(Stop::Exists)));
    assert_eq!(peek(target.start() + 2 * PAGE_BYTES), 1);
}

#[test]
fn unregistered_and_unmapped_ranges_are_typed() {
    let Some(uffd) = uffd(Features::NONE) else {
        return;
    };
    let (target, source) = (area(2), area(1));
    map::populate(source.start(), source.len()).unwrap();
    let stray = uffd.copy(
        target.start(),
        source.start(),
        PAGE_BYTES,
        CopyMode::default(),
    );
    assert_eq!((stray.bytes, stray.stop), (0, Some(Stop::NoSource)));
    assert_eq!(
        uffd.register(target.start() + 1, PAGE_BYTES, Mode::missing()),
        Err(Errno::EINVAL)
    );
    let other = common::uffd(Features::NONE).unwrap();
    other
        .register(target.start(), target.len(), Mode::missing())
        .unwrap();
    assert_eq!(
        uffd.register(target.start(), target.len(), Mode::missing()),
        Err(Errno::EBUSY)
    );
}

#[test]
fn unregistering_lets_waiting_threads_go_on() {
    let Some(uffd) = uffd(Features::NONE) else {
        return;
    };
    let target = area(1);
    uffd.register(target.start(), target.len(), Mode::missing())
        .unwrap();
    thread::scope(|threads| {
        let reader = threads.spawn(|| peek(target.start()));
        next_fault(&uffd);
        uffd.unregister(target.start(), target.len()).unwrap();
        assert_eq!(reader.join().unwrap(), 0);
    });
}

#[test]
fn a_woken_thread_faults_again_while_the_page_is_missing() {
    let Some(uffd) = uffd(Features::NONE) else {
        return;
    };
    let target = area(1);
    uffd.register(target.start(), target.len(), Mode::missing())
        .unwrap();
    thread::scope(|threads| {
        let reader = threads.spawn(|| peek(target.start()));
        next_fault(&uffd);
        uffd.wake(target.start(), PAGE_BYTES).unwrap();
        next_fault(&uffd);
        assert_eq!(uffd.zeropage(target.start(), PAGE_BYTES).stop, None);
        assert_eq!(reader.join().unwrap(), 0);
    });
}

#[test]
fn a_poisoned_page_fails_system_calls() {
    let Some(uffd) = uffd(Features::POISON) else {
        return;
    };
    let target = area(2);
    uffd.register(target.start(), target.len(), Mode::missing())
        .unwrap();
    let poisoned = uffd.poison(target.start(), PAGE_BYTES);
    assert_eq!((poisoned.bytes, poisoned.stop), (PAGE_BYTES, None));
    let event = fd::eventfd().unwrap();
    assert_eq!(
        fd::write(event.number(), target.bytes(0, 8)),
        Err(Errno::EFAULT)
    );
    let again = uffd.poison(target.start(), PAGE_BYTES);
    assert_eq!((again.bytes, again.stop), (0, Some(Stop::Exists)));
}

#[test]
fn features_the_kernel_lacks_are_named() {
    if uffd(Features::NONE).is_none() {
        return;
    }
    let unknown = Features::from_bits(1 << 63);
    let wanted = Wanted {
        required: unknown.plus(Features::THREAD_ID),
        ..Wanted::default()
    };
    assert_eq!(Uffd::open(&wanted).unwrap_err(), OpenError::Lacks(unknown));
    let wanted = Wanted {
        optional: unknown.plus(Features::THREAD_ID),
        ..Wanted::default()
    };
    assert_eq!(Uffd::open(&wanted).unwrap().features(), Features::THREAD_ID);
}

#[test]
fn an_inherited_device_is_used_and_left_open() {
    let device = match fd::open(c"/dev/userfaultfd", libc::O_RDWR) {
        Ok(device) => device,
        Err(error) => return common::skipped(&format!("/dev/userfaultfd: {error}")),
    };
    for inherited in [device.number(), device.number()] {
        let wanted = Wanted {
            inherited: Some(inherited),
            ..Wanted::default()
        };
        assert!(Uffd::open(&wanted).is_ok());
    }
    let wanted = Wanted {
        inherited: Some(i32::MAX),
        ..Wanted::default()
    };
    assert!(Uffd::open(&wanted).is_ok(), "the other routes are tried");
}

#[test]
fn every_route_that_fails_is_named() {
    let device = Errno::EACCES;
    let error = OpenError::NoRoute {
        inherited: Some(Errno::EBADF),
        device,
        call: Errno::EPERM,
    };
    assert_eq!(
        error.to_string(),
        "no userfaultfd: inherited descriptor: bad file descriptor (EBADF); \
         /dev/userfaultfd: permission denied (EACCES); userfaultfd(2): operation not permitted (EPERM)"
    );
}
