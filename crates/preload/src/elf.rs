//! libc's symbols, looked up in its own hash table.
//!
//! `dlsym` gives no sizes, `dladdr1` searches all symbols for each, and `dlopen` calls malloc: this
//! is called in every process before its program begins.

use core::ffi::{CStr, c_int, c_void};

/// A symbol of libc: address, and size in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// First byte.
    pub address: usize,
    /// Length in bytes, as the symbol table has it.
    pub bytes: usize,
}

/// The C library of this process.
#[derive(Clone, Copy, Debug)]
pub struct Libc {
    base: usize,
    /// Executable segment, half-open.
    text: (usize, usize),
    symbols: *const libc::Elf64_Sym,
    strings: *const libc::c_char,
    hashes: *const u32,
    versions: *const u16,
}

// From <elf.h>; the GNU hash section as in binutils.
const DT_NULL: u64 = 0;
pub(crate) const DT_STRTAB: u64 = 5;
pub(crate) const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
const STT_FUNC: u8 = 2;
/// Kept for programs linked long ago; where it differs, a newer version has the same name.
const VERSION_HIDDEN: u16 = 0x8000;

/// The file name that glibc is loaded by.
const NAME: &[u8] = b"libc.so.6";

/// A loaded object: where it lies, and the headers of its segments.
pub(crate) struct Object<'a> {
    /// What addresses in its file are relative to.
    pub(crate) base: usize,
    headers: &'a [libc::Elf64_Phdr],
}

