//! Clusters and chunks against naive versions of the rules.

use std::collections::BTreeSet;

use outpage_core::pageout::{self, Chunk, ClusterWindow, Params, Placement, cluster};
use outpage_core::units::PageNo;
use proptest::prelude::*;

use crate::world::{Dirty, page, page_out, pages, scan, sizes, walk};

fn kernel(victim: u64, dirty: impl IntoIterator<Item = u64>) -> std::ops::Range<u64> {
    let dirty = Dirty::new(pages(1, dirty));
    let run = cluster(page(1, victim), 16, ClusterWindow::Kernel, &dirty);
    run.start.index()..run.start.index() + run.pages
}

#[test]
fn bsd_vm_section_6_dense_area() {
    for victim in 100..112 {
        assert_eq!(kernel(victim, 0..1000), 96..112, "victim {victim}");
    }
    assert_eq!(kernel(112, 0..1000), 97..113);
    for victim in 113..128 {
        assert_eq!(kernel(victim, 0..1000), 112..128, "victim {victim}");
    }
}

#[test]
fn bsd_vm_section_6_boundary_passed_after_forward_ran_out() {
    assert_eq!(kernel(20, 0..23), 7..23);
}

#[test]
fn bsd_vm_section_6_more_below_than_above() {
    assert_eq!(kernel(35, 10..38), 22..38);
}

#[test]
fn bsd_vm_section_6_way_down_blocked() {
    assert_eq!(kernel(8, 4..41), 4..20);
}

#[test]
fn paper_window_in_a_dense_area_and_at_its_ends() {
    let paper = |victim, dirty: std::ops::Range<u64>| {
        let dirty = Dirty::new(pages(1, dirty));
        let run = cluster(page(1, victim), 16, ClusterWindow::Paper, &dirty);
        run.start.index()..run.start.index() + run.pages
    };
    // Eight from the victim downward, eight from the next page upward.
    assert_eq!(paper(100, 0..1000), 93..109);
    assert_eq!(paper(100, 98..1000), 98..114);
    assert_eq!(paper(100, 0..103), 87..103);
    assert_eq!(paper(100, 98..103), 98..103);
}

#[test]
fn clusters_do_not_leave_their_object() {
    let dirty = Dirty::new([page(1, 0), page(1, (1 << 36) - 1), page(2, 0), page(2, 1)]);
    for window in [ClusterWindow::Kernel, ClusterWindow::Paper] {
        assert_eq!(cluster(page(1, (1 << 36) - 1), 16, window, &dirty).pages, 1);
        assert_eq!(cluster(page(2, 1), 16, window, &dirty).pages, 2);
    }
}

/// The cluster by counting: `below` and `above` neighbours take part. Returns (down, up).
fn counted(index: u64, limit: u64, window: ClusterWindow, below: u64, above: u64) -> (u64, u64) {
    let others = limit - 1;
    let (down, room_up) = match window {
        ClusterWindow::Kernel => {
            let to_boundary = if index.is_multiple_of(limit) {
                limit
            } else {
                index % limit
            };
            let down = below.min(to_boundary).min(others);
            (down, others - down)
        }
        ClusterWindow::Paper => {
            let half = limit.div_ceil(2) - 1;
            (
                below.min(half),
                if below < half {
                    others - below
                } else {
                    limit / 2
                },
            )
        }
    };
    let up = above.min(room_up);
    (down.max(below.min(others - up)), up)
}

fn window() -> impl Strategy<Value = ClusterWindow> {
    prop_oneof![Just(ClusterWindow::Kernel), Just(ClusterWindow::Paper)]
}

/// Dirty pages of three objects: mostly runs, some apart.
fn dirty() -> impl Strategy<Value = Vec<PageNo>> {
    let run = (1u32..4, 0u64..200, 1u64..40);
    prop::collection::vec(run, 1..12).prop_map(|runs| {
        let pages = runs
            .iter()
            .flat_map(|&(o, start, n)| pages(o, start..start + n));
        pages.collect::<BTreeSet<_>>().into_iter().collect()
    })
}

