//! Hot-patching of libc's entry points, and why.
//!
//! The shim must see every change of the program's address space, also those that libc makes for
//! itself: `malloc`, `pthread_create` and `sbrk` call libc's internal alias of `mmap` or `brk`,
//! which symbol interposition never reaches. Trials with an unmodified glibc 2.36 gave:
//!
//! | route | seen |
//! |---|---|
//! | interposed symbols | 0 of 20 large `malloc`s, 0 of 1180 `brk`s; Python 116 of 337 MiB, Java 2.6 of 4.1 GiB |
//! | patched entry points | all of them; Python 338 of 339 MiB, Java 4105 of 4102 MiB |
//! | an own `malloc` family | misses Python's, the JVM's and OpenBLAS's own `mmap`s, and needs both |
//! | seccomp traps, ptrace | survive `exec` without their handler, or cost a process switch a call |
//!
//! libc holds exactly one `syscall` instruction for each of these calls, in the function of that
//! name, and its internal aliases share the entry. So the entry is overwritten with a jump; no
//! symbol is exported, and a program that asks `dlsym` for libc's own function meets the hook too.
//!
//! Nothing is written unless every required entry can be patched: a pager that sees only some of
//! the changes would lose pages, so without the patches the process runs unmanaged and says so.
//!
//! A patch is a 5-byte `jmp rel32` to a stub within 2 GiB of libc, which jumps to the hook through
//! a 64-bit address. `endbr64` at an entry is kept. Functions whose original is still called
//! (`_Fork`, `clone`, the reads) get a trampoline: a copy of the overwritten instructions, then a
//! jump to the rest. None may be a branch; one operand relative to its place is adjusted.

use core::ffi::CStr;
use core::fmt;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use outpage_core::units::PAGE_BYTES;
use outpage_sys::own::{self, Fork};

use crate::decode::decode;
use crate::elf::{Libc, Symbol};
use crate::raw;

/// Bytes of a `jmp rel32`.
const JUMP_BYTES: usize = 5;
/// Bytes of `jmp [rip+0]` and the address after it.
const STUB_BYTES: usize = 14;
/// Room for one entry on the stub page: its stub, and a trampoline where it has one.
const PLACE_BYTES: usize = 64;
/// The stub area: one page holds 64 entries.
const AREA_BYTES: usize = PAGE_BYTES;
/// A trampoline copies less than five bytes and one longest instruction more.
const _: () = assert!(2 * STUB_BYTES + 4 + 15 <= PLACE_BYTES);
/// Places on the stub area.
const ENTRIES_MAX: usize = AREA_BYTES / PLACE_BYTES;
/// How far a stub may lie from libc's text: `rel32` reaches 2 GiB, less libc's own size.
const REACH_BYTES: usize = (1 << 31) - (16 << 20);

/// One entry point of libc.
pub struct EntryPoint {
    /// The exported name.
    pub name: &'static CStr,
    /// Address of the hook: the same signature, C calling convention.
    pub hook: usize,
    /// Whether the program cannot be managed without it.
    pub required: bool,
    /// Where the address of the trampoline goes, if the hook calls the original.
    pub original: Option<&'static AtomicUsize>,
}

/// Why an entry point was not patched.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// libc.so.6 is not loaded: another C library, or a static program.
    NoLibc,
    /// libc has no such function (glibc before 2.34 has no `_Fork`).
    Missing(&'static CStr),
    /// The entry does not begin with whole instructions that a jump may replace.
    Prologue(&'static CStr),
    /// Several threads run already, and a jump would replace more than one instruction.
    Threads(&'static CStr),
    /// No memory within reach of libc, with the error number.
    NoStubs(i32),
    /// The kernel did not make libc's text writable (SELinux, `PR_SET_MDWE`), with the error number.
    ReadOnly(i32),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |name: &CStr, f: &mut fmt::Formatter<'_>, what: &str| {
            write!(f, "libc's {} {what}", name.to_str().unwrap_or("?"))
        };
        match *self {
            Self::NoLibc => f.write_str("no libc.so.6 in this process"),
            Self::Missing(n) => name(n, f, "is missing (glibc 2.34 or later is needed)"),
            Self::Prologue(n) => name(n, f, "begins with code that cannot be patched"),
            Self::Threads(n) => name(n, f, "cannot be patched while other threads run"),
            Self::NoStubs(e) => write!(f, "no memory near libc for jumps (error {e})"),
            Self::ReadOnly(e) => write!(
                f,
                "the kernel keeps libc's text read-only (error {e}; SELinux boolean \
                 selinuxuser_execmod, or PR_SET_MDWE)"
            ),
        }
    }
}

/// A checked entry point, ready to be overwritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Site {
    /// First byte of the jump: the entry, or what follows its `endbr64`.
    at: usize,
    /// Bytes of the instructions that the jump overwrites, wholly or in part.
    bytes: usize,
    /// It overwrites part of a single one.
    single: bool,
    /// They do the same at any address, but for `relative`.
    movable: bool,
    /// Where among them a distance from the next instruction lies, 4 bytes.
    relative: Option<usize>,
}