impl Object<'_> {
    /// What `pick` makes of the first loaded object of which it makes anything; it is told the file's name too.
    ///
    /// Takes the loader's lock: for the constructor only.
    pub(crate) fn find<T>(pick: fn(&Object<'_>, &CStr) -> Option<T>) -> Option<T> {
        struct Search<T> {
            pick: fn(&Object<'_>, &CStr) -> Option<T>,
            found: Option<T>,
        }
        extern "C" fn visit<T>(info: *mut libc::dl_phdr_info, _: usize, out: *mut c_void) -> c_int {
            // SAFETY: the loader's record, with a name that is a C string and so many headers; the search passed below.
            let (object, name, search) = unsafe {
                let info = &*info;
                let count = info.dlpi_phnum as usize;
                let object = Object {
                    base: info.dlpi_addr as usize,
                    headers: core::slice::from_raw_parts(info.dlpi_phdr, count),
                };
                let name = CStr::from_ptr(info.dlpi_name);
                (object, name, &mut *out.cast::<Search<T>>())
            };
            search.found = (search.pick)(&object, name);
            c_int::from(search.found.is_some())
        }
        let mut search = Search { pick, found: None };
        // SAFETY: the callback matches what it is given.
        unsafe { libc::dl_iterate_phdr(Some(visit::<T>), (&raw mut search).cast()) };
        search.found
    }

    /// Where the first segment lies of which `is_it` says so, half-open.
    pub(crate) fn segment(
        &self,
        is_it: impl Fn(&libc::Elf64_Phdr) -> bool,
    ) -> Option<(usize, usize)> {
        let header = self.headers.iter().find(|header| is_it(header))?;
        let start = self.base + header.p_vaddr as usize;
        Some((start, start + header.p_memsz as usize))
    }

    /// The entries of its dynamic section, tag and value; none without one. glibc has relocated the addresses.
    pub(crate) fn dynamic(&self) -> impl Iterator<Item = (u64, usize)> {
        let section = self.segment(|header| header.p_type == libc::PT_DYNAMIC);
        let mut next = section.map(|(start, _)| start as *const [u64; 2]);
        core::iter::from_fn(move || {
            let at = next?;
            // SAFETY: the section ends with a null tag, behind which nothing is read.
            let [tag, value] = unsafe { at.read() };
            next = (tag != DT_NULL).then(|| at.wrapping_add(1));
            next.map(|_| (tag, value as usize))
        })
    }
}

impl Libc {
    /// Finds it among the loaded objects; `None` in a process with another C library.
    ///
    /// Takes the loader's lock: for the constructor only.
    pub fn find() -> Option<Self> {
        Object::find(|object, name| {
            let file = name.to_bytes().rsplit(|&byte| byte == b'/').next();
            (file == Some(NAME)).then(|| Self::from_object(object))?
        })
    }

    fn from_object(object: &Object<'_>) -> Option<Self> {
        let is_code = |header: &libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0
        };
        let mut found = Self {
            base: object.base,
            text: object.segment(is_code)?,
            symbols: core::ptr::null(),
            strings: core::ptr::null(),
            hashes: core::ptr::null(),
            versions: core::ptr::null(),
        };
        for (tag, value) in object.dynamic() {
            match tag {
                DT_STRTAB => found.strings = value as *const libc::c_char,
                DT_SYMTAB => found.symbols = value as *const libc::Elf64_Sym,
                DT_GNU_HASH => found.hashes = value as *const u32,
                DT_VERSYM => found.versions = value as *const u16,
                _ => {}
            }
        }
        let complete = [
            found.strings as usize,
            found.symbols as usize,
            found.hashes as usize,
            found.versions as usize,
        ];
        complete
            .iter()
            .all(|&address| address > object.base)
            .then_some(found)
    }

    /// The executable segment, half-open.
    pub fn text(&self) -> (usize, usize) {
        self.text
    }

    /// The symbol `name`, in the version that programs are linked to today.
    pub fn symbol(&self, name: &CStr) -> Option<Symbol> {
        self.look_up(name).map(|(symbol, _)| symbol)
    }

    /// The function `name`, likewise; `None` for one that the loader chooses among several, such as `memcpy`.
    pub fn function(&self, name: &CStr) -> Option<Symbol> {
        let found = self.look_up(name);
        found
            .filter(|(_, kind)| *kind == STT_FUNC)
            .map(|(symbol, _)| symbol)
    }

    /// The symbol, and its type.
    fn look_up(&self, name: &CStr) -> Option<(Symbol, u8)> {
        // Header: buckets, first hashed symbol, words of the Bloom filter, its shift.
        // SAFETY: libc's GNU hash table.
        let [buckets, first, filter_words, _] = unsafe { self.hashes.cast::<[u32; 4]>().read() };
        let hash = name.to_bytes().iter().fold(5381_u32, |hash, &byte| {
            hash.wrapping_mul(33).wrapping_add(byte.into())
        });
        // SAFETY: the parts follow one another: header, filter of 8-byte words, buckets, chains.
        let (bucket, chains) = unsafe {
            let table = self.hashes.add(4 + 2 * filter_words as usize);
            (
                table.add((hash % buckets) as usize).read(),
                table.add(buckets as usize),
            )
        };
        let mut index = bucket;
        while index >= first {
            // SAFETY: every hashed symbol has a word, the last of a chain with the low bit set.
            let word = unsafe { chains.add((index - first) as usize).read() };
            if word | 1 == hash | 1 {
                // SAFETY: the index of a symbol, whose name is an offset into the strings.
                let (symbol, text) = unsafe {
                    let symbol = &*self.symbols.add(index as usize);
                    (
                        symbol,
                        CStr::from_ptr(self.strings.add(symbol.st_name as usize)),
                    )
                };
                // SAFETY: the table of versions has a number for each symbol.
                let old = unsafe { self.versions.add(index as usize).read() } & VERSION_HIDDEN != 0;
                if text == name && symbol.st_value != 0 && !old {
                    let address = self.base + symbol.st_value as usize;
                    let bytes = symbol.st_size as usize;
                    return Some((Symbol { address, bytes }, symbol.st_info & 15));
                }
            }
            if word & 1 == 1 {
                break;
            }
            index += 1;
        }
        None
    }

    /// Every function symbol, for tests.
    #[cfg(test)]
    pub fn functions(&self) -> Vec<Symbol> {
        // The symbol table lies right before the strings in every library that ld makes.
        let count = (self.strings as usize - self.symbols as usize) / size_of::<libc::Elf64_Sym>();
        // SAFETY: so many symbols lie there.
        let symbols = unsafe { core::slice::from_raw_parts(self.symbols, count) };
        let code = symbols
            .iter()
            .filter(|s| s.st_info & 15 == STT_FUNC && s.st_size > 0);
        code.map(|s| Symbol {
            address: self.base + s.st_value as usize,
            bytes: s.st_size as usize,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests;
