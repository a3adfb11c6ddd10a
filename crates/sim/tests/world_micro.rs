//! The MOC paper's microbenchmark in the whole model.

use outpage_sim::programs::{MicroParams, Spec};
use outpage_sim::world::{Report, Setup, World};

/// A quarter of the paper's memory and of its program.
fn run(cluster_pages: u64, pageout: &str) -> Report {
    let params = MicroParams {
        cluster_pages,
        pages: 393_216 / 4,
        ..MicroParams::default()
    };
    let setup = Setup::bsd("6.2", pageout, 120_000 / 4, vec![Spec::Micro(params)]);
    World::new(&setup)
        .expect("sound")
        .run(&mut |_| {})
        .expect("swap is large")
}

/// Section 5.2.1 of the paper: MOC writes whole clusters, as many as 16 pages hold; BSD one.
#[test]
fn writes_have_the_sizes_that_the_paper_describes() {
    let expected = [
        (1, 16),
        (2, 16),
        (4, 16),
        (6, 12),
        (8, 16),
        (10, 10),
        (12, 12),
        (14, 14),
        (16, 16),
    ];
    for (cluster, by_moc) in expected {
        for (policy, pages) in [("bsd", cluster as u32), ("moc", by_moc)] {
            let report = run(cluster, policy);
            let (modal, share) = report.modal_write();
            assert_eq!(modal, pages, "{policy} at {cluster}");
            // The rest: ends of scans, and clusters cut by the edge of the inactive queue.
            assert!(share >= 0.97, "{policy} at {cluster}: {share}");
            assert_eq!(report.page_ins, 0, "one pass reads nothing");
        }
    }
}

#[test]
fn moc_takes_longer_at_clusters_of_6_than_of_8() {
    let [six, eight] = [6, 8].map(|cluster| run(cluster, "moc"));
    assert!(six.page_out_writes > eight.page_out_writes);
    assert!(six.elapsed_ns > eight.elapsed_ns);
}
