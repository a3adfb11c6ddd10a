//! An agent of the Java virtual machine: after each collection it frees what of the young generation holds no object.
//!
//! A collector leaves eden and one survivor space empty, full of bytes that nobody reads before they are written, and each page of them costs a write
//! when it leaves. JVMTI tells when a collection is over, on the virtual machine's own thread while no other runs Java code; where the spaces lie
//! it does not tell, nor do the beans of `java.lang.management`, which have sizes alone. HotSpot's tables for debuggers do (`gHotSpotVMStructs`,
//! `vmStructs.cpp`, exported by libjvm.so for the serviceability agent): fields by name, with their offsets in this very build. What is not found
//! there is not guessed: then nothing is freed. Of each space all from its top to its end is free; a thread's own buffers lie below it, filled.
//!
//! Freed is what `MADV_FREE` frees: a page that the program writes again is kept, so nobody has to take anything back.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use std::sync::OnceLock;

use outpage_core::units::PAGE_BYTES;

use crate::memory;

/// The version of JVMTI that is asked for: 1.2, of Java 6 (`jvmti.h`).
const VERSION: c_int = 0x3001_0200;
/// `JNI_ERR`, `JVMTI_ENABLE` and `JVMTI_EVENT_GARBAGE_COLLECTION_FINISH` of jni.h and jvmti.h.
const FAILED: c_int = -1;
const ENABLE: c_int = 1;
const COLLECTED: c_int = 82;
/// The first event of the table of callbacks, `JVMTI_MIN_EVENT_TYPE_VAL`, and how many it has up to the one that is wanted.
const FIRST_EVENT: c_int = 50;
const EVENTS: usize = (COLLECTED - FIRST_EVENT) as usize + 1;
/// Functions in JNI's invocation table and JVMTI's, by their place.
const GET_ENV: usize = 6;
const SET_EVENT_NOTIFICATION_MODE: usize = 2 - 1;
const SET_EVENT_CALLBACKS: usize = 122 - 1;
const ADD_CAPABILITIES: usize = 142 - 1;
/// `can_generate_garbage_collection_events`, the 32nd bit of `jvmtiCapabilities`.
const CAPABILITIES: [u32; 4] = [1 << 31, 0, 0, 0];

type Object = *mut *const usize;

/// The tables that libjvm.so has for debuggers.
struct Tables {
    fields: usize,
    field_stride: usize,
    type_name: usize,
    field_name: usize,
    offset: usize,
    address: usize,
    types: usize,
    type_stride: usize,
    name_of_type: usize,
    size_of_type: usize,
}

/// Where the young generation and its spaces are found.
struct Young {
    /// Holds the address of what has the field below, or of the generation itself where that is `None`.
    from: usize,
    generation: Option<usize>,
    spaces: [usize; 3],
    top: usize,
    end: usize,
}

static TABLES: OnceLock<Option<Tables>> = OnceLock::new();
static YOUNG: OnceLock<Option<Young>> = OnceLock::new();

/// What lies at `address`.
///
/// # Safety
/// A word is there, and nobody writes to it meanwhile.
unsafe fn word(address: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (address as *const usize).read() }
}

/// The text whose address lies at `address`; empty where there is none.
///
/// # Safety
/// A word is there, 0 or the address of a text that stays.
unsafe fn text(address: usize) -> &'static CStr {
    // SAFETY: the caller's promise.
    unsafe {
        match word(address) {
            0 => c"",
            text => CStr::from_ptr(text as *const c_char),
        }
    }
}

