//! The list of mappings: /proc/self/maps, parsed without allocating.

use core::ops::ControlFlow;

use crate::fd::{self, Fd};
use crate::proc;
use crate::raw::Errno;

/// What a mapping is, judged by the name and inode of its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind<'a> {
    /// Private anonymous memory without a name.
    Anonymous,
    /// Private anonymous memory that was given a name with prctl(2).
    Named(&'a [u8]),
    /// The data segment that brk moves.
    Heap,
    /// The main thread's stack.
    Stack,
    /// Made by the kernel for itself: vdso, vvar, vsyscall, uprobes and what may come.
    Special,
    /// Memory without a file name that can be shared: memfd, System V, shared anonymous, /dev/zero.
    SharedMemory,
    /// A file (or device).
    File,
}

/// One mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping<'a> {
    /// First byte.
    pub start: usize,
    /// First byte after it.
    pub end: usize,
    /// `PROT_READ`, `PROT_WRITE` and `PROT_EXEC`, or'ed.
    pub prot: i32,
    /// `MAP_SHARED` rather than `MAP_PRIVATE`.
    pub shared: bool,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file's inode; 0 without a file.
    pub inode: u64,
    /// The name as printed: a path (a newline in it as `\012`), a `[label]`, or empty.
    pub name: &'a [u8],
}

impl<'a> Mapping<'a> {
    /// Parses one line, with or without its line end; `None` if it does not have the format.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut rest = line.strip_suffix(b"\n").unwrap_or(line);
        let start = number(until(&mut rest, b'-')?, 16)? as usize;
        let end = number(until(&mut rest, b' ')?, 16)? as usize;
        end.checked_sub(start)?;
        let rights = until(&mut rest, b' ')?;
        let offset = number(until(&mut rest, b' ')?, 16)?;
        let major = number(until(&mut rest, b':')?, 16)? as u32;
        let minor = number(until(&mut rest, b' ')?, 16)? as u32;
        // The inode ends the line when there is no name; older kernels pad with blanks even then.
        let inode_end = rest
            .iter()
            .position(|&byte| byte == b' ')
            .unwrap_or(rest.len());
        let inode = number(&rest[..inode_end], 10)?;
        let name = rest[inode_end..].trim_ascii_start();
        let [read, write, exec, sharing] = *rights else {
            return None;
        };
        let right = |byte, letter, flag| if byte == letter { flag } else { 0 };
        Some(Self {
            start,
            end,
            prot: right(read, b'r', libc::PROT_READ)
                | right(write, b'w', libc::PROT_WRITE)
                | right(exec, b'x', libc::PROT_EXEC),
            shared: sharing == b's',
            offset,
            device: (major, minor),
            inode,
            name,
        })
    }

    /// What the mapping is.
    #[must_use]
    pub fn kind(&self) -> Kind<'a> {
        const SHARED: [&[u8]; 4] = [b"/memfd:", b"/SYSV", b"/dev/zero", b"[anon_shmem:"];
        if SHARED.iter().any(|prefix| self.name.starts_with(prefix)) {
            return Kind::SharedMemory;
        }
        if let Some(name) = self.name.strip_prefix(b"[anon:") {
            return Kind::Named(name.strip_suffix(b"]").unwrap_or(name));
        }
        match self.name {
            b"" if self.inode == 0 && self.device == (0, 0) => Kind::Anonymous,
            b"[heap]" => Kind::Heap,
            b"[stack]" => Kind::Stack,
            name if self.inode == 0 && name.starts_with(b"[") => Kind::Special,
            _ => Kind::File,
        }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.end - self.start
    }

    /// Never true for a line of the kernel's.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Private memory without a file: what a pager can manage, if the rights allow.
    #[must_use]
    pub fn is_private_anonymous(&self) -> bool {
        !self.shared && matches!(self.kind(), Kind::Anonymous | Kind::Named(_) | Kind::Heap)
    }
}

/// Cuts `rest` after the first `separator` and returns what stood before it.
fn until<'a>(rest: &mut &'a [u8], separator: u8) -> Option<&'a [u8]> {
    let at = rest.iter().position(|&byte| byte == separator)?;
    let (field, after) = rest.split_at(at);
    *rest = &after[1..];
    Some(field)
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(digits).ok()?, radix).ok()
}

