//! The C interface: `include/outpage.h` says what each function does. A panic of the library's own does not cross it.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{LazyLock, Mutex, PoisonError};

use outpage::{Advice, Error, Memory, Pager, PinnedBytes, Place, Stats};

mod told;

/// Codes of `include/outpage.h`, which change together with these; 0 is success.
const ARGUMENT: c_int = -111;
const INTERNAL: c_int = -112;

const fn code(error: &Error) -> c_int {
    match error {
        Error::Setting(_) => -101,
        Error::Userfaultfd(_) => -102,
        Error::Swap(_) => -103,
        Error::Bounds => -104,
        Error::Pinned => -105,
        Error::Lost(_) => -106,
        Error::Ended(_) => -107,
        Error::Forked => -108,
        Error::Io(_) => -109,
        // Of later ones the message says what they are.
        _ => -110,
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::new(CString::default());
}

/// Why a call was not made.
enum Failure {
    Library(Error),
    Argument,
    Held,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

/// A region, as C has it.
struct Region {
    memory: Memory,
    pins: Mutex<Vec<(Range<usize>, PinnedBytes)>>,
}

fn say(text: &str) {
    let line = text.replace(['\0', '\n'], " ");
    MESSAGE.with_borrow_mut(|message| *message = CString::new(line).unwrap_or_default());
}

/// Makes a call: its value, or a code.
fn call(act: impl FnOnce() -> Result<i64, Failure>) -> i64 {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(value)) => value,
        Ok(Err(Failure::Library(error))) => {
            say(&error.to_string());
            code(&error).into()
        }
        Ok(Err(Failure::Argument)) => {
            say("an argument is null, none of its values, or text that is no UTF-8");
            ARGUMENT.into()
        }
        Ok(Err(Failure::Held)) => {
            say("some of the region is pinned: it is not resized");
            code(&Error::Pinned).into()
        }
        Err(_) => {
            say("a fault of the library's own");
            INTERNAL.into()
        }
    }
}

/// The same of calls whose value is a status.
fn status(act: impl FnOnce() -> Result<(), Failure>) -> c_int {
    call(|| act().map(|()| 0)) as c_int
}

/// What a handle points to.
///
/// # Safety
/// `handle` is null, or came from this library and was not given back.
unsafe fn at<'a, T>(handle: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or(Failure::Argument)
}

/// A string of the caller's.
///
/// # Safety
/// `text` is null or a string.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a CStr, Failure> {
    if text.is_null() {
        return Err(Failure::Argument);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Hands a value to the caller, or null.
///
/// # Safety
/// `place` is null or may be written.
unsafe fn hand_over<T>(place: *mut *mut T, make: impl FnOnce() -> Result<T, Failure>) -> c_int {
    status(|| {
        if place.is_null() {
            return Err(Failure::Argument);
        }
        // SAFETY: the caller's promise.
        unsafe { place.write(ptr::null_mut()) };
        let value = Box::into_raw(Box::new(make()?));
        // SAFETY: as above.
        unsafe { place.write(value) };
        Ok(())
    })
}

/// Takes a handle back.
///
/// # Safety
/// `handle` is null, or came from [`hand_over`] and is given back once.
unsafe fn give_back<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller's promise.
        let value = unsafe { Box::from_raw(handle) };
        status(|| {
            drop(value);
            Ok(())
        });
    }
}

fn range(offset: usize, len: usize) -> Result<Range<usize>, Failure> {
    let end = offset.checked_add(len).ok_or(Error::Bounds)?;
    Ok(offset..end)
}

/// Writes as many of `values` as there is room for; how many there are.
///
/// # Safety
/// `place` is null, or has room for `count` of them.
unsafe fn list<T: Copy>(values: &[T], place: *mut T, count: usize) -> i64 {
    if !place.is_null() {
        // SAFETY: the caller's promise; the lists are apart.
        unsafe { place.copy_from_nonoverlapping(values.as_ptr(), values.len().min(count)) };
    }
    values.len() as i64
}

/// See `include/outpage.h`.
#[unsafe(no_mangle)]
extern "C" fn outpage_message() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}

