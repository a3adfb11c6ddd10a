//! The client library of `outpage serve` for C: `crates/client/include/outpage_client.h` says what each function does.
#![expect(unsafe_code)] // C names the functions and owns the handles

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use client::{Client, Error, Object, Refusal, Share};

/// Codes of `include/outpage_client.h`, which change together with these; 0 is success.
const OK: c_int = 0;
const CONNECT: c_int = -1;
const GONE: c_int = -2;
const FULL: c_int = -3;
const BOUNDS: c_int = -4;
const NO_MEMORY: c_int = -5;
const PROTOCOL: c_int = -6;
const UFFD: c_int = -7;
const OS: c_int = -8;
const ARGUMENT: c_int = -9;

const fn code(error: Error) -> c_int {
    match error {
        Error::Connect(_) => CONNECT,
        Error::Gone => GONE,
        Error::Refused(Refusal::Full) => FULL,
        Error::Refused(Refusal::Bounds) | Error::Bounds => BOUNDS,
        Error::Refused(Refusal::NoMemory) => NO_MEMORY,
        Error::Refused(Refusal::Malformed | Refusal::NoObject) | Error::Malformed(_) => PROTOCOL,
        Error::Uffd(_) => UFFD,
        // What the kernel refuses, and what else the library may come to say.
        _ => OS,
    }
}

fn status(result: Result<(), Error>) -> c_int {
    result.map_or_else(code, |()| OK)
}

/// What a handle points to.
///
/// # Safety
/// `handle` is null, or came from this library and was not given back.
unsafe fn at<'a, T>(handle: *const T) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }
}

/// Hands a value to the caller.
///
/// # Safety
/// `place` is null or may be written.
unsafe fn hand_over<T>(place: *mut *mut T, made: Result<T, Error>) -> c_int {
    match made {
        _ if place.is_null() => ARGUMENT,
        Ok(value) => {
            // SAFETY: the caller's promise.
            unsafe { place.write(Box::into_raw(Box::new(value))) };
            OK
        }
        Err(error) => {
            // SAFETY: as above.
            unsafe { place.write(ptr::null_mut()) };
            code(error)
        }
    }
}

/// See `include/outpage_client.h`.
///
/// # Safety
/// As there: `path` is a string, and `client` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_connect(
    path: *const c_char,
    minimum_bytes: u64,
    weight: u32,
    client: *mut *mut Client,
) -> c_int {
    if path.is_null() || weight == 0 {
        return ARGUMENT;
    }
    // SAFETY: a string, by the caller's promise.
    let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
    let share = Share {
        minimum_bytes,
        weight,
    };
    // SAFETY: passed on.
    unsafe { hand_over(client, Client::connect(path, share)) }
}

/// See `include/outpage_client.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_check(client: *const Client) -> c_int {
    // SAFETY: passed on.
    unsafe { at(client) }.map_or(ARGUMENT, |client| status(client.check()))
}

/// See `include/outpage_client.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_bytes_max(client: *const Client) -> u64 {
    // SAFETY: passed on.
    unsafe { at(client) }.map_or(0, Client::bytes_max)
}

/// See `include/outpage_client.h`.
///
/// # Safety
/// As there: a handle that is used no more, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_disconnect(client: *mut Client) {
    if !client.is_null() {
        // SAFETY: it came from `hand_over`, and is given back once.
        drop(unsafe { Box::from_raw(client) });
    }
}

/// See `include/outpage_client.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null; `object` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_object_create(
    client: *const Client,
    bytes: u64,
    object: *mut *mut Object,
) -> c_int {
    // SAFETY: passed on.
    let Some(client) = (unsafe { at(client) }) else {
        return ARGUMENT;
    };
    // SAFETY: passed on.
    unsafe { hand_over(object, client.create(bytes)) }
}

/// See `include/outpage_client.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_map(object: *const Object) -> *mut c_void {
    // SAFETY: passed on.
    unsafe { at(object) }.map_or(ptr::null_mut(), |object| object.as_ptr().cast())
}

/// See `include/outpage_client.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_mark(object: *const Object, first: u64, pages: u64) -> c_int {
    // SAFETY: passed on.
    let Some(object) = (unsafe { at(object) }) else {
        return ARGUMENT;
    };
    let inside = first
        .checked_add(pages)
        .is_some_and(|end| end <= object.pages());
    if !inside {
        return BOUNDS;
    }
    object.mark(first, pages);
    OK
}

/// See `include/outpage_client.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_flush(object: *const Object, first: u64, pages: u64) -> c_int {
    // SAFETY: passed on.
    unsafe { at(object) }.map_or(ARGUMENT, |object| status(object.flush(first, pages)))
}

/// See `include/outpage_client.h`.
///
/// # Safety
/// As there: a handle that was not given back, or null; `lost` is null or has a byte for each eight pages.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_take_back(
    object: *const Object,
    first: u64,
    pages: u64,
    lost: *mut u8,
) -> i64 {
    // SAFETY: passed on.
    let Some(object) = (unsafe { at(object) }) else {
        return i64::from(ARGUMENT);
    };
    match object.take_back(first, pages) {
        Ok(answer) => {
            if !lost.is_null() {
                let bits = answer.bits();
                // SAFETY: as long as the pages have bits, by the caller's promise.
                unsafe { lost.copy_from_nonoverlapping(bits.as_ptr(), bits.len()) };
            }
            answer.count() as i64
        }
        Err(error) => i64::from(code(error)),
    }
}

/// See `include/outpage_client.h`.
///
/// # Safety
/// As there: a handle that is used no more, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_destroy(object: *mut Object) {
    if !object.is_null() {
        // SAFETY: it came from `hand_over`, and is given back once.
        drop(unsafe { Box::from_raw(object) });
    }
}

/// See `include/outpage_client.h`.
#[unsafe(no_mangle)]
extern "C" fn outpage_error(status: c_int) -> *const c_char {
    let text = match status {
        OK => c"no error",
        CONNECT => c"the server cannot be reached: is `outpage serve` running, as this user, and is the path right?",
        GONE => c"the server is gone, or does not serve this process any more; its memory objects are lost",
        FULL => c"the server has no room for another client: raise its --memory, or ask for a smaller minimum",
        BOUNDS => c"too large, too many, none, or outside of the memory object",
        NO_MEMORY => c"the server's machine has no memory, descriptors or mappings left",
        PROTOCOL => c"server and library do not understand each other: they must be of one version",
        UFFD => c"this process gets no userfaultfd: `outpage doctor` tells the remedy",
        OS => c"the operating system refused something: memory, descriptors or threads",
        ARGUMENT => c"an argument is null or outside of its range",
        _ => c"an unknown error",
    };
    text.as_ptr()
}