/// Patches every entry of `entries` that can be, all required ones or none at all.
///
/// # Errors
/// The first [`Refusal`] of a required entry; libc is untouched then.
///
/// # Safety
/// The hooks must be functions of the same signature that stay loaded for ever, and the call must
/// come from the loader, before the program's own code runs.
pub unsafe fn install(entries: &[EntryPoint], threads: usize) -> Result<(), Refusal> {
    let libc = Libc::find().ok_or(Refusal::NoLibc)?;
    let mut sites: [Option<(&EntryPoint, Site)>; ENTRIES_MAX] = [None; ENTRIES_MAX];
    let mut count = 0;
    for entry in entries {
        match site(&libc, entry, threads) {
            // Two names of one function.
            Ok(site)
                if sites[..count]
                    .iter()
                    .flatten()
                    .any(|(_, s)| s.at == site.at) => {}
            Ok(site) => {
                sites[count] = Some((entry, site));
                count += 1;
            }
            Err(refusal) if entry.required => return Err(refusal),
            Err(_) => {}
        }
    }
    let (low, high) = libc.text();
    let (low, high) = (low & !(PAGE_BYTES - 1), high.next_multiple_of(PAGE_BYTES));
    let area = stub_area(low)?;
    for (index, (entry, site)) in sites.iter().flatten().enumerate() {
        write_stub(area + index * PLACE_BYTES, entry, site);
    }
    // SAFETY: the area is ours and holds no data that anybody writes again.
    let sealed = unsafe { raw::mprotect(area, AREA_BYTES, libc::PROT_READ | libc::PROT_EXEC) };
    if sealed < 0 {
        return Err(Refusal::NoStubs(-sealed as i32));
    }
    // SAFETY: `low..high` is libc's text; it stays readable and executable throughout.
    unsafe {
        overwrite(
            low,
            high,
            area,
            sites.iter().flatten().map(|(_, site)| site.at),
        )
    }
}

/// Makes libc's text writable, writes the jumps, and takes the permission away again.
///
/// The text is never without execute permission: SELinux checks only the step to writable, which
/// may be refused safely, and other threads may run meanwhile.
///
/// # Safety
/// `low..high` is libc's text and every site lies in it and was checked.
unsafe fn overwrite(
    low: usize,
    high: usize,
    area: usize,
    sites: impl Iterator<Item = usize>,
) -> Result<(), Refusal> {
    let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: only a permission is added.
    let opened = unsafe { raw::mprotect(low, high - low, all) };
    if opened < 0 {
        return Err(Refusal::ReadOnly(-opened as i32));
    }
    for (index, at) in sites.enumerate() {
        let jump = jump_to(at, area + index * PLACE_BYTES);
        // SAFETY: the caller vouches for the site; the page is writable now.
        unsafe { write_jump(at, jump) };
    }
    // SAFETY: gives back what was added; if that fails, the text merely stays writable.
    unsafe { raw::mprotect(low, high - low, libc::PROT_READ | libc::PROT_EXEC) };
    Ok(())
}

/// `jmp rel32` at `from` to `to`, which lie within reach of each other.
fn jump_to(from: usize, to: usize) -> [u8; JUMP_BYTES] {
    let distance = to.wrapping_sub(from + JUMP_BYTES) as u32;
    let [a, b, c, d] = distance.to_le_bytes();
    [0xe9, a, b, c, d]
}

/// Stores the jump, with one store where it lies within an aligned word.
///
/// # Safety
/// `at` is a checked site in writable memory.
unsafe fn write_jump(at: usize, jump: [u8; JUMP_BYTES]) {
    if at % 8 <= 8 - JUMP_BYTES {
        let word = (at & !7) as *mut [u8; 8];
        // SAFETY: the aligned word that holds the site is readable text.
        let mut bytes = unsafe { word.read_volatile() };
        for (i, byte) in jump.iter().enumerate() {
            bytes[at % 8 + i] = *byte;
        }
        // SAFETY: the same word, writable now; an aligned 8-byte store is atomic.
        let word = unsafe { AtomicU64::from_ptr(word.cast()) };
        word.store(u64::from_ne_bytes(bytes), Ordering::SeqCst);
    } else {
        for (i, byte) in jump.iter().enumerate() {
            // SAFETY: five bytes of the site, writable now; only one thread runs (checked).
            unsafe { ((at + i) as *mut u8).write_volatile(*byte) };
        }
    }
}

