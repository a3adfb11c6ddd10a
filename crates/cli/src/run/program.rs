//! The program to run: where it is, and whether its memory can be managed.

use std::ffi::{CString, OsStr};
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use outpage_sys::launch;

use super::sanitizer::{self, Segment};
use crate::error::{CliError, code};

/// A program that can be executed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// Why its memory cannot be managed, if so.
    pub unmanaged: Option<Unmanaged>,
}

/// Why a preloaded library does not reach a program's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unmanaged {
    /// It has no dynamic loader.
    Static,
    /// It is for another processor, or for 32 bits.
    OtherArchitecture,
    /// It runs with another identity, and the loader ignores `LD_PRELOAD`.
    Privileged(&'static str),
    /// Its dynamic loader is not glibc's; preloading our library would stop it.
    OtherLibc(PathBuf),
    /// The Go runtime asks the kernel for memory without any library.
    Go,
    /// So does this sanitizer's.
    Sanitizer(&'static str),
    /// Its file may be executed and not read, so nobody but root may look at its memory: proc(5), `PR_SET_DUMPABLE`.
    Unreadable,
}

impl Unmanaged {
    /// What it is, to follow "PROGRAM ".
    #[must_use]
    pub fn phrase(&self) -> String {
        match self {
            Self::Static => "is statically linked".into(),
            Self::OtherArchitecture => "is not an x86-64 program".into(),
            Self::Privileged(how) => format!("is {how}"),
            Self::OtherLibc(loader) => {
                format!("is linked with another C library ({})", loader.display())
            }
            Self::Go => "is a Go program".into(),
            Self::Sanitizer(name) => format!("is built with {name}"),
            Self::Unreadable => "may be executed and not read".into(),
        }
    }

    /// Whether `LD_PRELOAD` may be set: its children may be ordinary programs.
    #[must_use]
    pub const fn tolerates_preload(&self) -> bool {
        !matches!(self, Self::OtherLibc(_))
    }
}

/// Interpreters that a script's interpreter may have in turn: the kernel allows four.
const SCRIPTS_MAX: u32 = 4;

/// Finds the program that the shell would, and looks at it (a script: at its interpreter).
///
/// # Errors
/// [`code::NOT_FOUND`]; [`code::CANNOT_EXECUTE`].
pub fn find(name: &OsStr) -> Result<Program, CliError> {
    let path = locate(name)?;
    let mut file = path.clone();
    for _ in 0..SCRIPTS_MAX {
        match look(&file)? {
            Look::Binary(unmanaged) => return Ok(Program { path, unmanaged }),
            Look::Script(interpreter) => file = interpreter,
        }
    }
    Err(cannot_execute(
        &path,
        "its interpreters never end in a program",
    ))
}

fn cannot_execute(path: &Path, why: &str) -> CliError {
    CliError::new(
        code::CANNOT_EXECUTE,
        format!("{} cannot be executed: {why}", path.display()),
    )
}

fn locate(name: &OsStr) -> Result<PathBuf, CliError> {
    let not_found = |what: &str| {
        CliError::new(
            code::NOT_FOUND,
            format!("{}: {what}", Path::new(name).display()),
        )
    };
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match fs::metadata(&path) {
            Ok(metadata) => executable(&path, &metadata)
                .map_err(|why| cannot_execute(&path, why))
                .map(|()| path),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                Err(cannot_execute(&path, "permission denied"))
            }
            Err(_) => Err(not_found("no such program")),
        };
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let mut refused = None;
    for directory in std::env::split_paths(&search) {
        let path = directory.join(name);
        match fs::metadata(&path).map(|metadata| executable(&path, &metadata)) {
            Ok(Ok(())) if !name.is_empty() => return Ok(path),
            Ok(Err(why)) if refused.is_none() && path.is_file() => {
                refused = Some(cannot_execute(&path, why))
            }
            _ => {}
        }
    }
    Err(refused.unwrap_or_else(|| not_found("no such program in PATH")))
}

