//! ASP with one and with two slots an entry, on a recorded program with a periodic service.
//!
//! `trace/data/service.refs` is a recording of `trace/data/service.py`, in 8 MiB of RAM.

use outpage_core::units::{ObjectId, PageNo};
use outpage_sim::programs::Program;
use outpage_sim::trace::{Reader, Replayed, Run};
use outpage_sim::world::{DiskSpec, Policies, Report, Setup, World};

fn recorded() -> Replayed {
    let bytes: &[u8] = include_bytes!("trace/data/service.refs");
    let runs: Result<Vec<Run>, _> = Reader::new(bytes).expect("a trace").collect();
    // A world numbers the objects of its programs from 1 on.
    let own = |run: Run| Run {
        start: PageNo::new(ObjectId(1), run.start.index()),
        ..run
    };
    Replayed::new(runs.expect("a whole trace").into_iter().map(own).collect())
}

/// The recording with so many permille of its pages in memory.
fn replay(readahead: &str, disk: &str, permille: u64) -> Report {
    let program = recorded();
    let setup = Setup {
        frames: program.footprint() * permille / 1000,
        disk: DiskSpec::Named(disk.to_owned()),
        policies: Policies {
            reclaim: "second-chance".to_owned(),
            pageout: "linux".to_owned(),
            readahead: readahead.to_owned(),
            ..Policies::default()
        },
        ..Setup::live(0, Vec::new())
    };
    let world = World::with_programs(&setup, vec![Box::new(program)]).expect("a sound set-up");
    world.run(&mut |_| {}).expect("it comes to its end")
}

/// Section 3.1.3 on a real program, on the paper's disk: at every memory size the second slot saves swap-ins.
/// Few, for the service of this recording wakes up once in a thousand pages, and not always time: where the
/// arm stands when a fault comes moves it by up to 3 % either way.
#[test]
fn two_slots_save_swap_ins_of_a_recorded_program_with_a_service() {
    for percent in [20, 40, 60, 80] {
        let [one, two] = ["asp", "asp2"].map(|name| replay(name, "sata-320", 10 * percent));
        println!(
            "{percent} %: {} and {} swap-ins, {:.1} and {:.1} s",
            one.major_faults,
            two.major_faults,
            one.seconds(),
            two.seconds()
        );
        assert!(two.major_faults < one.major_faults, "{percent} %");
        assert!(two.seconds() < 1.02 * one.seconds(), "{percent} %");
    }
}

/// Where a read costs the same wherever it lies, it saves time as well: in the mean of neighbouring sizes, for
/// which pages just stay in memory is chance.
#[test]
fn two_slots_save_time_on_a_disk_without_an_arm() {
    for percent in [20, 40, 60, 80] {
        let seconds = |name| {
            let sizes = (10 * percent - 20..=10 * percent + 20).step_by(10);
            sizes
                .map(|size| replay(name, "nvme", size).seconds())
                .sum::<f64>()
        };
        let [one, two] = ["asp", "asp2"].map(seconds);
        println!("{percent} %: {one:.3} and {two:.3} s at five sizes");
        assert!(two < one, "{percent} %");
    }
}