/// See `include/outpage.h`.
#[unsafe(no_mangle)]
extern "C" fn outpage_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: `settings` is null or pairs of strings and a null; `pager` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_pager_new(
    limit: u64,
    settings: *const *const c_char,
    pager: *mut *mut Pager,
) -> c_int {
    let make = || {
        let mut builder = Pager::builder(limit);
        let mut at = settings;
        // SAFETY: names and values by turns up to a null, by the caller's promise.
        while !at.is_null() && !unsafe { *at }.is_null() {
            // SAFETY: as above.
            let (name, value) = unsafe { (text(*at)?, text(*at.add(1))?) };
            let name = name.to_str().map_err(|_| Failure::Argument)?;
            builder = builder.set(name, OsStr::from_bytes(value.to_bytes()));
            // SAFETY: as above.
            at = unsafe { at.add(2) };
        }
        Ok(builder.open()?)
    };
    // SAFETY: passed on.
    unsafe { hand_over(pager, make) }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that is used no more, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_pager_free(pager: *mut Pager) {
    // SAFETY: passed on.
    unsafe { give_back(pager) }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null; room for `count` numbers, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_pager_stats(
    pager: *const Pager,
    values: *mut u64,
    count: usize,
) -> c_int {
    let act = || {
        // SAFETY: passed on.
        let stats = unsafe { at(pager) }?.stats()?;
        let all: Vec<u64> = stats.each().into_iter().map(|(_, value)| value).collect();
        // SAFETY: passed on.
        Ok(unsafe { list(&all, values, count) })
    };
    call(act) as c_int
}

/// See `include/outpage.h`.
#[unsafe(no_mangle)]
extern "C" fn outpage_stat_name(index: usize) -> *const c_char {
    static NAMES: LazyLock<Vec<CString>> = LazyLock::new(|| {
        let names = Stats::default().each().into_iter();
        names
            .map(|(name, _)| CString::new(name).unwrap_or_default())
            .collect()
    });
    NAMES.get(index).map_or(ptr::null(), |name| name.as_ptr())
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null; `region` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_new(
    pager: *const Pager,
    bytes: usize,
    region: *mut *mut Region,
) -> c_int {
    // SAFETY: passed on.
    unsafe { hand_over(region, || Ok(Region::of(at(pager)?.memory(bytes)?))) }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null; a string; `region` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_from_file(
    pager: *const Pager,
    path: *const c_char,
    region: *mut *mut Region,
) -> c_int {
    let make = || {
        // SAFETY: passed on.
        let (pager, path) = unsafe { (at(pager)?, text(path)?) };
        let values = pager.from_file::<u8>(OsStr::from_bytes(path.to_bytes()))?;
        Ok(Region::of(values.into_memory()))
    };
    // SAFETY: passed on.
    unsafe { hand_over(region, make) }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that is used no more, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_free(region: *mut Region) {
    // SAFETY: passed on.
    unsafe { give_back(region) }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_data(region: *const Region) -> *mut c_void {
    // SAFETY: passed on.
    unsafe { at(region) }.map_or(ptr::null_mut(), |region| region.memory.as_ptr().cast())
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_size(region: *const Region) -> usize {
    // SAFETY: passed on.
    unsafe { at(region) }.map_or(0, |region| region.memory.len())
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null, and nobody else uses.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_resize(region: *mut Region, bytes: usize) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let region = unsafe { region.as_mut() }.ok_or(Failure::Argument)?;
        let pins = region.pins.get_mut();
        if !pins.unwrap_or_else(PoisonError::into_inner).is_empty() {
            return Err(Failure::Held);
        }
        Ok(region.memory.resize(bytes)?)
    })
}

impl Region {
    const fn of(memory: Memory) -> Self {
        Self {
            memory,
            pins: Mutex::new(Vec::new()),
        }
    }
}

/// Makes a call on a range of a region.
///
/// # Safety
/// `region` is null, or came from this library and was not given back.
unsafe fn on(
    region: *const Region,
    (offset, len): (usize, usize),
    act: impl FnOnce(&Region, Range<usize>) -> Result<i64, Failure>,
) -> i64 {
    // SAFETY: passed on.
    call(|| act(unsafe { at(region) }?, range(offset, len)?))
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_prefault(
    region: *const Region,
    offset: usize,
    len: usize,
) -> c_int {
    let act = |region: &Region, range| Ok(region.memory.prefault(range).map(|()| 0)?);
    // SAFETY: passed on.
    unsafe { on(region, (offset, len), act) as c_int }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_advise(
    region: *const Region,
    offset: usize,
    len: usize,
    advice: c_int,
) -> c_int {
    let act = |region: &Region, range| {
        let said = usize::try_from(advice).ok();
        let advice = said.and_then(|at| Advice::ALL.get(at).copied());
        let advice = advice.ok_or(Failure::Argument)?;
        Ok(region.memory.advise(range, advice).map(|()| 0)?)
    };
    // SAFETY: passed on.
    unsafe { on(region, (offset, len), act) as c_int }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_pin(region: *mut Region, offset: usize, len: usize) -> c_int {
    let act = |region: &Region, range: Range<usize>| {
        let pages = region.memory.pin(range.clone())?;
        let mut pins = region.pins.lock().unwrap_or_else(PoisonError::into_inner);
        pins.push((range, pages));
        Ok(0)
    };
    // SAFETY: passed on.
    unsafe { on(region, (offset, len), act) as c_int }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_unpin(region: *mut Region, offset: usize, len: usize) -> c_int {
    let act = |region: &Region, range: Range<usize>| {
        let mut pins = region.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let at = pins.iter().position(|pin| pin.0 == range);
        drop(pins.swap_remove(at.ok_or(Error::Bounds)?));
        Ok(0)
    };
    // SAFETY: passed on.
    unsafe { on(region, (offset, len), act) as c_int }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_discard(
    region: *const Region,
    offset: usize,
    len: usize,
) -> c_int {
    let act = |region: &Region, range| Ok(region.memory.discard(range).map(|()| 0)?);
    // SAFETY: passed on.
    unsafe { on(region, (offset, len), act) as c_int }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null; room for `count` offsets, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_take_back(
    region: *const Region,
    offset: usize,
    len: usize,
    dropped: *mut usize,
    count: usize,
) -> i64 {
    let act = |region: &Region, range| {
        let pages = region.memory.take_back(range)?;
        // SAFETY: passed on.
        Ok(unsafe { list(&pages, dropped, count) })
    };
    // SAFETY: passed on.
    unsafe { on(region, (offset, len), act) }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_clear(
    region: *const Region,
    offset: usize,
    len: usize,
) -> c_int {
    let act = |region: &Region, range| Ok(region.memory.clear(range).map(|()| 0)?);
    // SAFETY: passed on.
    unsafe { on(region, (offset, len), act) as c_int }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null; room for `count` bytes, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_places(
    region: *const Region,
    offset: usize,
    len: usize,
    places: *mut u8,
    count: usize,
) -> i64 {
    let number = |place: Place| match place {
        Place::Untouched => 0,
        Place::Resident | Place::Unmanaged => 1,
        Place::Staged => 2,
        Place::PagedOut => 3,
        Place::Lost => 4,
    };
    let act = |region: &Region, range| {
        let all: Vec<u8> = region
            .memory
            .places(range)?
            .into_iter()
            .map(number)
            .collect();
        // SAFETY: passed on.
        Ok(unsafe { list(&all, places, count) })
    };
    // SAFETY: passed on.
    unsafe { on(region, (offset, len), act) }
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null; `into` has `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_read(
    region: *const Region,
    offset: usize,
    into: *mut c_void,
    len: usize,
) -> c_int {
    status(|| {
        // SAFETY: passed on.
        let region = unsafe { at(region) }?;
        if into.is_null() {
            return Err(Failure::Argument);
        }
        // SAFETY: so many bytes are the caller's, who waits.
        let bytes = unsafe { std::slice::from_raw_parts_mut(into.cast(), len) };
        Ok(region.memory.read(offset, bytes)?)
    })
}

/// See `include/outpage.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null; `from` has `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_region_write(
    region: *const Region,
    offset: usize,
    from: *const c_void,
    len: usize,
) -> c_int {
    status(|| {
        // SAFETY: passed on.
        let region = unsafe { at(region) }?;
        if from.is_null() {
            return Err(Failure::Argument);
        }
        // SAFETY: so many bytes are the caller's, who waits.
        let bytes = unsafe { std::slice::from_raw_parts(from.cast(), len) };
        Ok(region.memory.write(offset, bytes)?)
    })
}
