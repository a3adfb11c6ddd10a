//! Guests that page, on a host that pages them.

use outpage_sim::guests::{
    GuestSetup, Machine, NotifySetup, Report, RunError, Setup, SysbenchParams, Work,
};
use outpage_sim::world::{Costs, DiskSpec, Policies};

const NOTIFY: NotifySetup = NotifySetup {
    entries: 1 << 12,
    drain_us: 1_000,
    hidden_percent: 100,
    rescues: true,
};

fn policies() -> Policies {
    Policies {
        reclaim: "second-chance".to_owned(),
        pageout: "linux".to_owned(),
        readahead: "linux-slot".to_owned(),
        readahead_settings: "block=fixed,arrival=staged".to_owned(),
        zero_around: 1,
        rescue_around: 0,
        ..Policies::default()
    }
}

/// A guest of 2,400 frames that fills a block of 3,200 pages and writes it once more.
fn guest(notify: Option<NotifySetup>) -> GuestSetup {
    GuestSetup {
        frames: 2_400,
        balloon: 0,
        swap_slots: 10_000,
        swap_at_mib: 1_000,
        policies: policies(),
        notify,
        work: Work::Sysbench(SysbenchParams {
            system_pages: 200,
            block_pages: 3_200,
            requests: 1,
            writes: true,
            page_ns: 1_000,
            pause_ns: 0,
        }),
    }
}

fn host(frames: u64, guests: Vec<GuestSetup>) -> Setup {
    Setup {
        frames,
        swap_slots: 20_000,
        policies: policies(),
        disk: DiskSpec::Named("sata-320".to_owned()),
        scheduler: "anticipatory".to_owned(),
        costs: Costs::default(),
        guests,
    }
}

fn run(setup: &Setup) -> Result<Report, RunError> {
    Machine::new(setup).expect("a sound set-up").run()
}

fn done(setup: &Setup) -> Report {
    let report = run(setup).expect("it ends");
    let causes = report.causes;
    let reads = causes.program_reads
        + causes.page_out_reads
        + causes.page_in_reads
        + causes.zero_fill_reads;
    let pages = causes.program_pages
        + causes.page_out_pages
        + causes.page_in_pages
        + causes.zero_fill_pages;
    assert_eq!(
        (reads, pages),
        (report.page_in_reads, report.page_ins),
        "each read has a cause"
    );
    let written: u64 = report.guests.iter().map(|g| g.page_outs).sum();
    let read: u64 = report.guests.iter().map(|g| g.page_ins).sum();
    // What is under way at the end is not complete.
    assert!(report.disk.blocks_written <= report.page_outs + written);
    assert!(report.disk.blocks_written + 1_000 > report.page_outs + written);
    assert!(report.disk.blocks_read <= report.page_ins + read);
    report
}

#[test]
fn the_notifier_ends_double_paging() {
    let kvm = done(&host(1_400, vec![guest(None)]));
    let hsn = done(&host(1_400, vec![guest(Some(NOTIFY))]));
    // What the guest cannot hold it writes, and nearly all of it the host had paged out.
    assert!(kvm.guests[0].page_outs >= 800, "{kvm:?}");
    assert!(
        kvm.causes.page_out_pages > kvm.guests[0].page_outs / 2,
        "{kvm:?}"
    );
    assert!(
        hsn.causes.page_out_pages * 20 < kvm.causes.page_out_pages,
        "{hsn:?}"
    );
    assert!(hsn.guests[0].hidden_peak > 500, "{hsn:?}");
    assert!(hsn.elapsed_ns < kvm.elapsed_ns);
    assert_eq!(hsn.guests[0].lost, 0);
    assert_eq!(
        done(&host(1_400, vec![guest(Some(NOTIFY))])),
        hsn,
        "the same each time"
    );
}

#[test]
fn a_host_with_room_pages_nothing_and_nothing_is_paged_twice() {
    let report = done(&host(4_000, vec![guest(Some(NOTIFY))]));
    assert_eq!((report.page_outs, report.page_ins), (0, 0));
    assert!(report.guests[0].page_outs > 0);
    let notified = &report.guests[0];
    assert_eq!(
        (notified.hidden_peak, notified.skipped, notified.lost),
        (0, 0, 0)
    );
}

#[test]
fn a_guest_that_never_reads_its_rings_is_one_without_a_notifier() {
    let dead = NotifySetup {
        entries: 16,
        drain_us: u32::MAX,
        ..NOTIFY
    };
    let without = done(&host(1_400, vec![guest(None)]));
    let mut with = done(&host(1_400, vec![guest(Some(dead))]));
    let own = &mut with.guests[0];
    assert!(own.lost > 500, "{own:?}");
    // It drains once, at the start, before anything is told: 2 us of CPU.
    assert_eq!(own.drains, 1);
    let counts = |r: &Report| (r.page_outs, r.page_ins, r.causes, r.guests[0].page_outs);
    assert_eq!(counts(&with), counts(&without));
}

