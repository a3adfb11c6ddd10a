use super::*;
use crate::units::ObjectId;

fn page(index: u64) -> PageNo {
    PageNo::new(ObjectId(1), index)
}

#[test]
fn queues_keep_order_and_survive_removal_from_the_middle() {
    let mut pages = Pages::new();
    let ids: Vec<_> = (0..5)
        .map(|i| pages.create(page(i), State::Resident))
        .collect();
    ids.iter().for_each(|&id| pages.push(Queue::Active, id));
    pages.unqueue(ids[2]);
    pages.unqueue(ids[0]);
    pages.push(Queue::Active, ids[0]);
    let mut order = Vec::new();
    while let Some(id) = pages.head(Queue::Active) {
        order.push(pages.number(id).index());
        pages.unqueue(id);
    }
    assert_eq!(order, [1, 3, 4, 0]);
    assert_eq!(pages.queued(Queue::Active), 0);
}

#[test]
fn a_queue_begins_with_a_page_as_if_those_before_it_were_requeued() {
    for first in 0..5 {
        let mut both = [Pages::new(), Pages::new()];
        for pages in &mut both {
            let come = |i| pages.create(page(i), State::Resident);
            let ids: Vec<_> = (0..5).map(come).collect();
            ids.iter().for_each(|&id| pages.push(Queue::Active, id));
        }
        let [turned, moved] = &mut both;
        let id = |pages: &Pages, index| pages.find(page(index)).expect("made");
        turned.begin_with(Queue::Active, id(turned, first));
        (0..first).for_each(|index| moved.requeue(Queue::Active, id(moved, index)));
        for from_end in [false, true] {
            let order = |pages: &Pages| {
                let (mut at, step): (_, fn(&Pages, PageId) -> Option<PageId>) = match from_end {
                    false => (pages.head(Queue::Active), Pages::behind),
                    true => (pages.last(Queue::Active), Pages::before),
                };
                let mut indices = Vec::new();
                while let Some(id) = at {
                    indices.push(pages.number(id).index());
                    at = step(pages, id);
                }
                indices
            };
            assert_eq!(order(turned), order(moved));
            assert_eq!(order(turned).len(), 5);
        }
    }
}

#[test]
fn a_requeued_page_is_last_and_a_place_is_kept() {
    let order = |pages: &Pages| {
        let mut indices = Vec::new();
        let mut at = pages.head(Queue::Inactive);
        while let Some(id) = at {
            indices.push(pages.number(id).index());
            at = pages.behind(id);
        }
        indices
    };
    let mut pages = Pages::new();
    let ids: Vec<_> = (0..4)
        .map(|i| pages.create(page(i), State::Resident))
        .collect();
    ids.iter().for_each(|&id| pages.push(Queue::Inactive, id));
    pages.requeue(Queue::Inactive, ids[1]);
    pages.requeue(Queue::Inactive, ids[0]);
    assert_eq!(order(&pages), [2, 3, 1, 0]);
    pages.requeue(Queue::Inactive, ids[0]);
    assert_eq!(order(&pages), [2, 3, 1, 0]);
    assert_eq!(pages.queued(Queue::Inactive), 4);
    // Before a page that goes elsewhere, and at the end.
    pages.keep_place(Some(ids[3]));
    pages.requeue(Queue::Inactive, ids[3]);
    assert_eq!(pages.take_place(), Some(ids[1]));
    pages.keep_place(None);
    pages.requeue(Queue::Inactive, ids[2]);
    assert_eq!(
        (pages.take_place(), order(&pages)),
        (Some(ids[2]), Vec::from([1, 0, 3, 2]))
    );
    pages.keep_place(Some(ids[2]));
    pages.unqueue(ids[2]);
    pages.push(Queue::Inactive, ids[2]);
    assert_eq!(pages.take_place(), Some(ids[2]), "it came to the place");
}

#[test]
fn leaves_come_and_go() {
    let mut pages = Pages::new();
    for round in 0..3u64 {
        let ids: Vec<_> = (0..1000)
            .map(|i| pages.create(page(i * 64 + round), State::Resident))
            .collect();
        for (i, id) in ids.iter().enumerate() {
            assert_eq!(pages.find(page(i as u64 * 64 + round)), Some(*id));
        }
        ids.into_iter().for_each(|id| pages.forget(id));
        assert_eq!(pages.directory.used, 0);
    }
    assert_eq!(pages.made, 1000, "leaves are used again");
}

#[test]
#[should_panic(expected = "cannot become")]
fn an_illegal_transition_aborts() {
    let mut pages = Pages::new();
    let id = pages.create(page(1), State::Resident);
    pages.set_state(id, State::PagedOut);
}

#[test]
fn a_range_visits_what_it_holds() {
    let mut pages = Pages::new();
    for index in [3, 63, 64, 65, 500] {
        pages.create(page(index), State::Resident);
    }
    let mut seen = Vec::new();
    pages.collect_range(PageRange::new(page(63), 2), &mut |id| {
        seen.push(pages.number(id).index())
    });
    assert_eq!(seen, [63, 64]);
    seen.clear();
    pages.collect_range(PageRange::new(page(0), 1 << 30), &mut |id| {
        seen.push(pages.number(id).index())
    });
    seen.sort_unstable();
    assert_eq!(seen, [3, 63, 64, 65, 500]);
    let nothing = PageRange::new(PageNo::from_raw(u64::MAX), 0);
    pages.collect_range(nothing, &mut |id| panic!("{:?}", pages.number(id)));
}
