//! Pages that the pool of compressed pages has, and the store as well.

use outpage_core::contract::Event;
use outpage_core::limits::FRAMES_MIN;
use outpage_core::units::PageRange;

use crate::body::{Body, page};
use crate::plan::{Answers, Plan, Random};

const FRAMES: usize = FRAMES_MIN;
/// More than the frames and the pool hold together.
const PAGES: u64 = 6 * FRAMES as u64;

/// Each of its pages was written once.
fn written(plan: Plan) -> Body {
    let mut body = Body::new(&Plan {
        tier: "lz4:pool=50".to_owned(),
        ..plan
    });
    body.object_pages = PAGES;
    for index in 0..PAGES {
        assert!(body.touch_and_wait(0, page(0, index), true));
    }
    body.settle();
    body
}

fn calm(answers: Answers) -> Plan {
    Plan {
        answers,
        zero_around: 1,
        ..Plan::calm("mclustering", "none", FRAMES)
    }
}

/// Touches so many pages in no order; of a thousand, `writes` are written to.
fn touch(body: &mut Body, touches: usize, writes: u32) {
    let mut random = Random(11);
    for _ in 0..touches {
        let index = random.below(PAGES as usize) as u64;
        let write = random.happens(writes);
        if !body.touch_and_wait(0, page(0, index), write) {
            body.settle();
            assert!(body.idle(0), "page {index} never came");
        }
    }
}

#[test]
fn what_does_not_change_is_written_once_however_often_it_goes_to_the_pool() {
    for answers in [Answers::AtOnce, Answers::TransfersLate, Answers::Late] {
        let mut body = written(calm(answers));
        touch(&mut body, 4 * PAGES as usize, 0);
        let stats = body.pager.stats();
        assert!(stats.pool_hits > PAGES / 2, "{} hits", stats.pool_hits);
        assert!(body.store.ceded > PAGES / 2, "{} ceded", body.store.ceded);
        assert!(stats.page_outs <= PAGES, "{} page-outs", stats.page_outs);
        body.read_all();
    }
}

#[test]
fn what_is_damaged_in_the_pool_is_read_from_the_store() {
    let mut body = written(Plan {
        bad_slots: 20,
        ..calm(Answers::TransfersLate)
    });
    // What is only there is lost; the model says so where a page is given up that could be read.
    touch(&mut body, 3 * PAGES as usize, 0);
    let read = body.store.saved;
    assert!(read > 10, "{read} were read");
}

#[test]
fn what_the_pool_has_takes_no_slots_of_a_store_that_is_full() {
    let mut body = written(Plan {
        slots_max: PAGES as u32 * 3 / 4,
        ..calm(Answers::TransfersLate)
    });
    touch(&mut body, 2 * PAGES as usize, 200);
    assert!(body.store.full);
    body.read_all();
}

/// Slots whose pages are in the pool are a child's as others are: they are not written while it may read them.
#[test]
fn a_child_reads_what_its_parent_had_in_the_pool_and_in_the_store() {
    for in_child in [false, true] {
        let mut body = written(calm(Answers::TransfersLate));
        touch(&mut body, PAGES as usize, 0);
        body.fork(in_child);
        touch(&mut body, PAGES as usize, 300);
        body.store.check_kept();
        body.read_all();
        body.drop_range(PageRange::new(page(0, 0), PAGES), Event::Unmap);
        assert_eq!(body.store.bound(), 0);
    }
}