/// Calls `visit` with every mapping of this process, in ascending order, until it breaks off.
///
/// `buffer` takes the text in pieces; 8 KiB or more spares calls and holds any path. The kernel keeps
/// the list steady only within one piece: mappings that other threads change meanwhile may be missed
/// or come in their old form. `visit` may map and unmap, and sees the effect from the next piece on.
///
/// # Errors
/// Those of open(2) and read(2); `E2BIG` when a line is longer than the buffer.
pub fn for_each(
    buffer: &mut [u8],
    visit: impl FnMut(&Mapping<'_>) -> ControlFlow<()>,
) -> Result<(), Errno> {
    List::open()?.for_each(buffer, visit)
}

/// The list, open: it can be read again and again when no more descriptors are to be had.
#[derive(Debug)]
pub struct List(Fd);

impl List {
    /// Opens /proc/self/maps.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open() -> Result<Self, Errno> {
        proc::open(c"thread-self/maps", libc::O_RDONLY).map(Self)
    }

    /// As [`for_each`].
    ///
    /// # Errors
    /// As [`for_each`].
    pub fn for_each(
        &self,
        buffer: &mut [u8],
        visit: impl FnMut(&Mapping<'_>) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        let mut offset = 0;
        let read = |space: &mut [u8]| {
            let got = fd::pread(self.0.number(), space, offset)?;
            offset += got as u64;
            Ok(got)
        };
        for_each_from(read, buffer, visit)
    }

    /// Forgets a list whose descriptor belongs to another process or table: nothing is closed.
    pub fn abandon(self) {
        let _ = self.0.release();
    }
}

/// What of /proc/self/smaps concerns forks, for a range that is marked so: left out of children, or empty there (`MADV_DONTFORK`,
/// `MADV_WIPEONFORK`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advised {
    /// First byte.
    pub start: usize,
    /// First byte after it.
    pub end: usize,
    /// Left out.
    pub not_forked: bool,
    /// Empty.
    pub wiped: bool,
}

/// Calls `visit` with every mapping that is marked. Slow: the kernel looks at every page table.
///
/// # Errors
/// As [`for_each`].
pub fn for_each_advised(buffer: &mut [u8], mut visit: impl FnMut(Advised)) -> Result<(), Errno> {
    for_each_detail(buffer, |place, line| {
        let Some(flags) = line.strip_prefix(b"VmFlags:") else {
            return;
        };
        let has = |flag: &[u8]| flags.split(|&byte| byte == b' ').any(|f| f == flag);
        let (not_forked, wiped) = (has(b"dc"), has(b"wf"));
        if not_forked || wiped {
            visit(Advised {
                start: place.start,
                end: place.end,
                not_forked,
                wiped,
            });
        }
    })
}

/// Bytes in RAM of private anonymous memory that must not be written as things are: what a program wrote before it took the right
/// away. As slow as [`for_each_advised`].
///
/// # Errors
/// As [`for_each`].
pub fn protected_bytes(buffer: &mut [u8]) -> Result<u64, Errno> {
    let mut bytes = 0;
    for_each_detail(buffer, |place, line| {
        let protected = place.anonymous && place.prot & libc::PROT_WRITE == 0;
        if let Some(value) = line.strip_prefix(b"Anonymous:")
            && protected
        {
            let kib = value.trim_ascii().split(|&byte| byte == b' ').next();
            bytes += kib.and_then(|kib| number(kib, 10)).unwrap_or(0) << 10;
        }
    })?;
    Ok(bytes)
}

/// What a line of /proc/self/smaps is about.
#[derive(Clone, Copy, Default)]
struct Place {
    start: usize,
    end: usize,
    prot: i32,
    /// Private, and without a file.
    anonymous: bool,
}

/// Calls `visit` with every line of /proc/self/smaps that says something of a mapping.
fn for_each_detail(buffer: &mut [u8], mut visit: impl FnMut(Place, &[u8])) -> Result<(), Errno> {
    let file = proc::open(c"thread-self/smaps", libc::O_RDONLY)?;
    let mut place = Place::default();
    each_line(
        |space| fd::read(file.number(), space),
        buffer,
        |line| {
            // A line of the list begins with a small letter or a digit, what follows with a capital.
            if line.first().is_some_and(u8::is_ascii_uppercase) {
                visit(place, line);
            } else if let Some(entry) = Mapping::parse(line) {
                place = Place {
                    start: entry.start,
                    end: entry.end,
                    prot: entry.prot,
                    anonymous: entry.is_private_anonymous(),
                };
            }
            ControlFlow::Continue(())
        },
    )
}