/// Writes the stub of `entry` to `place`, and its trampoline after it.
fn write_stub(place: usize, entry: &EntryPoint, site: &Site) {
    write_absolute_jump(place, entry.hook);
    let Some(original) = entry.original else {
        return;
    };
    let at = place + STUB_BYTES;
    for i in 0..site.bytes {
        // SAFETY: from the checked entry to the place of its stub, which is writable until sealed.
        unsafe { ((at + i) as *mut u8).write(((site.at + i) as *const u8).read()) };
    }
    if let Some(within) = site.relative {
        let place = (at + within) as *mut i32;
        // SAFETY: four bytes of the copy just made. The stubs lie as near to libc's data as to its
        // text, so that the distance fits.
        unsafe {
            let distance = place
                .read_unaligned()
                .wrapping_sub(at.wrapping_sub(site.at) as i32);
            place.write_unaligned(distance);
        }
    }
    write_absolute_jump(at + site.bytes, site.at + site.bytes);
    original.store(at, Ordering::Release);
}

/// `jmp [rip+0]; .quad to` at `place` on the stub area.
fn write_absolute_jump(place: usize, to: usize) {
    let mut code = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    code[6..].copy_from_slice(&to.to_le_bytes());
    for (i, byte) in code.iter().enumerate() {
        // SAFETY: the callers pass places on the stub area, which is writable until sealed.
        unsafe { ((place + i) as *mut u8).write(*byte) };
    }
}

/// Maps the stub area within reach of `text`: where the kernel puts it, else in the nearest hole.
fn stub_area(text: usize) -> Result<usize, Refusal> {
    let area = map_stub_area(text)?;
    // The pager's own thread runs through the stubs: they must never be paged.
    own::add(area, area + AREA_BYTES, Fork::Inherited).map_err(|e| Refusal::NoStubs(e.number()))?;
    Ok(area)
}

fn map_stub_area(text: usize) -> Result<usize, Refusal> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping replaces nothing.
    let first = unsafe { raw::mmap(0, AREA_BYTES, prot, flags, -1, 0) };
    if first < 0 {
        return Err(Refusal::NoStubs(-first as i32));
    }
    if (first as usize).abs_diff(text) < REACH_BYTES {
        return Ok(first as usize);
    }
    // SAFETY: the mapping made above, which nobody else knows.
    unsafe { raw::munmap(first as usize, AREA_BYTES) };
    let step = 1 << 20;
    for distance in (step..REACH_BYTES).step_by(step) {
        let at = text.wrapping_sub(distance) & !4095;
        // SAFETY: MAP_FIXED_NOREPLACE replaces nothing.
        let got = unsafe {
            raw::mmap(
                at,
                AREA_BYTES,
                prot,
                flags | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if got == at as isize {
            return Ok(at);
        }
    }
    Err(Refusal::NoStubs(libc::ENOMEM))
}

/// Finds and checks an entry point.
fn site(libc: &Libc, entry: &EntryPoint, threads: usize) -> Result<Site, Refusal> {
    let Symbol { address, bytes } = libc
        .symbol(entry.name)
        .ok_or(Refusal::Missing(entry.name))?;
    // SAFETY: the symbol table says that so many bytes of text lie there.
    let code = unsafe { core::slice::from_raw_parts(address as *const u8, bytes) };
    let site = check(code, address).ok_or(Refusal::Prologue(entry.name))?;
    if entry.original.is_some() && !site.movable {
        return Err(Refusal::Prologue(entry.name));
    }
    // Another thread is either before or behind a single instruction that is replaced at once.
    if threads > 1 && !(site.single && site.at % 8 <= 8 - JUMP_BYTES) {
        return Err(Refusal::Threads(entry.name));
    }
    Ok(site)
}

/// Whether a jump may replace the start of the function `code` at `address`, and what it replaces.
///
/// The whole function is searched for branches into what is replaced.
fn check(code: &[u8], address: usize) -> Option<Site> {
    let mut site = Site {
        at: address,
        bytes: 0,
        single: true,
        movable: true,
        relative: None,
    };
    let mut offset = 0;
    let mut first_target = usize::MAX;
    while offset < code.len() {
        let instruction = decode(&code[offset..])?;
        offset += instruction.len;
        if offset == instruction.len && instruction.endbr {
            site.at = address + offset;
            continue;
        }
        let next = address + offset;
        if site.bytes < JUMP_BYTES {
            // A jump here is somebody else's patch; behind a `ret` the function may be over.
            if instruction.ends {
                return None;
            }
            site.single = site.bytes == 0;
            if let Some(within) = instruction.rip_relative {
                site.movable &= site.relative.is_none();
                site.relative = Some(site.bytes + within);
            }
            site.movable &= instruction.branch.is_none();
            site.bytes += instruction.len;
        }
        if let Some(distance) = instruction.branch {
            let target = next.wrapping_add_signed(distance);
            if target > site.at {
                first_target = first_target.min(target);
            }
        }
    }
    (site.bytes >= JUMP_BYTES && first_target >= site.at + JUMP_BYTES).then_some(site)
}

#[cfg(test)]
mod tests;
