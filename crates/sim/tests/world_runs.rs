//! Whole runs: what must hold whatever the policies are.

use outpage_core::contract::Access;
use outpage_core::units::{PageNo, PageRange};
use outpage_sim::programs::{
    INDEX_MAX, LuParams, MicroParams, Ns2Params, Program, SorParams, Spec, Step,
};
use outpage_sim::world::{DiskSpec, Report, RunError, Setup, SetupError, World};

fn run(setup: &Setup) -> Result<Report, RunError> {
    World::new(setup)
        .expect("the set-up is sound")
        .run(&mut |_| {})
}

/// 512 rows of a page, and their pointers.
fn small_sor(sweeps: u32) -> Spec {
    Spec::Sor(SorParams {
        n: 512,
        sweeps,
        ..SorParams::default()
    })
}

#[test]
fn a_program_that_fits_reads_and_writes_nothing() {
    let report = run(&Setup::live(1024, vec![small_sor(7)])).expect("it fits");
    assert_eq!((report.page_ins, report.page_outs), (0, 0));
    assert_eq!(report.zero_fills, 513);
    let sor = &report.programs[0];
    // The first touch of a page is a fault unless its neighbour's brought it.
    assert!(sor.faults < 513 && sor.wait_ns == 0);
    assert_eq!(sor.touches, 2 * 512 + 7 * 3 * 510);
}

#[test]
fn the_live_pager_starts_when_memory_no_longer_fits() {
    let pages = 520;
    for (frames, pages_out) in [(pages, false), (pages - 16, true)] {
        let mut setup = Setup::live(frames, vec![small_sor(7)]);
        setup.policies.zero_around = 1;
        let report = run(&setup).expect("swap is large");
        assert_eq!(report.page_outs > 0, pages_out, "{frames} frames");
        assert_eq!(report.frames, frames);
    }
    // A page daemon keeps its reserve from the beginning.
    let daemon = run(&Setup::bsd("6.2", "bsd", pages, vec![small_sor(7)]));
    assert!(daemon.expect("swap is large").page_outs > 0);
}

#[test]
fn time_is_that_of_the_cpu_when_nothing_is_paged() {
    let params = MicroParams {
        pages: 2000,
        page_ns: 5_000,
        ..MicroParams::default()
    };
    let mut setup = Setup::live(4096, vec![Spec::Micro(params)]);
    setup.policies.zero_around = 1;
    let report = run(&setup).expect("it fits");
    let fault = u64::from(setup.costs.zero_fill_ns);
    assert_eq!(report.elapsed_ns, 1000 * (5_000 + fault));
    assert_eq!(report.programs[0].cpu_ns, report.elapsed_ns);
}

#[test]
fn two_programs_that_fit_take_the_sum_of_their_times() {
    let alone = run(&Setup::live(4096, vec![small_sor(70)])).expect("it fits");
    let both = run(&Setup::live(4096, vec![small_sor(70), small_sor(70)])).expect("they fit");
    assert_eq!(both.elapsed_ns, 2 * alone.elapsed_ns);
    // Slices of 100 ms: the first to end is at most one slice ahead.
    let first = both.programs.iter().map(|p| p.elapsed_ns).min();
    assert!(first.expect("two") > both.elapsed_ns - 200_000_000);
}

#[test]
fn a_program_that_starts_later_computes_as_long() {
    let alone = run(&Setup::live(4096, vec![small_sor(70)])).expect("it fits");
    let after = |ms: u32| {
        let mut setup = Setup::live(4096, vec![small_sor(70), small_sor(70)]);
        setup.starts_ms = vec![0, ms];
        run(&setup).expect("they fit")
    };
    let later = u64::from(u32::MAX / 2) * 1_000_000;
    // While the first one runs, and long after it has ended.
    for (ms, end) in [
        (100, 2 * alone.elapsed_ns),
        (u32::MAX / 2, later + alone.elapsed_ns),
    ] {
        let both = after(ms);
        assert_eq!(both.elapsed_ns, end, "{ms} ms");
        assert_eq!(both.programs[1].cpu_ns, alone.programs[0].cpu_ns);
    }
}

#[test]
fn pages_read_ahead_are_used_or_read_in_vain() {
    let report = |readahead: &str| {
        let mut setup = Setup::live(256, vec![small_sor(4)]);
        readahead.clone_into(&mut setup.policies.readahead);
        run(&setup).expect("it pages")
    };
    let none = report("none");
    assert!(none.page_ins > 0);
    assert_eq!((none.ahead_used, none.ahead_in_vain), (Some(0), Some(0)));
    for name in ["linux-slot", "linux-vma", "asp", "stream"] {
        let report = report(name);
        let (used, in_vain) = (report.ahead_used.unwrap(), report.ahead_in_vain.unwrap());
        let ahead = report.page_ins - report.major_faults;
        // A sweep touches every row, so most of what is read ahead is of use.
        assert!(used > ahead / 2, "{name}: {used} of {ahead}");
        assert!(used + in_vain <= report.read_ahead, "{name}");
        // What the pager itself saw is part of it, and what it mapped along may be.
        assert!(
            (report.read_ahead_hits..=report.read_ahead_hits + report.read_ahead_mapped)
                .contains(&used),
            "{name}"
        );
    }
    let daemon = run(&Setup::bsd("8.2", "bsd", 256, vec![small_sor(1)])).expect("it pages");
    assert_eq!(daemon.ahead_used, None);
}