fn executable(path: &Path, metadata: &Metadata) -> Result<(), &'static str> {
    let allowed = || c_text(path).is_none_or(|path| launch::may_execute(&path));
    if metadata.is_dir() {
        Err("it is a directory")
    } else if metadata.mode() & 0o111 == 0 {
        Err("it has no execute permission")
    } else if !allowed() {
        Err("permission denied")
    } else {
        Ok(())
    }
}

fn c_text(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

enum Look {
    Binary(Option<Unmanaged>),
    Script(PathBuf),
}

/// Bytes at the start of a file that decide: the kernel reads as many for `#!`.
const HEAD_BYTES: usize = 256;

fn look(path: &Path) -> Result<Look, CliError> {
    let fail = |error: std::io::Error| cannot_execute(path, &error.to_string());
    let mut file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Ok(Look::Binary(Some(Unmanaged::Unreadable)));
        }
        file => file.map_err(fail)?,
    };
    let mut head = Vec::new();
    file.by_ref()
        .take(HEAD_BYTES as u64)
        .read_to_end(&mut head)
        .map_err(fail)?;
    if let Some(interpreter) = script_interpreter(&head) {
        return Ok(Look::Script(interpreter));
    }
    if !head.starts_with(b"\x7fELF") {
        return Err(cannot_execute(
            path,
            "it is neither an ELF program nor a script with #!",
        ));
    }
    let metadata = file.metadata().map_err(fail)?;
    let unmanaged = privileged(path, &metadata).map(Unmanaged::Privileged);
    Ok(Look::Binary(unmanaged.or_else(|| elf(path, &file, &head))))
}

/// The interpreter of a script's first line.
fn script_interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head
        .strip_prefix(b"#!")?
        .split(|&byte| byte == b'\n')
        .next()?;
    let word = line
        .trim_ascii_start()
        .split(|byte| byte.is_ascii_whitespace())
        .next()?;
    (!word.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(word)))
}

/// How the file changes the identity of whoever executes it.
fn privileged(path: &Path, metadata: &Metadata) -> Option<&'static str> {
    // /proc/self belongs to the effective user and group.
    let me = fs::metadata("/proc/self").ok()?;
    let capable = || c_text(path).is_some_and(|path| launch::has_file_capabilities(&path));
    if metadata.mode() & 0o4000 != 0 && metadata.uid() != me.uid() {
        Some("set-user-id")
    } else if metadata.mode() & 0o2010 == 0o2010 && metadata.gid() != me.gid() {
        Some("set-group-id")
    } else if me.uid() != 0 && capable() {
        Some("privileged by file capabilities")
    } else {
        None
    }
}

// From <elf.h>.
const CLASS_64: u8 = 2;
const MACHINE_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
/// glibc's loader for x86-64.
const LOADER: &str = "ld-linux-x86-64.so.2";
/// What the Go linker calls its notes.
const GO_NOTE: &[u8] = b"Go\0\0";

fn elf(path: &Path, file: &File, head: &[u8]) -> Option<Unmanaged> {
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    if head.len() < HEADER_BYTES || head[4] != CLASS_64 || half(18) != MACHINE_X86_64 {
        return Some(Unmanaged::OtherArchitecture);
    }
    let table = u64_at(head, 32);
    let mut loader = None;
    let mut go = false;
    let (mut dynamic, mut loads) = (Vec::new(), Vec::new());
    for index in 0..u64::from(half(56)) {
        let mut header = [0; PROGRAM_HEADER_BYTES];
        let at = table.saturating_add(index * PROGRAM_HEADER_BYTES as u64);
        if file.read_exact_at(&mut header, at).is_err() {
            break;
        }
        let kind = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        match kind {
            PT_INTERP => loader = Some(segment(file, &header)),
            PT_DYNAMIC => dynamic = segment(file, &header),
            PT_LOAD => loads.push(Segment {
                offset: u64_at(&header, 8),
                address: u64_at(&header, 16),
                bytes: u64_at(&header, 32),
            }),
            PT_NOTE => go |= has_go_note(&segment(file, &header)),
            _ => {}
        }
    }
    let Some(loader) = loader else {
        // The loader itself has none, and preloads when it is executed.
        return (!is_loader(path)).then_some(Unmanaged::Static);
    };
    let path = loader.split(|&byte| byte == 0).next().unwrap_or(&[]);
    let path = PathBuf::from(OsStr::from_bytes(path));
    if path.file_name() != Some(OsStr::new(LOADER)) {
        return Some(Unmanaged::OtherLibc(path));
    }
    let sanitizer = || sanitizer::of(file, &dynamic, &loads).map(Unmanaged::Sanitizer);
    go.then_some(Unmanaged::Go).or_else(sanitizer)
}

