//! Finished runs that are kept, so that an evaluation that was cut short, or is made again, runs only what is new.

use serde::{Deserialize, Serialize};

use super::recorded::Recorded;
use crate::sweep::{Outcome, run};
use crate::world::Setup;

/// What outcomes depend on besides their set-ups: the sources of the core and of the simulator, as the build script saw them.
const SIMULATOR: &str = env!("OUTPAGE_SIMULATOR");

/// Somewhere that bytes are kept by name.
pub trait Keep: Sync {
    /// What was kept under `name`.
    fn found(&self, name: &str) -> Option<Vec<u8>>;

    /// Keeps `bytes` under `name`, whole or not at all. What cannot be kept is run again next time.
    fn keep(&self, name: &str, bytes: &[u8]);
}

/// How runs are made.
#[derive(Clone, Copy)]
pub struct How<'a> {
    /// Threads that run.
    pub threads: usize,
    /// Is told how many runs are done, from any of the threads.
    pub progress: &'a (dyn Fn(usize) + Sync),
    /// Where finished runs are looked for and kept.
    pub keep: Option<&'a dyn Keep>,
    /// A recording of NS2 with 700 nodes, for the MOC paper, in the place of its model.
    pub ns2: Option<&'a Recorded>,
}

/// A run as it is kept. It is believed only if both texts are those of the run that is wanted.
#[derive(Serialize, Deserialize)]
struct Kept {
    simulator: String,
    setup: String,
    outcome: Outcome,
}

/// The outcome of `setup`, whose text is `text`: as kept, or run now and kept.
pub(super) fn found_or_run(setup: &Setup, text: &str, how: How) -> Outcome {
    let run = || how.ns2.map_or_else(|| run(setup), |ns2| ns2.run(setup));
    let Some(keep) = how.keep else {
        return run();
    };
    let text = &how
        .ns2
        .map_or_else(|| text.to_owned(), |ns2| ns2.named(text));
    let name = name(text);
    if let Some(outcome) = keep.found(&name).and_then(|bytes| believed(&bytes, text)) {
        return outcome;
    }
    let kept = Kept {
        simulator: SIMULATOR.to_owned(),
        setup: text.to_owned(),
        outcome: run(),
    };
    let bytes = serde_json::to_vec(&kept).expect("plain data");
    keep.keep(&name, &bytes);
    kept.outcome
}

/// What `bytes` have of the run of `text`; nothing where they are damaged, or of another simulator or run.
fn believed(bytes: &[u8], text: &str) -> Option<Outcome> {
    let kept: Kept = serde_json::from_slice(bytes).ok()?;
    (kept.simulator == SIMULATOR && kept.setup == text).then_some(kept.outcome)
}

/// Sixteen digits. Two runs that share them take turns in being kept, and neither is believed for the other.
fn name(text: &str) -> String {
    let both = SIMULATOR.bytes().chain(text.bytes());
    let number = both.fold(0, |number, byte| crate::seed::mix(number, u64::from(byte)));
    format!("{number:016x}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;
    use crate::paper::runs::testing::quietly;
    use crate::programs::{MicroParams, Spec};

    #[derive(Default)]
    struct Memory(Mutex<BTreeMap<String, Vec<u8>>>);

    impl Keep for Memory {
        fn found(&self, name: &str) -> Option<Vec<u8>> {
            self.0.lock().expect("whole").get(name).cloned()
        }

        fn keep(&self, name: &str, bytes: &[u8]) {
            let mut all = self.0.lock().expect("whole");
            all.insert(name.to_owned(), bytes.to_vec());
        }
    }

    impl Memory {
        /// Changes what is kept.
        fn change(&self, from: &str, to: &str) {
            for bytes in self.0.lock().expect("whole").values_mut() {
                let text = String::from_utf8(bytes.clone()).expect("JSON");
                assert!(text.contains(from), "{text}");
                *bytes = text.replacen(from, to, 1).into_bytes();
            }
        }
    }

    fn setup(frames: u64) -> (Setup, String) {
        let micro = Spec::Micro(MicroParams {
            pages: 2_000,
            ..MicroParams::default()
        });
        let setup = Setup::live(frames, vec![micro]);
        let text = serde_json::to_string(&setup).expect("plain data");
        (setup, text)
    }

    fn again(memory: &Memory, frames: u64) -> Outcome {
        let (setup, text) = setup(frames);
        let how = How {
            keep: Some(memory),
            ..quietly()
        };
        found_or_run(&setup, &text, how)
    }

    #[test]
    fn a_kept_run_is_what_it_was_and_is_not_run_again() {
        let memory = Memory::default();
        let first = again(&memory, 500);
        assert_eq!(first, run(&setup(500).0));
        assert_eq!(again(&memory, 500), first);
        let elapsed = first.expect("it ends").elapsed_ns;
        let written = |ns: u64| format!("\"outcome\":{{\"Ok\":{{\"elapsed_ns\":{ns},");
        memory.change(&written(elapsed), &written(1));
        assert_eq!(again(&memory, 500).map(|r| r.elapsed_ns), Ok(1));
    }

    #[test]
    fn a_run_of_another_set_up_or_simulator_or_a_damaged_one_is_not_believed() {
        for (from, to) in [
            (SIMULATOR, "another"),
            ("\\\"frames\\\":500", "\\\"frames\\\":501"),
            ("}", ""),
        ] {
            let memory = Memory::default();
            let first = again(&memory, 500);
            memory.change("\"page_outs\":", "\"page_outs\":1");
            assert_ne!(again(&memory, 500), first, "what is kept is used");
            memory.change(from, to);
            assert_eq!(again(&memory, 500), first, "{from}");
        }
        let memory = Memory::default();
        assert_ne!(again(&memory, 500), again(&memory, 600));
        assert_eq!(memory.0.lock().expect("whole").len(), 2);
    }

    #[test]
    fn why_a_run_has_no_result_is_kept_too() {
        let memory = Memory::default();
        let first = again(&memory, 10);
        assert!(first.is_err());
        assert_eq!(again(&memory, 10), first);
    }
}
