//! The shim's own references to libc, bound to libc itself.
//!
//! A library that is preloaded beside the shim may define functions of libc's anew, as fakeroot does with `statx` and uid_wrapper with
//! `syscall`, and the loader binds the shim's references to those. On a pager's thread they must not run: it has no thread-local data of
//! libc's, and a thread that waits for a page may hold a lock of theirs.

use core::ffi::{CStr, c_char, c_int};
use core::ptr;

use outpage_core::units::PAGE_BYTES;

use crate::elf::{DT_STRTAB, DT_SYMTAB, Libc, Object};
use crate::raw;

// From <elf.h>.
const DT_PLTRELSZ: u64 = 2;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_JMPREL: u64 = 23;
const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;

/// What libc returns to be freed, it has from whatever `malloc` the program has: these stay a pair.
const ALLOCATOR: [&CStr; 4] = [c"malloc", c"calloc", c"realloc", c"free"];

/// A relocation as the loader reads it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Rela {
    offset: u64,
    info: u64,
    addend: i64,
}

/// This library, as far as it refers to others.
struct Own {
    base: usize,
    symbols: *const libc::Elf64_Sym,
    strings: *const c_char,
    /// First entry and length in bytes: of data, of calls.
    tables: [(usize, usize); 2],
    /// What the loader has made read-only, half-open; empty for nothing.
    fixed: (usize, usize),
}

/// Binds every reference of this library to a function of `libc`'s that leads elsewhere. Where the kernel does not let it, they stay.
///
/// # Safety
/// No other thread is within this library.
pub unsafe fn to_libc(libc: &Libc) {
    let Some(own) = Own::find() else {
        return;
    };
    let inside = |at: usize| (libc.text().0..libc.text().1).contains(&at);
    let own_of_libc = |(at, name): (usize, &CStr)| {
        // SAFETY: an entry of this library's table of addresses.
        let leads_to = unsafe { (at as *const usize).read() };
        let led_away = leads_to != 0 && !inside(leads_to) && !ALLOCATOR.contains(&name);
        let function = led_away.then(|| libc.function(name)).flatten()?;
        Some((at, function.address))
    };
    let mut led_away = own.references().filter_map(own_of_libc).peekable();
    // As a rule there is none.
    if led_away.peek().is_none() || !own.protect(libc::PROT_READ | libc::PROT_WRITE) {
        return;
    }
    for (at, address) in led_away {
        // SAFETY: writable for now, aligned, and read by nobody meanwhile.
        unsafe { (at as *mut usize).write(address) };
    }
    own.protect(libc::PROT_READ);
}

impl Own {
    /// The object that this function is in.
    fn find() -> Option<Self> {
        Object::find(|object, _| {
            let here = (Self::find as *const () as u64).wrapping_sub(object.base as u64);
            let has = |h: &libc::Elf64_Phdr| (h.p_vaddr..h.p_vaddr + h.p_memsz).contains(&here);
            object.segment(|h| h.p_type == libc::PT_LOAD && has(h))?;
            Self::from_object(object)
        })
    }

    fn from_object(object: &Object<'_>) -> Option<Self> {
        let fixed = object.segment(|h| h.p_type == libc::PT_GNU_RELRO);
        let mut own = Self {
            base: object.base,
            symbols: ptr::null(),
            strings: ptr::null(),
            tables: [(0, 0); 2],
            fixed: fixed.unwrap_or((0, 0)),
        };
        for (tag, value) in object.dynamic() {
            match tag {
                DT_STRTAB => own.strings = value as *const c_char,
                DT_SYMTAB => own.symbols = value as *const libc::Elf64_Sym,
                DT_RELA => own.tables[0].0 = value,
                DT_RELASZ => own.tables[0].1 = value,
                DT_JMPREL => own.tables[1].0 = value,
                DT_PLTRELSZ => own.tables[1].1 = value,
                _ => {}
            }
        }
        let addresses = [own.strings as usize, own.symbols as usize];
        addresses.iter().all(|&at| at > own.base).then_some(own)
    }

    /// Where each address lies that the loader has looked up, and of what it is.
    fn references(&self) -> impl Iterator<Item = (usize, &CStr)> {
        let tables = self.tables.iter().filter(|(start, _)| *start > self.base);
        let entries = tables.flat_map(|&(start, bytes)| {
            let count = bytes / size_of::<Rela>();
            // SAFETY: the loader has read so many there.
            (0..count).map(move |n| unsafe { (start as *const Rela).add(n).read() })
        });
        entries.filter_map(|entry| {
            let (kind, index) = (entry.info as u32, (entry.info >> 32) as usize);
            if !matches!(kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) {
                return None;
            }
            // SAFETY: the relocation's symbol, whose name is an offset into the strings.
            let name = unsafe {
                let symbol = &*self.symbols.add(index);
                CStr::from_ptr(self.strings.add(symbol.st_name as usize))
            };
            Some((self.base + entry.offset as usize, name))
        })
    }

    /// Sets the protection of what the loader has made read-only; whether that was done.
    fn protect(&self, protection: c_int) -> bool {
        let (start, end) = self.fixed;
        // As the loader does: whole pages within.
        let (start, end) = (start & !(PAGE_BYTES - 1), end & !(PAGE_BYTES - 1));
        let args = [start, end - start, protection as usize, 0, 0, 0];
        // SAFETY: this library's own data, whose content stays.
        end == start || unsafe { raw::call(libc::SYS_mprotect, args) } == 0
    }
}