#[test]
fn a_ring_that_overflows_costs_looking_at_all_and_misleads_nobody() {
    let small = NotifySetup {
        entries: 16,
        drain_us: 20_000,
        ..NOTIFY
    };
    let kvm = done(&host(1_400, vec![guest(None)]));
    let hsn = done(&host(1_400, vec![guest(Some(small))]));
    assert!(hsn.guests[0].lost > 100, "{hsn:?}");
    assert!(
        hsn.causes.page_out_pages * 5 < kvm.causes.page_out_pages,
        "{hsn:?}"
    );
}

#[test]
fn a_cap_on_hidden_pages_holds() {
    let capped = NotifySetup {
        hidden_percent: 10,
        ..NOTIFY
    };
    let free = done(&host(1_400, vec![guest(Some(NOTIFY))]));
    let report = done(&host(1_400, vec![guest(Some(capped))]));
    assert_eq!(report.guests[0].hidden_peak, 240);
    assert!(
        report.causes.page_out_pages > 4 * free.causes.page_out_pages,
        "{report:?}"
    );
}

#[test]
fn a_balloon_leaves_all_paging_to_the_guest_and_no_swap_all_to_the_host() {
    let mut ballooned = guest(None);
    ballooned.balloon = 1_100;
    let report = done(&host(1_400, vec![ballooned]));
    assert_eq!((report.page_outs, report.page_ins), (0, 0));
    assert!(report.guests[0].page_outs > 2_000);
    let mut alone = guest(None);
    (alone.frames, alone.swap_slots) = (3_500, 0);
    let report = done(&host(1_400, vec![alone]));
    assert_eq!(
        (report.guests[0].page_outs, report.guests[0].page_ins),
        (0, 0)
    );
    assert!(report.page_outs > 2_000);
    assert_eq!(report.causes.page_out_pages, 0);
}

#[test]
fn several_guests_share_the_host_and_each_is_told_of_its_own() {
    let guests = |notify| vec![guest(notify), guest(notify), guest(notify)];
    let kvm = done(&host(3_600, guests(None)));
    let hsn = done(&host(3_600, guests(Some(NOTIFY))));
    assert!(
        hsn.guests.iter().all(|guest| guest.hidden_peak > 300),
        "{hsn:?}"
    );
    assert!(
        hsn.causes.page_out_pages * 10 < kvm.causes.page_out_pages,
        "{hsn:?}"
    );
}

#[test]
fn a_guest_without_room_is_out_of_memory() {
    let mut small = guest(None);
    small.swap_slots = 0;
    let error = run(&host(1_400, vec![small])).expect_err("3,400 pages in 2,400 frames");
    assert!(
        matches!(
            error,
            RunError::Guest {
                guest: 0,
                swap_full: true,
                hidden: 0,
                ..
            }
        ),
        "{error}"
    );
    let mut small = guest(Some(NOTIFY));
    small.swap_slots = 500;
    let error = run(&host(1_400, vec![small])).expect_err("and 500 slots");
    assert!(matches!(error, RunError::Guest { guest: 0, .. }), "{error}");
    assert!(
        error
            .to_string()
            .starts_with("guest 0 is out of memory after"),
        "{error}"
    );
}

/// A guest that rests while its neighbour takes the host's memory: all that it has is paged out, and hidden.
#[test]
fn a_guest_that_is_hidden_whole_goes_on() {
    let mut resting = guest(Some(NOTIFY));
    if let Work::Sysbench(work) = &mut resting.work {
        work.pause_ns = 5_000_000_000;
    }
    let mut neighbour = guest(None);
    neighbour.frames = 8_000;
    neighbour.work = Work::Sysbench(SysbenchParams {
        system_pages: 0,
        block_pages: 6_000,
        requests: 12,
        writes: false,
        page_ns: 1_000,
        pause_ns: 0,
    });
    let report = done(&host(1_000, vec![resting, neighbour]));
    let own = &report.guests[0];
    assert!(own.hidden_peak > 2_300, "of 2,400: {own:?}");
    assert_eq!(own.rescued, 0, "a page that is read back can leave again");
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let odd = NotifySetup {
        entries: 17,
        ..NOTIFY
    };
    assert!(Machine::new(&host(1_400, vec![guest(Some(odd))])).is_err());
    assert!(Machine::new(&host(10, vec![guest(None)])).is_err());
}
