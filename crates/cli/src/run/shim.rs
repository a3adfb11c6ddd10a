//! Where the preloaded library is.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::error::{CliError, code};

/// File name of the preloaded library.
pub const NAME: &str = "liboutpage_preload.so";
/// Overrides the search.
const VARIABLE: &str = "OUTPAGE_PRELOAD";

/// Finds the library: `OUTPAGE_PRELOAD`, else beside this program, else in `../lib/outpage/`.
///
/// # Errors
/// [`code::UNAVAILABLE`] names the places.
pub fn find() -> Result<PathBuf, CliError> {
    let lacking = |text: String| CliError::new(code::UNAVAILABLE, text);
    if let Some(path) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        let named = path.is_file().then_some(path.clone());
        return named.ok_or_else(|| {
            lacking(format!(
                "{VARIABLE} names {}, which is no file",
                path.display()
            ))
        });
    }
    let program =
        std::env::current_exe().map_err(|e| CliError::os("find this program's own file", e))?;
    let directory = program.parent().unwrap_or(&program);
    let places = [
        directory.join(NAME),
        directory.join("../lib/outpage").join(NAME),
    ];
    let found = places.iter().find(|path| path.is_file()).cloned();
    let found = found.ok_or_else(|| {
        lacking(format!(
            "{NAME} is missing: put it beside {}, or set {VARIABLE} to its path",
            program.display()
        ))
    })?;
    if found
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b" :".contains(byte))
    {
        let shown = found.display();
        return Err(lacking(format!(
            "the dynamic loader takes no path with a blank or colon: move {shown} elsewhere"
        )));
    }
    Ok(found)
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
