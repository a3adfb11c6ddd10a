//! The shim's beginning in a process, and the pager's.

use core::ffi::{CStr, c_char, c_int};
use core::fmt::Display;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use outpage_engine::call::Call;
use outpage_engine::config::{Config, ConfigError, Mechanism, SharedMemory};
use outpage_engine::session::{SessionError, SessionPaths};
use outpage_engine::{Engine, Setup, StartError};
use outpage_sys::instructions::AllInstructions;
use outpage_sys::raw::Errno;
use outpage_sys::{fd, process, say};

use crate::elf::Libc;
use crate::hooks::{self, by_descriptor};
use crate::mode::{self, Mode};
use crate::raw::SignalsBlocked;
use crate::{
    bind, budget, exec, files, fork, loaded, memory, patch, pins, sanitizer, share, threads, trace,
};

/// The settings; null until the constructor has read them.
static SETTINGS: AtomicPtr<(Config, SessionPaths)> = AtomicPtr::new(core::ptr::null_mut());

/// Whether the program may go on without a limit where it cannot be kept.
static ALLOW_UNMANAGED: AtomicBool = AtomicBool::new(false);

/// Called by the loader before the program's own constructors, and at its exit.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn(c_int, exec::Strings, exec::Strings) = init;
#[used]
#[unsafe(link_section = ".fini_array")]
static FINI: extern "C" fn() = finish;

extern "C" fn finish() {
    trace::finish();
    end_log();
}

/// Tells the pager that the process ends in order, where it keeps an event log. `_exit` and signals
/// leave no time for that.
fn end_log() {
    // SAFETY: null, or set by the constructor and never freed.
    let settings = unsafe { SETTINGS.load(Ordering::Acquire).as_ref() };
    if settings.is_some_and(|(config, _)| config.record.is_some())
        && let mode::Path::Managed(engine) = mode::enter()
    {
        engine.call(Call::Ending);
    }
}

extern "C" fn init(_argc: c_int, _argv: exec::Strings, envp: exec::Strings) {
    // SAFETY: takes a number.
    let set_user_id = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    // SAFETY: the loader passes the environment.
    if set_user_id || unsafe { variable(envp, b"OUTPAGE_MEMORY") }.is_none() {
        return;
    }
    say::note_standard_error();
    // SAFETY: as above.
    if let Err(reason) = unsafe { set_up(envp) } {
        mode::set(Mode::Disabled);
        say(format_args!("this process is not paged: {reason}"));
    }
}

/// The value of an environment variable.
///
/// # Safety
/// `envp` is an environment; the value is valid while it is.
unsafe fn variable<'a>(envp: exec::Strings, name: &[u8]) -> Option<&'a CStr> {
    // SAFETY: passed on from the caller.
    unsafe { exec::entries(envp) }.find_map(|entry| {
        // SAFETY: an entry of the environment.
        let text = unsafe { CStr::from_ptr(entry) };
        let value = text.to_bytes().strip_prefix(name)?.strip_prefix(b"=")?;
        let at = text.to_bytes().len() - value.len();
        CStr::from_bytes_with_nul(&text.to_bytes_with_nul()[at..]).ok()
    })
}

/// Why a process is not paged.
enum Reason {
    Config(ConfigError),
    Patch(patch::Refusal),
    NoBreak,
    Sanitizer(&'static str),
}

impl Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Patch(refusal) => refusal.fmt(f),
            Self::NoBreak => f.write_str("libc has no __curbrk"),
            Self::Sanitizer(name) => write!(f, "it is built with {name}"),
        }
    }
}

/// Everything that the constructor does in a process with a limit.
///
/// # Safety
/// `envp` is the environment; the program has not begun.
unsafe fn set_up(envp: exec::Strings) -> Result<(), Reason> {
    // SAFETY: passed on from the caller.
    let find = |name: &str| unsafe { variable(envp, name.as_bytes()) };
    let var = |name: &str| find(name).map(|v| OsString::from(OsStr::from_bytes(v.to_bytes())));
    let Some(config) = Config::from_env(var).map_err(Reason::Config)? else {
        return Ok(());
    };
    let Some(path) = own_path() else {
        return Ok(());
    };
    let list = find("LD_PRELOAD").map_or(&[][..], CStr::to_bytes);
    let mut preloaded = list.split(|&b| b == b':' || b == b' ');
    // Loaded by dlopen, the program runs already. Valgrind has said that it is not paged when it was executed, being static.
    if !preloaded.any(|part| part == path.to_bytes()) || is_in_valgrind(list) {
        return Ok(());
    }
    if let Some(name) = sanitizer::name() {
        return Err(Reason::Sanitizer(name));
    }
    if let Some(libc) = Libc::find() {
        // SAFETY: passed on from the caller, and nothing of this library has started a thread.
        unsafe { bind::to_libc(&libc) };
    }
    if !hooks::find_break() {
        return Err(Reason::NoBreak);
    }
    // SAFETY: passed on from the caller.
    unsafe { exec::remember(envp, path) };
    let threads = threads();
    let lends = config.shared == SharedMemory::Tree;
    loaded::remember();
    let mut hooks = Vec::from(hooks::entries());
    if lends {
        hooks.extend(by_descriptor::entries());
    }
    // SAFETY: the hooks are the functions of those names; the program has not begun.
    unsafe { patch::install(&hooks, threads) }.map_err(Reason::Patch)?;
    if threads == 1 {
        let _signals = SignalsBlocked::new();
        loaded::make_data_anonymous();
    }
    let paths = SessionPaths::from_env(var);
    ALLOW_UNMANAGED.store(config.allow_unmanaged, Ordering::Release);
    threads::set_up();
    let shared = config.shared == SharedMemory::On;
    pins::need(config.mechanism == Mechanism::WriteProtect || shared || lends);
    memory::SHARED.store(shared, Ordering::SeqCst);
    files::LENDS.store(lends, Ordering::SeqCst);
    if let Some(home) = paths.home.as_deref().filter(|_| lends) {
        files::set_up(home);
    }
    share::set_up(config.memory_bytes, &paths);
    SETTINGS.store(Box::into_raw(Box::new((config, paths))), Ordering::Release);
    budget::start();
    if let Some(file) = find("OUTPAGE_TRACE_HOOKS") {
        trace::start(file);
    }
    mode::set(Mode::Direct);
    Ok(())
}

