//! Discardable pages in a simulated world: what each policy spares, and that all see the same program.

use outpage_sim::programs::{MlParams, MlWork, Spec, TextureParams};
use outpage_sim::sweep::run;
use outpage_sim::world::{Policies, Report, Setup};

const POLICIES: [&str; 5] = ["none", "nf", "pf:pages=64", "uf", "on-demand"];

/// One run under each policy.
fn runs(program: Spec, frames: u64) -> [Report; 5] {
    POLICIES.map(|discard| {
        let policies = Policies {
            reclaim: "second-chance".to_owned(),
            pageout: "single".to_owned(),
            readahead: "none".to_owned(),
            discard: discard.to_owned(),
            zero_around: 1,
            rescue_around: 0,
            ..Policies::default()
        };
        let setup = Setup {
            policies,
            ..Setup::live(frames, vec![program])
        };
        run(&setup).expect(discard)
    })
}

fn ml(work: MlWork) -> Spec {
    Spec::Ml(MlParams {
        work,
        heap_pages: 1_500,
        allocated_pages: 6_000,
        environment_pages: 150,
        user_ms: 1_000,
        ..MlParams::default()
    })
}

/// Pages read and written.
fn transfers(report: &Report) -> u64 {
    report.page_ins + report.page_outs
}

#[test]
fn each_policy_spares_transfers_in_its_way() {
    for work in [MlWork::Compile, MlWork::Sort] {
        let [none, nf, pf, uf, on_demand] = runs(ml(work), 700);
        assert_eq!(none.discards, Default::default());
        for spared in [&nf, &pf, &uf, &on_demand] {
            assert!(transfers(spared) < transfers(&none), "{work:?} {spared:?}");
            let dropped = spared.discards;
            assert!(
                dropped.dropped + dropped.flushed > 0,
                "{work:?} {dropped:?}"
            );
            assert!(
                dropped.filled
                    <= dropped.dropped
                        + dropped.flushed
                        + dropped.dropped_clean
                        + dropped.dropped_in_slots
            );
        }
        assert_eq!(nf.discards.flushed, 0);
        assert_eq!(on_demand.discards.flushed, 0);
        assert!(
            pf.discards.flushed > 0 && uf.discards.flushed > pf.discards.flushed,
            "{work:?}"
        );
        // Who flushes all fills all with zeroes again; on demand what is left in its frame is given back.
        assert!(uf.discards.filled > on_demand.discards.filled, "{work:?}");
        assert!(on_demand.discards.given_back > 0, "{work:?}");
    }
}

#[test]
fn programs_do_the_same_whatever_is_dropped() {
    let all = runs(ml(MlWork::Sort), 700);
    for report in &all {
        let program = &report.programs[0];
        assert_eq!(program.touches, all[0].programs[0].touches);
        assert_eq!(
            program.cpu_ns - program.fault_ns,
            all[0].programs[0].cpu_ns - all[0].programs[0].fault_ns
        );
    }
}

#[test]
fn matrices_that_were_added_are_not_written() {
    let program = Spec::Texture(TextureParams {
        matrix_pages: 64,
        page_ns: 1_000,
    });
    let [none, nf, _, uf, on_demand] = runs(program, 1_000);
    for spared in [&nf, &uf, &on_demand] {
        assert!(transfers(spared) < transfers(&none), "{spared:?}");
    }
    // What is read back was written once; six matrices of the first stage never are.
    assert!(on_demand.page_outs <= 20 * 64, "{on_demand:?}");
}

#[test]
fn a_daemon_takes_no_discard_policy() {
    let mut setup = Setup::bsd("6.2", "bsd", 1_000, vec![ml(MlWork::Sort)]);
    setup.policies.discard = "nf".to_owned();
    assert!(run(&setup).unwrap_err().contains("discard policy"));
    setup.policies.discard = "pf:pages=0".to_owned();
    assert!(run(&setup).is_err());
}
