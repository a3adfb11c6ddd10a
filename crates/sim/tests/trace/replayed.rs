//! A trace as a program.

use std::collections::BTreeSet;

use outpage_core::contract::Access;
use outpage_core::units::PageNo;
use outpage_sim::programs::{Program, Step};
use outpage_sim::trace::{Replayed, Run};
use proptest::prelude::*;

use crate::{encode, reference, references, runs};

/// (page, access, CPU time since the touch before) of every touch, and the pages mapped before.
fn play(program: &mut dyn Program) -> (Vec<(PageNo, Access, u64)>, BTreeSet<PageNo>) {
    let (mut touches, mut mapped) = (Vec::new(), BTreeSet::new());
    let mut computed = 0u64;
    loop {
        match program.step() {
            Step::Map(range) => {
                assert!(touches.is_empty(), "all is mapped before the first touch");
                for page in range.iter() {
                    assert!(mapped.insert(page), "{page:?} is mapped twice");
                }
            }
            Step::Compute(nanos) => computed += nanos,
            Step::Touch {
                run,
                access,
                page_ns,
            } => {
                for page in run.iter() {
                    touches.push((page, access, computed + u64::from(page_ns)));
                    computed = 0;
                }
            }
            Step::End => return (touches, mapped),
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn every_reference_is_touched_in_order(references in references()) {
        let runs = runs(&encode(&references)).expect("a whole trace");
        let mut program = Replayed::new(runs);
        let footprint = program.footprint();
        let (touches, mapped) = play(&mut program);
        let expected: Vec<_> = references
            .iter()
            .map(|found| (found.page, found.access, found.gap.0))
            .collect();
        prop_assert_eq!(touches, expected);
        let touched: BTreeSet<PageNo> = references.iter().map(|found| found.page).collect();
        prop_assert_eq!(footprint, touched.len() as u64);
        prop_assert_eq!(mapped, touched);
        prop_assert_eq!(program.step(), Step::End);
    }
}

#[test]
fn a_sweep_is_one_touch() {
    let mut run = Run::one(reference(3, 10, Access::Write, 100));
    run.count = 500;
    let mut program = Replayed::new(vec![run]);
    assert!(matches!(program.step(), Step::Map(range) if range.pages == 500));
    assert!(matches!(program.step(), Step::Touch { run, page_ns: 100, .. } if run.pages == 500));
    assert_eq!(program.step(), Step::End);
}

/// Pages a stride apart: what lies between is not mapped.
#[test]
fn a_stride_maps_its_pages_only() {
    let run = Run {
        stride: 1000,
        count: 4,
        ..Run::one(reference(3, 10, Access::Read, 0))
    };
    let (touches, mapped) = play(&mut Replayed::new(vec![run]));
    assert_eq!((touches.len(), mapped.len()), (4, 4));
}