/// Whether one of the notes is the Go linker's. A linker of C puts all notes of a program into one segment. Each begins with the lengths of its name and content
/// and its type; name and content are filled up to four bytes (elf(5), `Elf64_Nhdr`).
fn has_go_note(mut notes: &[u8]) -> bool {
    while let Some((head, rest)) = notes.split_first_chunk::<12>() {
        if rest.starts_with(GO_NOTE) {
            return true;
        }
        let length = |at: usize| {
            let word = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            (u32::from_le_bytes(word) as usize).next_multiple_of(4)
        };
        let Some(after) = rest.get(length(0).saturating_add(length(4))..) else {
            break;
        };
        notes = after;
    }
    false
}

/// Whether `path` is glibc's loader, or a link to it as `ld.so` is.
fn is_loader(path: &Path) -> bool {
    let named = |path: &Path| path.file_name() == Some(OsStr::new(LOADER));
    named(path) || fs::canonicalize(path).is_ok_and(|path| named(&path))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8]
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// The first bytes of a segment; empty when it cannot be read.
fn segment(file: &File, header: &[u8]) -> Vec<u8> {
    const SEGMENT_BYTES_MAX: u64 = 4096;
    let len = u64_at(header, 32).min(SEGMENT_BYTES_MAX);
    let mut bytes = vec![0; len as usize];
    match file.read_exact_at(&mut bytes, u64_at(header, 8)) {
        Ok(()) => bytes,
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn write(directory: &Path, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, content).expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
        path
    }

    /// A 64-bit x86-64 program with these segments.
    fn program(segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut file = vec![0; HEADER_BYTES + segments.len() * PROGRAM_HEADER_BYTES];
        file[..5].copy_from_slice(b"\x7fELF\x02");
        file[18] = MACHINE_X86_64 as u8;
        file[32] = HEADER_BYTES as u8;
        file[56] = segments.len() as u8;
        for (index, (kind, content)) in segments.iter().enumerate() {
            let at = HEADER_BYTES + index * PROGRAM_HEADER_BYTES;
            let (offset, len) = (file.len() as u64, content.len() as u64);
            file[at..at + 4].copy_from_slice(&kind.to_le_bytes());
            file[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
            file[at + 32..at + 40].copy_from_slice(&len.to_le_bytes());
            file.extend_from_slice(content);
        }
        file
    }

    fn unmanaged(content: &[u8]) -> Option<Unmanaged> {
        let directory = tempfile::tempdir().expect("directory");
        let path = write(directory.path(), "program", content, 0o755);
        find(path.as_os_str()).expect("a program").unmanaged
    }

    #[test]
    fn an_ordinary_program_is_managed() {
        assert_eq!(find(OsStr::new("sort")).expect("sort").unmanaged, None);
        assert_eq!(
            unmanaged(&program(&[(PT_INTERP, b"/lib64/ld-linux-x86-64.so.2\0")])),
            None
        );
    }

    #[test]
    fn the_loader_is_managed_under_any_name() {
        let directory = tempfile::tempdir().expect("directory");
        let path = write(directory.path(), LOADER, &program(&[]), 0o755);
        let link = directory.path().join("ld.so");
        std::os::unix::fs::symlink(&path, &link).expect("link");
        for path in [&path, &link] {
            assert_eq!(find(path.as_os_str()).expect("loader").unmanaged, None);
        }
    }

    #[test]
    fn programs_that_cannot_be_managed_are_told_apart() {
        assert_eq!(unmanaged(&program(&[])), Some(Unmanaged::Static));
        let musl = unmanaged(&program(&[(PT_INTERP, b"/lib/ld-musl-x86_64.so.1\0")]));
        assert_eq!(
            musl,
            Some(Unmanaged::OtherLibc("/lib/ld-musl-x86_64.so.1".into()))
        );
        let note = b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd";
        let with_notes = |notes: &[u8]| {
            let loader = b"/lib64/ld-linux-x86-64.so.2\0";
            unmanaged(&program(&[(PT_INTERP, loader), (PT_NOTE, notes)]))
        };
        assert_eq!(with_notes(note), Some(Unmanaged::Go));
        // A name and a content that are filled up to four bytes, and two with lengths that lie.
        let other = b"\x05\0\0\0\x02\0\0\0\x01\0\0\0Other\0\0\0ab\0\0";
        let lies = b"\xff\xff\xff\xff\xff\xff\xff\xff\x01\0\0\0GNU\0";
        assert_eq!(
            with_notes(&[&other[..], note].concat()),
            Some(Unmanaged::Go)
        );
        for none in [
            &other[..],
            lies,
            &note[..11],
            &[other, &note[..14]].concat(),
        ] {
            assert_eq!(with_notes(none), None, "{none:?}");
        }
        let mut arm = program(&[]);
        arm[18] = 183;
        assert_eq!(unmanaged(&arm), Some(Unmanaged::OtherArchitecture));
        let mut small = program(&[]);
        small[4] = 1;
        assert_eq!(unmanaged(&small), Some(Unmanaged::OtherArchitecture));
        assert_eq!(unmanaged(b"\x7fELF"), Some(Unmanaged::OtherArchitecture));
    }

    #[test]
    fn scripts_are_judged_by_their_interpreter() {
        let directory = tempfile::tempdir().expect("directory");
        let fixed = write(directory.path(), "fixed", &program(&[]), 0o755);
        let line = format!("#! {} -x\nrest", fixed.display());
        let inner = write(directory.path(), "inner", line.as_bytes(), 0o755);
        let outer = write(
            directory.path(),
            "outer",
            format!("#!{}\n", inner.display()).as_bytes(),
            0o755,
        );
        let found = find(outer.as_os_str()).expect("script");
        assert_eq!(
            (found.path, found.unmanaged),
            (outer, Some(Unmanaged::Static))
        );
    }

    #[test]
    fn what_cannot_run_says_why() {
        let directory = tempfile::tempdir().expect("directory");
        let code_of = |path: &Path| find(path.as_os_str()).expect_err("no program").code;
        assert_eq!(
            code_of(Path::new("no-such-program-anywhere")),
            code::NOT_FOUND
        );
        assert_eq!(code_of(Path::new("")), code::NOT_FOUND);
        assert_eq!(code_of(&directory.path().join("absent")), code::NOT_FOUND);
        assert_eq!(code_of(directory.path()), code::CANNOT_EXECUTE);
        assert_eq!(
            code_of(&write(directory.path(), "data", b"text", 0o644)),
            code::CANNOT_EXECUTE
        );
        assert_eq!(
            code_of(&write(directory.path(), "text", b"text", 0o755)),
            code::CANNOT_EXECUTE
        );
        let path = directory.path().join("loop");
        let text = format!("#!{}\n", path.display());
        assert_eq!(
            code_of(&write(directory.path(), "loop", text.as_bytes(), 0o755)),
            code::CANNOT_EXECUTE
        );
    }
}
