//! What every read-ahead policy keeps to, whatever happens.

use std::collections::BTreeSet;

use outpage_core::readahead::{self, Choice, Entry, SlotView};
use outpage_core::settings::Allowed;
use outpage_core::units::{ObjectId, PageNo, SlotNo, SlotRange};
use proptest::prelude::*;

use crate::world::{page, touch};

/// Slots that are paged out; page `n` is in slot `n`.
struct Out(BTreeSet<u32>);

impl SlotView for Out {
    fn paged_out(&self, slot: SlotNo) -> Option<PageNo> {
        self.0
            .contains(&slot.0)
            .then(|| PageNo::new(ObjectId(1), slot.0.into()))
    }

    fn slot_of(&self, page: PageNo) -> Option<SlotNo> {
        let slot = page.index() as u32;
        self.0.contains(&slot).then_some(SlotNo(slot))
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// A fault on the first paged-out slot from here on.
    Fault(u32),
    /// A fault so far behind, or before, the end of the last window.
    Near(i32),
    /// The first touch of the last range that was named to be read ahead.
    Hit,
    Wasted(u32),
    /// So many slots from here on are paged out again.
    Out(u32, u32),
}

const SLOTS: u32 = 2000;

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..SLOTS).prop_map(Op::Fault),
        6 => (-3..6i32).prop_map(Op::Near),
        4 => Just(Op::Hit),
        1 => (0..SLOTS).prop_map(Op::Wasted),
        3 => (0..SLOTS, 1u32..300).prop_map(|(start, n)| Op::Out(start, n)),
    ]
}

/// The policy with a largest window of at most `max` slots, and the settings that `picks` choose of what is allowed, in any
/// combination. Nothing is larger by more than 255 than it has to be, so that little is built.
fn any_choice(entry: &'static Entry, max: u32, picks: &[u32]) -> Choice {
    let picked = entry
        .settings
        .iter()
        .zip(picks)
        .filter_map(|(setting, pick)| {
            let value = match (setting.name, setting.allowed) {
                // The other name of `max`; and governed, windows have limits of their own.
                ("page-cluster" | "govern", _) => return None,
                ("max", Allowed::Numbers(_, most)) => max.min(most).to_string(),
                (_, Allowed::Numbers(least, most)) => {
                    (least + pick % (most - least + 1)).to_string()
                }
                (_, Allowed::Words(words)) => words[*pick as usize % words.len()].to_owned(),
            };
            Some(format!("{}={value}", setting.name))
        });
    let settings: Vec<_> = picked.collect();
    Choice::ungoverned(entry).with(&settings.join(",")).unwrap()
}

/// A policy, the slots paged out, and what was named last.
struct Run {
    policy: Box<dyn readahead::ReadAhead>,
    out: Out,
    max: u32,
    last: SlotRange,
    named: Option<SlotRange>,
}

impl Run {
    fn check(&self, range: SlotRange) {
        assert!(
            range.slots >= 1 && range.slots <= self.max,
            "{range:?} of {}",
            self.max
        );
        for slot in range.iter() {
            assert!(
                self.out.paged_out(slot).is_some(),
                "{slot:?} of {range:?} is not paged out"
            );
        }
    }

    fn fault(&mut self, from: u32) {
        let Some(&slot) = self.out.0.range(from..).next() else {
            return;
        };
        let fault = touch(page(1, slot.into()), slot);
        let window = self.policy.major_fault(&fault, &self.out);
        self.check(window.now);
        assert!(window.now.iter().any(|s| s.0 == slot));
        assert!(window.size <= self.max);
        let runs = [&[window.now], window.rest.as_slice()].concat();
        let slots: u32 = runs.iter().map(|run| run.slots).sum();
        assert!(slots <= self.max, "{slots} slots of {}", self.max);
        for slot in runs.iter().flat_map(|run| run.iter()) {
            // Each run is paged out, and disjoint from those before it.
            assert!(self.out.0.remove(&slot.0), "{slot:?} of {runs:?}");
        }
        // Checked after the slots of `now` are gone: the two are disjoint.
        self.name(window.behind);
        self.last = window.now;
    }

    fn name(&mut self, range: Option<SlotRange>) {
        if let Some(range) = range {
            self.check(range);
            range
                .iter()
                .for_each(|slot| assert!(self.out.0.remove(&slot.0)));
            self.named = Some(range);
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Fault(slot) => self.fault(slot),
            Op::Near(by) if by >= 0 => self.fault(self.last.end().0 + by as u32),
            Op::Near(by) => self.fault(self.last.start.0.saturating_sub(by.unsigned_abs())),
            Op::Hit => {
                if let Some(range) = self.named.take() {
                    let touched = page(1, range.start.0.into());
                    let next = self.policy.hit(&touch(touched, range.start.0), &self.out);
                    self.name(next);
                }
            }
            Op::Wasted(slot) => self.policy.wasted(page(1, slot.into()), SlotNo(slot)),
            Op::Out(start, n) => self.out.0.extend(start..(start + n).min(SLOTS)),
        }
    }
}

proptest! {
    #[test]
    fn windows_hold_the_fault_and_paged_out_slots_only(
        max in prop_oneof![Just(1u32), Just(2), 1u32..=256],
        out in prop::collection::btree_set(0..SLOTS, 0..400),
        ops in prop::collection::vec(op(), 1..120),
        picks in prop::collection::vec(0u32..256, 10),
    ) {
        for entry in readahead::REGISTRY {
            let choice = any_choice(entry, max, &picks);
            let mut run = Run {
                policy: choice.build(),
                out: Out(out.clone()),
                max: choice.max_window(),
                last: SlotRange::new(SlotNo(0), 1),
                named: None,
            };
            for op in &ops {
                run.apply(op.clone());
            }
        }
    }
}

#[test]
fn both_ends_of_the_slot_numbers() {
    for entry in readahead::REGISTRY {
        for slots in [0..300, SlotNo::NONE.0 - 300..SlotNo::NONE.0] {
            for downward in [false, true] {
                let mut run = Run {
                    policy: Choice::ungoverned(entry).build(),
                    out: Out(slots.clone().collect()),
                    max: Choice::ungoverned(entry).max_window(),
                    last: SlotRange::new(SlotNo(0), 1),
                    named: None,
                };
                while let Some(&slot) = if downward {
                    run.out.0.last()
                } else {
                    run.out.0.first()
                } {
                    run.fault(slot);
                    run.apply(Op::Hit);
                }
            }
        }
    }
}

#[test]
fn the_registry_is_consistent() {
    let names: BTreeSet<_> = readahead::REGISTRY.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), readahead::REGISTRY.len());
    for entry in readahead::REGISTRY {
        assert_eq!(Choice::plain(entry).build().name(), entry.name);
        assert!(!entry.summary.is_empty() && !entry.source.is_empty());
    }
    assert!(readahead::find("crystal-ball").is_none());
}
