use std::ffi::CString;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::*;

/// Files that nobody executes.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn with_mode(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = self.at(name);
        std::fs::write(&path, content).expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("its mode");
        path
    }

    fn executable(&self, name: &str, content: &[u8]) -> PathBuf {
        self.with_mode(name, content, 0o755)
    }
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero")
}

fn why(path: &Path) -> Option<&'static str> {
    unmanaged(libc::AT_FDCWD, c(path).as_ptr(), 0)
}

/// A 64-bit program for x86-64, with program headers of these types right behind its header.
fn program(headers: &[u32]) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES + headers.len() * PROGRAM_HEADER_BYTES];
    out[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', CLASS_64]);
    out[18..20].copy_from_slice(&MACHINE_X86_64.to_le_bytes());
    out[32..40].copy_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
    out[56..58].copy_from_slice(&(headers.len() as u16).to_le_bytes());
    for (index, kind) in headers.iter().enumerate() {
        let at = HEADER_BYTES + index * PROGRAM_HEADER_BYTES;
        out[at..at + 4].copy_from_slice(&kind.to_le_bytes());
    }
    out
}

const PT_LOAD: u32 = 1;
const STATIC: &[u32] = &[PT_LOAD, PT_LOAD];
const DYNAMIC: &[u32] = &[PT_LOAD, PT_LOAD, PT_INTERP];
const IS_STATIC: Option<&str> = Some("statically linked");
const IS_FOREIGN: Option<&str> = Some("not an x86-64 program");

#[test]
fn a_program_with_a_loader_is_followed_and_one_without_is_named() {
    let files = Files::new();
    assert_eq!(why(&files.executable("a", &program(DYNAMIC))), None);
    assert_eq!(why(&files.executable("b", &program(STATIC))), IS_STATIC);
    assert_eq!(why(&files.executable("c", &program(&[]))), IS_STATIC);
    // This test itself, and the shell.
    assert_eq!(why(&std::env::current_exe().expect("a path")), None);
    assert_eq!(why(Path::new("/bin/sh")), None);
}

#[test]
fn the_loader_itself_is_followed_though_it_has_none() {
    let files = Files::new();
    for name in ["ld-linux-x86-64.so.2", "ld.so"] {
        assert_eq!(
            why(&files.executable(name, &program(STATIC))),
            None,
            "{name}"
        );
    }
    assert_eq!(why(&files.executable("gold", &program(STATIC))), IS_STATIC);
}

#[test]
fn programs_for_other_machines_are_named() {
    let files = Files::new();
    let (mut narrow, mut arm) = (program(DYNAMIC), program(DYNAMIC));
    narrow[4] = 1;
    arm[18] = 183;
    assert_eq!(why(&files.executable("narrow", &narrow)), IS_FOREIGN);
    assert_eq!(why(&files.executable("arm", &arm)), IS_FOREIGN);
    let cut = &program(DYNAMIC)[..HEADER_BYTES - 1];
    assert_eq!(why(&files.executable("cut", cut)), IS_FOREIGN);
}

/// The kernel refuses such a file: a line that says it runs without a limit would be false.
#[test]
fn of_a_table_that_ends_early_nothing_is_said() {
    let files = Files::new();
    let whole = program(STATIC);
    for len in [
        HEADER_BYTES,
        HEADER_BYTES + 3,
        HEADER_BYTES + PROGRAM_HEADER_BYTES + 3,
    ] {
        assert_eq!(
            why(&files.executable("cut", &whole[..len])),
            None,
            "{len} bytes"
        );
    }
    let mut far = program(STATIC);
    far[32..40].copy_from_slice(&(u64::MAX - 7).to_le_bytes());
    assert_eq!(why(&files.executable("far", &far)), None);
    let mut many = program(STATIC);
    many[56..58].copy_from_slice(&u16::MAX.to_le_bytes());
    assert_eq!(why(&files.executable("many", &many)), None);
}

#[test]
fn what_cannot_be_executed_is_not_looked_at() {
    let files = Files::new();
    assert_eq!(why(&files.at("missing")), None);
    assert_eq!(
        why(&files.with_mode("plain", &program(STATIC), 0o644)),
        None
    );
    assert_eq!(why(files.0.path()), None, "a directory");
    for content in [
        &b""[..],
        b"\x7f",
        b"\x7fELF",
        b"#",
        b"#!",
        b"#!\n",
        b"# !/bin/sh\n",
        b"echo",
    ] {
        let path = files.executable("short", content);
        let expected = if content == b"\x7fELF" {
            IS_FOREIGN
        } else {
            None
        };
        assert_eq!(why(&path), expected, "{content:?}");
    }
}

/// Opening it would wait for a writer, for ever.
#[test]
fn nobody_waits_for_a_fifo() {
    let files = Files::new();
    let fifo = c(&files.at("fifo"));
    // SAFETY: a path.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o777) }, 0);
    assert_eq!(unmanaged(libc::AT_FDCWD, fifo.as_ptr(), 0), None);
}

/// The line's first word, as far as it fits.
fn word(line: &[u8]) -> Option<String> {
    let name = interpreter(line)?;
    let name = CStr::from_bytes_until_nul(&name).expect("ends with a zero");
    Some(name.to_str().expect("text").to_owned())
}