/// As [`for_each`], from any source of text: `source` fills a slice and returns how many bytes, 0 at the end.
///
/// # Errors
/// Those of `source`; `E2BIG` as there; `EIO` for a line that is none of the kernel's.
pub fn for_each_from(
    source: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
    buffer: &mut [u8],
    mut visit: impl FnMut(&Mapping<'_>) -> ControlFlow<()>,
) -> Result<(), Errno> {
    let mut wrong = false;
    each_line(source, buffer, |line| match Mapping::parse(line) {
        Some(entry) => visit(&entry),
        None => {
            wrong = true;
            ControlFlow::Break(())
        }
    })?;
    if wrong { Err(Errno::EIO) } else { Ok(()) }
}

/// Calls `visit` with every line of a text, without its end.
fn each_line(
    mut source: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
    buffer: &mut [u8],
    mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), Errno> {
    let mut filled = 0;
    loop {
        if filled == buffer.len() {
            return Err(Errno::E2BIG);
        }
        let got = source(&mut buffer[filled..])?;
        filled += got;
        let mut at = 0;
        while let Some(len) = buffer[at..filled].iter().position(|&byte| byte == b'\n') {
            let line = &buffer[at..at + len];
            at += len + 1;
            if visit(line).is_break() {
                return Ok(());
            }
        }
        if got == 0 {
            return Ok(());
        }
        buffer.copy_within(at..filled, 0);
        filled -= at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{vec, vec::Vec};

    const SAMPLE: &[u8] = b"\
55d0c0a00000-55d0c0a02000 r--p 00000000 fe:01 1234567                    /usr/bin/cat
55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n\
7f0000021000-7f0004000000 ---p 00000000 00:00 0 \n\
7f0004000000-7f0004001000 rw-p 00000000 00:00 0                          [anon:glibc: malloc arena]
7f0004001000-7f0004002000 rw-s 00001000 00:01 42                         /memfd:ring (deleted)
7f0004002000-7f0004003000 rw-s 00000000 00:01 43                         /dev/zero (deleted)
7f0004003000-7f0004004000 rwxp 00000000 fe:01 99                         /tmp/a b\\012c (deleted)
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
7ffc00100000-7ffc00102000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    /// Parses `SAMPLE`, served in pieces of at most `piece` bytes through a buffer of `buffer` bytes.
    fn parse_sample(piece: usize, buffer: usize) -> Result<Vec<(usize, usize, Vec<u8>)>, Errno> {
        let mut rest = SAMPLE;
        let source = |space: &mut [u8]| {
            let len = rest.len().min(space.len()).min(piece);
            space[..len].copy_from_slice(&rest[..len]);
            rest = &rest[len..];
            Ok(len)
        };
        let mut seen = Vec::new();
        for_each_from(source, &mut vec![0; buffer], |entry| {
            seen.push((entry.start, entry.end, entry.name.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(seen)
    }

    #[test]
    fn every_field_of_a_line_is_read() {
        let line = b"7f0004001000-7f0004002000 r-xs 00001000 fe:0a 42   /a b (deleted)\n";
        let entry = Mapping::parse(line).unwrap();
        assert_eq!(
            (entry.start, entry.end),
            (0x7f00_0400_1000, 0x7f00_0400_2000)
        );
        assert_eq!(entry.prot, libc::PROT_READ | libc::PROT_EXEC);
        assert!(entry.shared);
        assert_eq!(
            (entry.offset, entry.device, entry.inode),
            (0x1000, (0xfe, 0x0a), 42)
        );
        assert_eq!((entry.name, entry.len()), (&b"/a b (deleted)"[..], 0x1000));
    }

    #[test]
    fn kinds_are_told_apart() {
        let kinds: Vec<Kind<'_>> = SAMPLE
            .split_inclusive(|&byte| byte == b'\n')
            .map(|line| Mapping::parse(line).unwrap().kind())
            .collect();
        assert_eq!(
            kinds,
            [
                Kind::File,
                Kind::Heap,
                Kind::Anonymous,
                Kind::Anonymous,
                Kind::Named(b"glibc: malloc arena"),
                Kind::SharedMemory,
                Kind::SharedMemory,
                Kind::File,
                Kind::Stack,
                Kind::Special,
                Kind::Special,
            ]
        );
    }

    #[test]
    fn broken_lines_are_refused() {
        for line in [
            &b""[..],
            b"7f00-7f01",
            b"7f00-7f01 rw-p 0 00:00",
            b"7f00-xy01 rw-p 00000000 00:00 0",
            b"7f00-7f01 rw- 00000000 00:00 0",
            b"7f00-7f01 rw-p 00000000 00:00 0x",
        ] {
            assert_eq!(Mapping::parse(line), None, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn pieces_of_any_size_give_the_same_entries() {
        let whole = parse_sample(usize::MAX, 4096).unwrap();
        assert_eq!(whole.len(), 11);
        for piece in [1, 7, 64, 100] {
            assert_eq!(
                parse_sample(piece, 128).unwrap(),
                whole,
                "pieces of {piece}"
            );
        }
        assert_eq!(parse_sample(usize::MAX, 60), Err(Errno::E2BIG));
    }

    #[test]
    fn the_live_list_holds_this_stack_and_this_code() {
        let local = 0u8;
        let (data, code) = (
            (&raw const local) as usize,
            parse_sample as *const () as usize,
        );
        for size in [512, 65536] {
            let (mut found, mut last_end) = (Vec::new(), 0);
            for_each(&mut vec![0; size], |entry| {
                assert!(entry.start >= last_end && !entry.is_empty());
                last_end = entry.end;
                if (entry.start..entry.end).contains(&data) {
                    found.push((entry.prot, entry.kind() == Kind::File));
                }
                if (entry.start..entry.end).contains(&code) {
                    found.push((entry.prot, entry.kind() == Kind::File));
                }
                ControlFlow::Continue(())
            })
            .unwrap();
            let (rw, rx) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::PROT_READ | libc::PROT_EXEC,
            );
            found.sort_unstable();
            assert_eq!(found, [(rw, false), (rx, true)]);
        }
    }

    #[test]
    fn a_visitor_can_break_off() {
        let mut count = 0;
        for_each(&mut [0; 8192], |_| {
            count += 1;
            ControlFlow::Break(())
        })
        .unwrap();
        assert_eq!(count, 1);
    }
}
