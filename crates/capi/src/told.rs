//! What is known of one region: which of its pages are out or about to leave, as the pager tells it, and what was counted.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use outpage::{RegionStats, Subscription, Watch};

use super::{Failure, Region, at, call, give_back, hand_over, list};

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null; `subscription` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_subscribe(
    region: *const Region,
    subscription: *mut *mut Subscription,
) -> c_int {
    // SAFETY: passed on.
    unsafe { hand_over(subscription, || Ok(at(region)?.memory.subscribe()?)) }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that is used no more, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_subscription_free(subscription: *mut Subscription) {
    // SAFETY: passed on.
    unsafe { give_back(subscription) }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_subscription_is_out(
    subscription: *const Subscription,
    offset: usize,
) -> c_int {
    // SAFETY: passed on.
    unsafe { at(subscription) }.map_or(0, |subscription| subscription.is_out(offset).into())
}

/// What hears of each page.
type Each = extern "C" fn(*mut c_void, usize, c_int);

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back and that nobody else drains, or null; `each` may be called with `context`.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_subscription_drain(
    subscription: *mut Subscription,
    each: Option<Each>,
    context: *mut c_void,
) -> i64 {
    call(|| {
        // SAFETY: the caller's promise.
        let subscription = unsafe { subscription.as_mut() }.ok_or(Failure::Argument)?;
        let each = each.ok_or(Failure::Argument)?;
        let mut count = 0;
        subscription.drain(|offset, out| {
            count += 1;
            each(context, offset, out.into());
        });
        Ok(count)
    })
}

/// What hears of pages that are about to leave, and what it is called with.
struct Hearer(extern "C" fn(*mut c_void, usize, usize), *mut c_void);

// SAFETY: the caller's promise is that the function may be called with the context on the watch's thread, and only there.
unsafe impl Send for Hearer {}

impl Hearer {
    fn hear(&self, offset: usize, len: usize) {
        (self.0)(self.1, offset, len);
    }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null; `leaving` may be called with `context` by another thread; `watch` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_watch(
    region: *const Region,
    leaving: Option<extern "C" fn(*mut c_void, usize, usize)>,
    context: *mut c_void,
    watch: *mut *mut Watch,
) -> c_int {
    let act = || {
        let hearer = Hearer(leaving.ok_or(Failure::Argument)?, context);
        // SAFETY: passed on.
        let memory = unsafe { &at(region)?.memory };
        Ok(memory.watch(move |bytes| hearer.hear(bytes.start, bytes.len()))?)
    };
    // SAFETY: passed on.
    unsafe { hand_over(watch, act) }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that is used no more, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_watch_free(watch: *mut Watch) {
    // SAFETY: passed on.
    unsafe { give_back(watch) }
}

/// The figures of one region by their names; `outpage.h` says that there may be more later.
fn figures(stats: &RegionStats) -> [(&'static CStr, u64); 9] {
    let (residency, traffic) = (&stats.residency, stats.traffic.unwrap_or_default());
    [
        (c"untouched_pages", residency.untouched as u64),
        (c"resident_pages", residency.resident as u64),
        (c"staged_pages", residency.staged as u64),
        (c"paged_out_pages", residency.paged_out as u64),
        (c"lost_pages", residency.lost as u64),
        (c"went_out", traffic.out),
        (c"came_back", traffic.back),
        (c"major_faults", traffic.major_faults),
        (c"minor_faults", traffic.minor_faults),
    ]
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null; room for `count` numbers, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_stats(
    region: *const Region,
    values: *mut u64,
    count: usize,
) -> c_int {
    let act = || {
        // SAFETY: passed on.
        let stats = unsafe { at(region) }?.memory.stats()?;
        let all = figures(&stats).map(|(_, value)| value);
        // SAFETY: passed on.
        Ok(unsafe { list(&all, values, count) })
    };
    call(act) as c_int
}

/// See `include/outpage.h`.
#[unsafe(no_mangle)]
extern "C" fn outpage_region_stat_name(index: usize) -> *const c_char {
    let all = figures(&RegionStats::default());
    all.get(index)
        .map_or(ptr::null(), |(name, _)| name.as_ptr())
}