/// The clusters in the order of collection, and the chunks that whole clusters fill greedily.
fn packed(
    victims: &[PageNo],
    dirty: &[PageNo],
    limit: u32,
    collect: impl Fn(PageNo, &Dirty) -> Vec<PageNo>,
) -> Vec<Vec<PageNo>> {
    let mut left = Dirty::new(dirty.iter().copied());
    let mut chunks: Vec<Vec<PageNo>> = vec![vec![]];
    for &victim in victims {
        if left.0.contains(&victim) {
            let cluster = collect(victim, &left);
            left.0.retain(|page| !cluster.contains(page));
            if chunks.last().unwrap().len() + cluster.len() > limit as usize {
                chunks.push(vec![]);
            }
            chunks.last_mut().unwrap().extend(cluster);
        }
    }
    chunks
}

/// Each object's pages in ascending order, objects as they first appear.
fn object_sorted(chunk: &[PageNo]) -> Vec<PageNo> {
    let mut objects = Vec::new();
    for page in chunk {
        if !objects.contains(&page.object()) {
            objects.push(page.object());
        }
    }
    let mut sorted = Vec::new();
    for object in objects {
        let mut own: Vec<_> = chunk
            .iter()
            .copied()
            .filter(|p| p.object() == object)
            .collect();
        own.sort();
        sorted.extend(own);
    }
    sorted
}

/// Full buffers: each victim takes the neighbours that still fit.
fn filled(
    victims: &[PageNo],
    dirty: &[PageNo],
    limit: u32,
    window: ClusterWindow,
) -> Vec<Vec<PageNo>> {
    let mut left = Dirty::new(dirty.iter().copied());
    let mut chunks = vec![Vec::new()];
    for &victim in victims.iter() {
        if !left.0.contains(&victim) {
            continue;
        }
        let buffered = chunks.last().map_or(0, Vec::len) as u32;
        if buffered == limit {
            chunks.push(Vec::new());
        }
        let room = limit - buffered % limit;
        let run: Vec<_> = cluster(victim, room, window, &left).iter().collect();
        left.0.retain(|page| !run.contains(page));
        chunks.last_mut().expect("never empty").extend(run);
    }
    chunks.retain(|chunk| !chunk.is_empty());
    chunks
}

fn check_shape(chunk: &Chunk, limit: u32) {
    assert!(chunk.len() <= limit && chunk.len() == chunk.clusters.iter().sum::<u32>());
    let mut first = 0;
    for &cluster in &chunk.clusters {
        let pages = &chunk.pages[first..first + cluster as usize];
        assert!(!pages.is_empty());
        assert!(
            pages
                .windows(2)
                .all(|two| two[0].checked_add(1) == Some(two[1])),
            "{pages:?}"
        );
        first += cluster as usize;
    }
}