#[test]
fn equal_set_ups_give_equal_bytes() {
    let ns2 = Ns2Params {
        pages: 4000,
        setup_pages: 1000,
        nodes: 20,
        rounds: 6,
        ..Ns2Params::default()
    };
    let lu = LuParams {
        n: 600,
        ..LuParams::default()
    };
    let mut setup = Setup::live(1500, vec![Spec::Ns2(ns2), Spec::Lu(lu), small_sor(3)]);
    for scheduler in ["fifo", "elevator", "ata", "cfq", "anticipatory"] {
        setup.scheduler = scheduler.to_owned();
        let [one, two] = [0; 2].map(|_| run(&setup).expect("swap is large"));
        assert!(one.page_outs > 1000 && one.page_ins > 1000);
        let json = |report| serde_json::to_string(report).expect("plain data");
        assert_eq!(json(&one), json(&two), "{scheduler}");
    }
}

/// What the pager counts is what the disk did, and what the programs were charged with.
#[test]
fn every_transfer_is_one_request_of_the_disk() {
    let lu = LuParams {
        n: 700,
        ..LuParams::default()
    };
    let report = run(&Setup::live(400, vec![Spec::Lu(lu)])).expect("swap is large");
    assert_eq!(report.disk.reads, report.page_in_reads);
    assert_eq!(report.disk.blocks_read, report.page_ins);
    assert!(
        report.page_out_writes - report.disk.writes <= 8,
        "at most those in flight at the end"
    );
    let sizes: u64 = report.write_sizes.iter().map(|s| s.1).sum();
    assert_eq!(sizes, report.page_out_writes);
    let program = &report.programs[0];
    assert_eq!(
        (program.pages_in, program.pages_out),
        (report.page_ins, report.page_outs)
    );
    let phases: u64 = report.phases.iter().map(|p| p.page_outs).sum();
    assert_eq!(phases, report.page_outs);
}

#[test]
fn a_full_swap_is_reported_by_name() {
    let mut setup = Setup::live(300, vec![small_sor(1)]);
    setup.swap_slots = 64;
    let error = run(&setup).expect_err("513 pages do not fit 300 frames and 62 slots");
    assert!(
        matches!(
            error,
            RunError::Exhausted {
                swap_full: true,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn names_that_there_are_not_are_refused_with_those_there_are() {
    let refused = |change: fn(&mut Setup)| -> SetupError {
        let mut setup = Setup::live(1024, vec![small_sor(1)]);
        change(&mut setup);
        World::new(&setup).err().expect("refused")
    };
    let unknown = refused(|s| s.disk = DiskSpec::Named("drum".to_owned()));
    assert!(
        unknown.to_string().contains("barracuda-7200.9"),
        "{unknown}"
    );
    let unknown = refused(|s| s.scheduler = "noop".to_owned());
    assert!(unknown.to_string().contains("elevator"), "{unknown}");
    let unknown = refused(|s| s.policies.pageout = "mco".to_owned());
    assert!(unknown.to_string().contains("moc"), "{unknown}");
    let unknown = refused(|s| s.policies.reclaim = "lifo".to_owned());
    assert!(unknown.to_string().contains("second-chance"), "{unknown}");
    let small = refused(|s| s.frames = 10);
    assert!(small.to_string().contains("at least 256"), "{small}");
    let large = refused(|s| s.policies.buffer_pages = Some(5000));
    assert!(large.to_string().contains("1 to 1024"), "{large}");
}

#[test]
fn a_set_up_survives_json() {
    let setup = Setup::live(
        1024,
        vec![small_sor(1), Spec::Micro(MicroParams::default())],
    );
    let json = serde_json::to_string(&setup).expect("plain data");
    assert_eq!(
        serde_json::from_str::<Setup>(&json).expect("our own"),
        setup
    );
}

/// Maps and touches one run of pages.
struct Once(PageRange, u8);

impl Program for Once {
    fn name(&self) -> &'static str {
        "once"
    }

    fn footprint(&self) -> u64 {
        self.0.pages
    }

    fn step(&mut self) -> Step {
        self.1 += 1;
        match self.1 {
            1 => Step::Map(self.0),
            2 => Step::Touch {
                run: self.0,
                access: Access::Write,
                page_ns: 1,
            },
            _ => Step::End,
        }
    }
}

#[test]
fn pages_that_no_world_holds_are_refused() {
    let object = 1_u64 << 36;
    let last = object + INDEX_MAX;
    for (start, pages, held) in [
        (last, 1, true),
        (last - 9, 10, true),
        (last, 2, false),
        (last + 1, 1, false),
        (5, 1, false),
        (u64::MAX, 1, false),
        (object, u64::MAX, false),
    ] {
        for setup in [
            Setup::live(1024, Vec::new()),
            Setup::bsd("6.2", "bsd", 1024, Vec::new()),
        ] {
            let run = PageRange::new(PageNo::from_raw(start), pages);
            let world = World::with_programs(&setup, vec![Box::new(Once(run, 0))]);
            let result = world.expect("sound").run(&mut |_| {});
            let refused = Err(RunError::Beyond { page: run.start });
            let told = result.map(|report| report.zero_fills);
            assert_eq!(told.is_ok(), held, "{start}+{pages}: {told:?}");
            assert!(held || told.map(|_| ()) == refused);
        }
    }
}
