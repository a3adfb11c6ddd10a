//! Where the preloaded library is.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::error::{CliError, code};

/// File name of the preloaded library.
pub const NAME: &str = "liboutpage_preload.so";
/// Overrides the search.
const VARIABLE: &str = "OUTPAGE_PRELOAD";

/// What the library has in it, and no other: the name of the variable that tells it its limit.
const MARK: &[u8] = b"OUTPAGE_MEMORY";

/// Finds the library: `OUTPAGE_PRELOAD`, else beside this program, else in `../lib/outpage/`.
///
/// # Errors
/// [`code::UNAVAILABLE`] names the places, or says why the dynamic loader would leave it out: the program would run without a limit.
pub fn find() -> Result<PathBuf, CliError> {
    let found = match std::env::var_os(VARIABLE).map(PathBuf::from) {
        Some(path) => named(path)?,
        None => beside_this_program()?,
    };
    let shown = found.display();
    // Between names the loader looks for blanks and colons; `$ORIGIN`, `$LIB` and `$PLATFORM` it replaces (ld.so(8)).
    match found.as_os_str().as_bytes() {
        path if path.iter().any(|byte| b" :".contains(byte)) => Err(lacking(format!(
            "the dynamic loader takes no path with a blank or colon: move {shown} elsewhere"
        ))),
        path if path.contains(&b'$') => Err(lacking(format!(
            "the dynamic loader replaces what stands behind a $ in a path: move {shown} elsewhere"
        ))),
        _ => Ok(found),
    }
}

fn lacking(text: String) -> CliError {
    CliError::new(code::UNAVAILABLE, text)
}

/// The library that [`VARIABLE`] names.
fn named(path: PathBuf) -> Result<PathBuf, CliError> {
    let content = path.is_file().then(|| std::fs::read(&path));
    let is_ours = |bytes: &[u8]| bytes.windows(MARK.len()).any(|part| part == MARK);
    let what = match content.transpose() {
        Ok(Some(bytes)) if is_ours(&bytes) => return Ok(path),
        Ok(Some(_)) => "another library or none".into(),
        Ok(None) => "no file".into(),
        Err(error) => format!("not to be read: {error}"),
    };
    let shown = path.display();
    Err(lacking(format!(
        "{VARIABLE} names {shown}, which is {what}"
    )))
}

fn beside_this_program() -> Result<PathBuf, CliError> {
    let program =
        std::env::current_exe().map_err(|e| CliError::os("find this program's own file", e))?;
    let directory = program.parent().unwrap_or(&program);
    let places = [
        directory.join(NAME),
        directory.join("../lib/outpage").join(NAME),
    ];
    let found = places.iter().find(|path| path.is_file()).cloned();
    found.ok_or_else(|| {
        lacking(format!(
            "{NAME} is missing: put it beside {}, or set {VARIABLE} to its path",
            program.display()
        ))
    })
}

/// `LD_PRELOAD` with the library in front of what it holds already.
#[must_use]
pub fn prepended(library: &OsStr, present: Option<OsString>) -> OsString {
    let mut list = library.to_owned();
    if let Some(present) = present.filter(|p| !p.is_empty()) {
        let others = present.as_bytes().split(|byte| b" :".contains(byte));
        for other in others.filter(|o| !o.is_empty() && *o != library.as_bytes()) {
            list.push(":");
            list.push(OsStr::from_bytes(other));
        }
    }
    list
}

/// What AddressSanitizer's runtime is told in `ASAN_OPTIONS`, or it ends a program where a library stands
/// before it. The preloaded library leaves such programs alone.
const ANY_ORDER: &str = "verify_asan_link_order=0";

/// `ASAN_OPTIONS` that let a library be preloaded, with what they hold already.
#[must_use]
pub fn asan_options(present: Option<OsString>) -> OsString {
    let mut options = present.unwrap_or_default();
    if !options.is_empty() {
        options.push(":");
    }
    options.push(ANY_ORDER);
    options
}

/// What every Java virtual machine takes options from (`java.html`, JDK 5 and later).
pub const JAVA_OPTIONS: &str = "JAVA_TOOL_OPTIONS";

/// `JAVA_TOOL_OPTIONS` that load the library as an agent, behind what they hold already. In quotes, for words end at blanks.
#[must_use]
pub fn java_options(library: &OsStr, present: Option<OsString>) -> OsString {
    let mut options = present.unwrap_or_default();
    if !options.is_empty() {
        options.push(" ");
    }
    for part in [OsStr::new("\"-agentpath:"), library, OsStr::new("\"")] {
        options.push(part);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_library_is_not_taken() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("some.so");
        let refused = |why: &str| {
            let said = named(path.clone()).expect_err("refused").to_string();
            assert!(
                said.contains("OUTPAGE_PRELOAD names") && said.contains(why),
                "{said}"
            );
        };
        refused("no file");
        std::fs::write(&path, b"another").expect("write");
        refused("another library");
        std::fs::write(&path, [b"\x7fELF", MARK].concat()).expect("write");
        assert_eq!(named(path.clone()).expect("taken"), path);
    }

    #[test]
    fn the_agent_comes_behind_what_is_there() {
        let library = OsStr::new("/a b/shim.so");
        assert_eq!(java_options(library, None), "\"-agentpath:/a b/shim.so\"");
        assert_eq!(
            java_options(library, Some("-Xmx1g".into())),
            "-Xmx1g \"-agentpath:/a b/shim.so\""
        );
    }

    #[test]
    fn the_library_comes_first_and_once() {
        let library = OsStr::new("/l/shim.so");
        assert_eq!(prepended(library, None), "/l/shim.so");
        assert_eq!(prepended(library, Some("".into())), "/l/shim.so");
        assert_eq!(
            prepended(library, Some("/a.so /b.so".into())),
            "/l/shim.so:/a.so:/b.so"
        );
        assert_eq!(
            prepended(library, Some("/a.so:/l/shim.so".into())),
            "/l/shim.so:/a.so"
        );
    }
}