proptest! {
    #[test]
    fn cluster_agrees_with_counting(
        victim in 0u64..300,
        limit in 1u32..80,
        window in window(),
        dirty in prop::collection::btree_set(0u64..300, 150..300),
    ) {
        let view = Dirty::new(pages(1, dirty.iter().copied()));
        let below = (0..victim).rev().take_while(|i| dirty.contains(i)).count() as u64;
        let above = (victim + 1..).take_while(|i| dirty.contains(i)).count() as u64;
        let (down, up) = counted(victim, u64::from(limit), window, below, above);
        let run = cluster(page(1, victim), limit, window, &view);
        prop_assert_eq!((run.start.index(), run.pages), (victim - down, down + 1 + up));
    }

    #[test]
    fn every_policy_agrees_with_greedy_packing(
        (dirty, victims) in dirty().prop_flat_map(|d| (Just(d.clone()), Just(d).prop_shuffle())),
        limit in 1u32..64,
        window in window(),
    ) {
        for entry in pageout::REGISTRY {
            let mut policy = (entry.build)(Params { buffer_pages: limit, window });
            let limit = policy.buffer_pages();
            let chunks = scan(&mut *policy, &victims, &mut Dirty::new(dirty.iter().copied()));
            let neighbours = |victim, left: &Dirty| {
                cluster(victim, limit, window, left).iter().collect::<Vec<_>>()
            };
            let expected = match entry.name {
                "single" => victims.iter().map(|&victim| vec![victim]).collect(),
                "linux" => victims.chunks(limit as usize).map(<[PageNo]>::to_vec).collect(),
                "bsd" => {
                    let mut left = Dirty::new(dirty.iter().copied());
                    let mut clusters = Vec::new();
                    for &victim in victims.iter() {
                        if left.0.contains(&victim) {
                            let cluster = neighbours(victim, &left);
                            left.0.retain(|page| !cluster.contains(page));
                            clusters.push(cluster);
                        }
                    }
                    clusters
                }
                "mclustering" => packed(&victims, &dirty, limit, neighbours),
                "moc" => packed(&victims, &dirty, limit, neighbours)
                    .iter()
                    .map(|chunk| object_sorted(chunk))
                    .collect(),
                "packed" => filled(&victims, &dirty, limit, window)
                    .iter()
                    .map(|chunk| object_sorted(chunk))
                    .collect(),
                name => panic!("no model for {name}"),
            };
            let got: Vec<_> = chunks.iter().map(|chunk| chunk.pages.clone()).collect();
            prop_assert_eq!(got, expected, "{}", entry.name);
            let placement = match entry.name {
                "mclustering" => Placement::WholeThenClusters,
                _ => Placement::Shrink,
            };
            for chunk in &chunks {
                check_shape(chunk, limit);
                prop_assert_eq!(chunk.placement, placement);
            }
        }
    }

    #[test]
    fn forgotten_pages_are_not_written(
        dirty in dirty(),
        forget in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
        limit in 1u32..64,
    ) {
        for entry in pageout::REGISTRY {
            let mut policy = page_out(entry.name, limit);
            let mut written = walk(&mut *policy, &dirty, &mut Dirty::new(dirty.iter().copied()));
            let out: BTreeSet<_> = written.iter().flat_map(|c| c.pages.clone()).collect();
            let mut forgotten = BTreeSet::new();
            for index in &forget {
                let page = *index.get(&dirty);
                policy.forget(page);
                if !out.contains(&page) {
                    forgotten.insert(page);
                }
            }
            written.extend(scan(&mut *policy, &[], &mut Dirty::default()));
            let mut all: Vec<_> = written.iter().flat_map(|c| c.pages.clone()).collect();
            all.sort();
            let kept = dirty.iter().filter(|page| !forgotten.contains(page));
            prop_assert_eq!(all, kept.copied().collect::<Vec<_>>(), "{}", entry.name);
            written.iter().for_each(|chunk| check_shape(chunk, policy.buffer_pages()));
        }
    }
}

#[test]
fn the_registry_is_consistent() {
    let names: BTreeSet<_> = pageout::REGISTRY.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), pageout::REGISTRY.len());
    for entry in pageout::REGISTRY {
        let policy = (entry.build)(entry.params());
        assert_eq!(
            (policy.name(), policy.buffer_pages()),
            (entry.name, entry.buffer_pages)
        );
        assert!(!entry.summary.is_empty() && !entry.source.is_empty());
    }
    assert!(pageout::find("packed into suitcases").is_none());
}

#[test]
fn linux_writes_32_pages_in_access_order() {
    let victims: Vec<_> = (0..70).map(|i| page(i % 7 + 1, u64::from(i) * 3)).collect();
    let mut policy = page_out("linux", 32);
    let chunks = scan(
        &mut *policy,
        &victims,
        &mut Dirty::new(victims.iter().copied()),
    );
    assert_eq!(sizes(&chunks), [32, 32, 6]);
    assert_eq!(chunks[0].pages, victims[..32]);
}
