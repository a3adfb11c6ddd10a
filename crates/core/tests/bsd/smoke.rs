//! smoke
use crate::machine::*;
use outpage_core::reclaim::bsd::Release;
#[test]
fn smoke() {
    for release in [Release::V6_2, Release::V8_2] {
        for po in ["bsd", "moc", "mclustering", "single", "packed", "linux"] {
            let mut m = Plan::new(release, 8000).pageout(po).start();
            for _ in 0..4 {
                m.write((0..12000).map(|i| page(1, i)));
            }
            m.check();
            let s = m.pager.stats();
            println!(
                "{release:?} {po} writes {} pages {} reads {} pages {} zero {} sizes {:?} {:?}",
                s.page_out_writes,
                s.page_outs,
                s.page_in_reads,
                s.page_ins,
                s.zero_fills,
                &s.write_pages.0[..17],
                m.pager.daemon().unwrap().counters()
            );
        }
    }
}
