//! A recording of NS2 in the place of its model.

use crate::programs::{Ns2Params, Program, Spec};
use crate::sweep::Outcome;
use crate::trace::Replayed;
use crate::world::{Setup, World};

/// CPU time of NS2 with 700 nodes: 397 s (MOC, Table 1, 1 GB, where nothing is paged).
const CPU_NS: u64 = 397_000_000_000;

/// A recording of the real program with 700 nodes, with its pages in object 1, as the first program of a run has them.
#[derive(Clone, Debug)]
pub struct Recorded {
    program: Replayed,
    digest: u64,
}

impl Recorded {
    /// What `program` was recorded from.
    #[must_use]
    pub fn new(program: Replayed) -> Self {
        Self {
            digest: program.digest(),
            program,
        }
    }

    /// The text of a set-up that may play it.
    pub(super) fn named(&self, text: &str) -> String {
        format!("{text} with NS2 {:016x}", self.digest)
    }

    /// Runs `setup`, in which NS2 that is marked so is this recording.
    pub(super) fn run(&self, setup: &Setup) -> Outcome {
        let programs = (1..).zip(&setup.programs);
        let programs = programs.map(|(object, spec)| self.played(spec, object));
        let world = World::with_programs(setup, programs.collect()).map_err(|e| e.to_string())?;
        world.run(&mut |_| {}).map_err(|e| e.to_string())
    }

    fn played(&self, spec: &Spec, object: u32) -> Box<dyn Program> {
        match spec {
            // What is drawn of the CPU time is drawn of the recording's.
            Spec::Ns2(ns2) if ns2.recorded => {
                assert_eq!(object, 1, "NS2 is the first program of each workload");
                let usual = Ns2Params::default().page_ns;
                let cpu_ns = CPU_NS as f64 * f64::from(ns2.page_ns) / f64::from(usual);
                Box::new(self.program.clone().lasting(cpu_ns as u64))
            }
            _ => spec.build(object),
        }
    }
}

#[cfg(test)]
mod tests {
    use outpage_core::contract::Access;
    use outpage_core::units::{Nanos, ObjectId, PageNo};

    use super::*;
    use crate::paper::kept::{How, found_or_run};
    use crate::paper::moc;
    use crate::paper::runs::testing::quietly;
    use crate::trace::Run;

    const PAGES: u64 = 3_000;

    /// All pages written twice in order, each after `gap` nanoseconds.
    fn recorded(gap: u64) -> Recorded {
        let lap = Run {
            start: PageNo::new(ObjectId(1), 0),
            stride: 1,
            count: PAGES as u32,
            access: Access::Write,
            gap: Nanos(gap),
        };
        Recorded::new(Replayed::new(vec![lap, lap]))
    }

    fn setup(recorded: bool) -> Setup {
        let ns2 = Ns2Params {
            recorded,
            ..Ns2Params::default()
        };
        Setup::bsd("6.2", "moc", 2_000, vec![Spec::Ns2(ns2)])
    }

    #[test]
    fn what_is_marked_is_played_and_takes_the_papers_cpu_time() {
        let report = recorded(1_000).run(&setup(true)).expect("it ends");
        assert!(report.page_outs > 0 && report.page_outs < 3 * PAGES);
        let program = &report.programs[0];
        let touched = program.cpu_ns - program.fault_ns;
        assert!(touched.abs_diff(CPU_NS) < CPU_NS / 1_000, "{touched}");
        // However long it took while it was recorded.
        assert_eq!(recorded(7_000).run(&setup(true)).as_ref(), Ok(&report));
        let model = crate::sweep::run(&setup(false));
        assert_eq!(recorded(1_000).run(&setup(false)), model);
    }

    #[test]
    fn a_run_with_another_recording_is_not_believed() {
        #[derive(Default)]
        struct Names(std::sync::Mutex<Vec<String>>);
        impl crate::paper::Keep for Names {
            fn found(&self, name: &str) -> Option<Vec<u8>> {
                self.0.lock().expect("whole").push(name.to_owned());
                None
            }
            fn keep(&self, _: &str, _: &[u8]) {}
        }
        let (names, both) = (Names::default(), [recorded(1), recorded(2)]);
        for ns2 in [None, Some(&both[0]), Some(&both[1])] {
            let how = How {
                keep: Some(&names),
                ns2,
                ..quietly()
            };
            let _ = found_or_run(&setup(true), "text", how);
        }
        let names = names.0.into_inner().expect("whole");
        assert!(names[0] != names[1] && names[1] != names[2]);
    }

    #[test]
    fn the_model_becomes_a_variation_and_its_parameters_are_varied_no_more() {
        let is_recorded = |setup: &Setup| {
            let mut programs = setup.programs.iter();
            programs.any(|program| matches!(program, Spec::Ns2(ns2) if ns2.recorded))
        };
        assert!(!moc::setups(false).iter().any(|(_, s)| is_recorded(s)));
        let with = moc::setups(true);
        for (key, setup) in &with {
            let has = ["ns2", "all"].contains(&key.workload.as_str());
            let model = key.variant == "NS2: the closed form";
            assert_eq!(is_recorded(setup), has && !model, "{key:?}");
        }
        let varied = |what: &str| {
            let mut keys = with.iter().map(|(key, _)| key);
            keys.any(|key| key.variant.contains(what) && key.workload == "ns2")
        };
        assert!(varied("NS2: the closed form") && !varied("runs of NS2 that move"));
    }
}