/// Whether the program is carried out by valgrind, which knows neither `userfaultfd` nor clones with other flags than libc's. `list` is
/// `LD_PRELOAD`: valgrind puts `vgpreload_core-PLATFORM.so` into that of what it carries out (valgrind 3.19), and takes it out of what that executes.
fn is_in_valgrind(list: &[u8]) -> bool {
    const OWN: &[u8] = b"/vgpreload_core-";
    list.windows(OWN.len()).any(|part| part == OWN)
}

/// The path that the shim was loaded from, as `LD_PRELOAD` has it.
fn own_path() -> Option<&'static CStr> {
    // SAFETY: an all-zero Dl_info is a valid value.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: an address of this library, and a valid place for the answer.
    let found = unsafe { libc::dladdr((&raw const INIT).cast(), &mut info) };
    let name: *const c_char = info.dli_fname;
    if found == 0 || name.is_null() {
        return None;
    }
    // SAFETY: the loader's own copy of the name, kept while the library is loaded: for ever.
    Some(unsafe { CStr::from_ptr(name) })
}

/// Threads of this process; more than one where /proc does not tell.
///
/// proc(5): `num_threads` is the 20th field of stat, the 18th after the name's parenthesis.
fn threads() -> usize {
    let mut text = [0; 512];
    let len = fd::open(c"/proc/self/stat", libc::O_RDONLY)
        .and_then(|file| fd::read(file.number(), &mut text))
        .unwrap_or(0);
    threads_in(&text[..len]).unwrap_or(2)
}

/// The name of a process may be any bytes, spaces and parentheses too.
fn threads_in(stat: &[u8]) -> Option<usize> {
    let name_ends = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = stat[name_ends + 1..].split(|byte| byte.is_ascii_whitespace());
    let number = fields.by_ref().filter(|field| !field.is_empty()).nth(17)?;
    core::str::from_utf8(number).ok()?.parse().ok()
}

/// Called by a hook, outside of all its guards, when the program has outgrown its share.
pub fn start_pager() {
    let _signals = SignalsBlocked::new();
    let _all = AllInstructions::now();
    mode::start(|| {
        // SAFETY: set by the constructor before there was a hook, and never freed.
        let (config, paths) = unsafe { &*SETTINGS.load(Ordering::Acquire) };
        let setup = Setup {
            config: config.clone(),
            paths: paths.clone(),
            advised: memory::ADVISED.load(Ordering::SeqCst),
            alone: !fork::may_share(),
        };
        let started = match budget::refusal() {
            Some(error) => Err(StartError::Session(error)),
            None => loaded::without_later(|| Engine::start(setup)),
        };
        match started {
            Ok(engine) => {
                let shares = engine.manages_shared() || engine.lends_shared();
                pins::need(engine.write_protects() || shares);
                threads::tell_of_sharers(engine);
                Some(engine)
            }
            Err(error) => {
                go_on_without(&error);
                share::leave();
                None
            }
        }
    });
}

/// Says that this process gets no pager; returns if it may run without a limit.
///
/// A program that goes on alone would take what the limit keeps for others. But one that left its
/// session's reach, found it full, or hides itself can do nothing about it.
fn go_on_without(error: &StartError) {
    let refused = matches!(error, StartError::Os(_, Errno::EACCES | Errno::EPERM));
    if let StartError::Session(SessionError::Unreachable | SessionError::Full) = error {
        say(format_args!("{error}: this process runs without a limit"));
    } else if refused && !process::is_visible() {
        say(format_args!(
            "{error}: the process is not dumpable (PR_SET_DUMPABLE, or a program file that may not be read) and runs without a limit"
        ));
    } else if ALLOW_UNMANAGED.load(Ordering::Acquire) {
        say(format_args!("cannot page, runs without a limit: {error}"));
    } else {
        let (pid, error) = (process::pid().to_string(), error.to_string());
        let remedy =
            "; --allow-unmanaged (OUTPAGE_ALLOW_UNMANAGED=1) lets it go on without a limit";
        say::die(&[
            "outpage: ",
            &pid,
            ": cannot page, the program ends: ",
            &error,
            remedy,
        ])
    }
}

/// Says one line, with the process's number.
fn say(text: core::fmt::Arguments<'_>) {
    say::say(&["outpage: ", &format!("{}: {text}", process::pid())]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel cuts a name after 15 bytes, within a character too.
    #[test]
    fn threads_are_counted_whatever_the_name() {
        let rest = b" S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 5 0 99\n";
        for name in [
            b"sh".as_slice(),
            b"abcdefghijklmn\xc3",
            b"a ) b (9",
            b"\xff",
        ] {
            let stat = [b"17 (", name, b")", rest].concat();
            assert_eq!(threads_in(&stat), Some(5), "{name:?}");
        }
        assert_eq!(threads_in(b"17 (sh) S 1 2"), None);
        assert_eq!(threads_in(b""), None);
    }
}