#[test]
fn the_interpreter_is_the_first_word_of_the_line() {
    let cases: [(&[u8], Option<&str>); 9] = [
        (b"/bin/sh\nexit", Some("/bin/sh")),
        (b" \t/bin/sh -eu\n", Some("/bin/sh")),
        (b"/usr/bin/env python3\n", Some("/usr/bin/env")),
        (b"/bin/sh\t-e", Some("/bin/sh")),
        (b"/bin/sh", Some("/bin/sh")),
        (b"/bin/sh\0rest\n", Some("/bin/sh")),
        (b"", None),
        (b"   \t\n/bin/sh\n", None),
        (b"\0", None),
    ];
    for (line, expected) in cases {
        assert_eq!(word(line).as_deref(), expected, "{line:?}");
    }
}

/// A name as long as what is read leaves no room for its zero.
#[test]
fn a_name_without_an_end_has_one_nevertheless() {
    let room = HEAD_BYTES - b"#!".len();
    let name = vec![b'x'; room];
    assert_eq!(word(&name).map(|name| name.len()), Some(room));
    assert_eq!(interpreter(&[b'x'; HEAD_BYTES + 1]), None);
    let files = Files::new();
    let long = [&b"#!/"[..], &[b'x'; 4 * HEAD_BYTES]].concat();
    assert_eq!(why(&files.executable("long", &long)), None);
}

#[test]
fn a_script_is_what_interprets_it() {
    let files = Files::new();
    let script = |name: &str, interpreter: &Path| {
        files.executable(
            name,
            format!("#! {} -x\n", interpreter.display()).as_bytes(),
        )
    };
    let busybox = files.executable("busybox", &program(STATIC));
    let shell = files.executable("shell", &program(DYNAMIC));
    assert_eq!(why(&script("one", &busybox)), IS_STATIC);
    assert_eq!(why(&script("two", &shell)), None);
    assert_eq!(why(&script("three", &files.at("missing"))), None);
}

#[test]
fn as_many_interpreters_are_followed_as_the_kernel_allows() {
    let files = Files::new();
    let mut path = files.executable("program", &program(STATIC));
    for depth in 1..=6 {
        let line = format!("#!{}\n", path.display());
        path = files.executable(&depth.to_string(), line.as_bytes());
        // The kernel refuses more with ELOOP.
        let expected = if depth < FILES_MAX { IS_STATIC } else { None };
        assert_eq!(why(&path), expected, "{depth} scripts");
    }
}

#[test]
fn a_script_that_interprets_itself_comes_to_an_end() {
    let files = Files::new();
    let own = files.at("own");
    files.executable("own", format!("#!{}\n", own.display()).as_bytes());
    assert_eq!(why(&own), None);
}

#[test]
fn a_program_is_found_by_directory_and_by_descriptor() {
    let files = Files::new();
    let path = files.executable("static", &program(STATIC));
    let directory = std::fs::File::open(files.0.path()).expect("opened");
    let dir = directory.as_raw_fd();
    assert_eq!(unmanaged(dir, c"static".as_ptr(), 0), IS_STATIC);
    assert_eq!(unmanaged(dir, c"other".as_ptr(), 0), None);
    let file = std::fs::File::open(path).expect("opened");
    let (file, empty) = (file.as_raw_fd(), libc::AT_EMPTY_PATH);
    assert_eq!(unmanaged(file, c"".as_ptr(), empty), IS_STATIC);
    // Without the flag there is no such file.
    assert_eq!(unmanaged(file, c"".as_ptr(), 0), None);
    // fexecve reads from the beginning, wherever the descriptor is, and leaves it there.
    // SAFETY: a descriptor of the test's own.
    unsafe { libc::lseek(file, 5, libc::SEEK_SET) };
    assert_eq!(unmanaged(file, c"".as_ptr(), empty), IS_STATIC);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::lseek(file, 0, libc::SEEK_CUR) }, 5);
}

/// What the kernel says of a file with `mode` that belongs to the caller, or to somebody else.
fn identity(mode: u32, others: bool) -> libc::stat {
    // SAFETY: an all-zero `stat` is a valid value.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: take nothing.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    stat.st_mode = libc::S_IFREG | mode;
    stat.st_uid = user + u32::from(others);
    stat.st_gid = group + u32::from(others);
    stat
}

#[test]
fn only_a_change_of_identity_keeps_the_loader_from_preloading() {
    let of_another = |mode| privileged(&identity(mode, true));
    assert_eq!(of_another(0o4755), Some("set-user-id"));
    assert_eq!(of_another(0o2755), Some("set-group-id"));
    assert_eq!(of_another(0o6755), Some("set-user-id"));
    assert_eq!(of_another(0o755), None);
    // Without permission for the group, the bit is one for mandatory locks.
    assert_eq!(of_another(0o2745), None);
    for mode in [0o4755, 0o2755, 0o6755] {
        assert_eq!(
            privileged(&identity(mode, false)),
            None,
            "{mode:o}: one's own"
        );
    }
}

#[test]
fn what_may_be_executed_is_what_the_kernel_would_execute() {
    let files = Files::new();
    let may = |path: &Path| may_execute(libc::AT_FDCWD, c(path).as_ptr(), 0);
    assert!(may(&files.executable("yes", b"")));
    assert!(!may(&files.with_mode("no", b"", 0o644)));
    assert!(!may(&files.at("missing")));
    // A search along PATH tries `file/name` too.
    assert!(!may(&files.at("yes/name")));
    let link = files.at("link");
    std::os::unix::fs::symlink(files.at("yes"), &link).expect("a link");
    assert!(may(&link));
    // A bad address is the execution's to report.
    assert!(!may_execute(libc::AT_FDCWD, core::ptr::dangling(), 0));
}