impl Tables {
    /// Those of the virtual machine that is loaded.
    fn find() -> Option<Self> {
        // SAFETY: only looks for what is loaded already.
        let machine =
            unsafe { libc::dlopen(c"libjvm.so".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        let symbol = |name: &CStr| {
            // SAFETY: a handle or null, and a text; all of these symbols are words that are never written once the library is loaded.
            unsafe {
                let at = libc::dlsym(machine, name.as_ptr());
                (!at.is_null()).then(|| word(at as usize))
            }
        };
        if machine.is_null() {
            return None;
        }
        Some(Self {
            fields: symbol(c"gHotSpotVMStructs")?,
            field_stride: symbol(c"gHotSpotVMStructEntryArrayStride")?,
            type_name: symbol(c"gHotSpotVMStructEntryTypeNameOffset")?,
            field_name: symbol(c"gHotSpotVMStructEntryFieldNameOffset")?,
            offset: symbol(c"gHotSpotVMStructEntryOffsetOffset")?,
            address: symbol(c"gHotSpotVMStructEntryAddressOffset")?,
            types: symbol(c"gHotSpotVMTypes")?,
            type_stride: symbol(c"gHotSpotVMTypeEntryArrayStride")?,
            name_of_type: symbol(c"gHotSpotVMTypeEntryTypeNameOffset")?,
            size_of_type: symbol(c"gHotSpotVMTypeEntrySizeOffset")?,
        })
    }

    /// The entry of a field.
    fn entry(&self, of: &CStr, name: &CStr) -> Option<usize> {
        let mut at = self.fields;
        // SAFETY: entries lie one after the other up to one without a name, and do not change.
        unsafe {
            while !text(at + self.type_name).is_empty() {
                if text(at + self.type_name) == of && text(at + self.field_name) == name {
                    return Some(at);
                }
                at += self.field_stride;
            }
        }
        None
    }

    /// The offset of a field in its object.
    fn offset(&self, of: &CStr, name: &CStr) -> Option<usize> {
        // SAFETY: a field of an entry.
        (self.entry(of, name)).map(|entry| unsafe { word(entry + self.offset) })
    }

    /// The address of a static field.
    fn address(&self, of: &CStr, name: &CStr) -> Option<usize> {
        // SAFETY: a field of an entry.
        (self.entry(of, name)).map(|entry| unsafe { word(entry + self.address) })
    }

    fn size(&self, of: &CStr) -> Option<usize> {
        let mut at = self.types;
        // SAFETY: as in `entry`.
        unsafe {
            while !text(at + self.name_of_type).is_empty() {
                if text(at + self.name_of_type) == of {
                    return Some(word(at + self.size_of_type));
                }
                at += self.type_stride;
            }
        }
        None
    }

    /// Whether the machine runs with this option.
    fn is_set(&self, option: &CStr) -> Option<bool> {
        let flags = self.address(c"JVMFlag", c"flags")?;
        let count = self.address(c"JVMFlag", c"numFlags")?;
        let (name, value) = (
            self.offset(c"JVMFlag", c"_name")?,
            self.offset(c"JVMFlag", c"_addr")?,
        );
        let size = self.size(c"JVMFlag")?;
        // SAFETY: so many flags of this size lie there; that of a collector is a byte, set when the machine begins.
        unsafe {
            let all = (0..word(count)).map(|i| word(flags) + i * size);
            let found = all.into_iter().find(|flag| text(flag + name) == option)?;
            Some((word(found + value) as *const u8).read() != 0)
        }
    }

    /// Where the young generation of the collector in use is; `None` for another collector.
    fn young(&self) -> Option<Young> {
        // Spaces of several parts each have tops of their own.
        if self.is_set(c"UseNUMA")? {
            return None;
        }
        let spaces = |of: &CStr| {
            let offset = |name| self.offset(of, name);
            Some([
                offset(c"_eden_space")?,
                offset(c"_from_space")?,
                offset(c"_to_space")?,
            ])
        };
        if self.is_set(c"UseParallelGC")? {
            return Some(Young {
                from: self.address(c"ParallelScavengeHeap", c"_young_gen")?,
                generation: None,
                spaces: spaces(c"PSYoungGen")?,
                top: self.offset(c"MutableSpace", c"_top")?,
                end: self.offset(c"MutableSpace", c"_end")?,
            });
        }
        if !self.is_set(c"UseSerialGC")? {
            return None;
        }
        // The heap has its second name since Java 22, the end of a space its second place since 23.
        let heaps = [c"GenCollectedHeap", c"SerialHeap"].into_iter();
        let ends = [c"Space", c"ContiguousSpace"].into_iter();
        let mut heaps = heaps.filter_map(|heap| self.offset(heap, c"_young_gen"));
        let mut ends = ends.filter_map(|space| self.offset(space, c"_end"));
        Some(Young {
            from: self.address(c"Universe", c"_collectedHeap")?,
            generation: Some(heaps.next()?),
            spaces: spaces(c"DefNewGeneration")?,
            top: self.offset(c"ContiguousSpace", c"_top")?,
            end: ends.next()?,
        })
    }
}

/// A collection is over; no other thread runs Java code.
unsafe extern "C" fn collected(_jvmti: Object) {
    let young = YOUNG.get_or_init(|| {
        TABLES
            .get()
            .and_then(Option::as_ref)
            .and_then(Tables::young)
    });
    let Some(young) = young else { return };
    for space in young.spaces {
        // SAFETY: the machine is up, so what the tables lead to are its generation and the spaces of that, which change in collections alone.
        let (top, end) = unsafe {
            let mut generation = word(young.from);
            if let Some(field) = young.generation {
                generation = word(generation + field);
            }
            let space = word(generation + space);
            (word(space + young.top), word(space + young.end))
        };
        let first = top.next_multiple_of(PAGE_BYTES);
        let len = (end & !(PAGE_BYTES - 1)).saturating_sub(first);
        memory::discardable(first, len);
    }
}

/// What the Java virtual machine calls when it is started with `-agentpath:` and this library's path: the agent begins.
///
/// A machine without these tables, or whose collector is another, runs as ever.
///
/// # Safety
/// `machine` is a `JavaVM *`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Agent_OnLoad(
    machine: Object,
    _options: *const c_char,
    _reserved: *mut c_void,
) -> c_int {
    if TABLES.get_or_init(Tables::find).is_none() {
        return 0;
    }
    let mut callbacks = [0; EVENTS];
    callbacks[EVENTS - 1] = collected as unsafe extern "C" fn(Object) as usize;
    let mut jvmti: Object = ptr::null_mut();
    // SAFETY: tables of functions, each at its place and of its signature (jni.h, jvmti.h).
    unsafe {
        let function = |object: Object, place: usize| (*object).add(place).read();
        let get_env: unsafe extern "C" fn(Object, *mut Object, c_int) -> c_int =
            core::mem::transmute(function(machine, GET_ENV));
        if get_env(machine, &raw mut jvmti, VERSION) != 0 {
            return FAILED;
        }
        let add: unsafe extern "C" fn(Object, *const [u32; 4]) -> c_int =
            core::mem::transmute(function(jvmti, ADD_CAPABILITIES));
        let set: unsafe extern "C" fn(Object, *const usize, c_int) -> c_int =
            core::mem::transmute(function(jvmti, SET_EVENT_CALLBACKS));
        let enable: unsafe extern "C" fn(Object, c_int, c_int, *const c_void) -> c_int =
            core::mem::transmute(function(jvmti, SET_EVENT_NOTIFICATION_MODE));
        let bytes = size_of_val(&callbacks) as c_int;
        let refused = add(jvmti, &CAPABILITIES) != 0
            || set(jvmti, callbacks.as_ptr(), bytes) != 0
            || enable(jvmti, ENABLE, COLLECTED, ptr::null()) != 0;
        if refused { FAILED } else { 0 }
    }
}

/// What the whole pages of `len` bytes at `addr` hold is not wanted, until the caller writes there: a page is as it was or zeroes until then, and
/// leaves without a write. Returns 0, or -1 with `errno` as madvise(2) sets it. Without a pager, as long as everything fits the limit, nothing is done.
///
/// # Safety
/// Nobody needs what is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outpage_discardable(addr: *mut c_void, len: usize) -> c_int {
    let end = (addr as usize).saturating_add(len) & !(PAGE_BYTES - 1);
    let first = (addr as usize).next_multiple_of(PAGE_BYTES);
    let result = memory::discardable(first, end.saturating_sub(first));
    if result < 0 {
        // SAFETY: the calling thread's errno.
        unsafe { *libc::__errno_location() = -result as c_int };
        return -1;
    }
    0
}
