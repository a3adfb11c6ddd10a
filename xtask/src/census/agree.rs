//! What the shim patches, and what the census says that it patches.

use std::collections::BTreeSet;

use super::table::Census;

/// Hooks that one of the two does not know: `hooks` and `by_number` are the texts of the shim's sources.
pub fn differences(census: &Census, hooks: &str, by_number: &str) -> Vec<String> {
    let rows_hooks = census.rows().flat_map(|row| &row.hooks);
    let rows_numbers = census.rows().flat_map(|row| &row.numbers);
    let mut findings = compared(
        "libc's function",
        &names_patched(hooks),
        &rows_hooks.map(String::as_str).collect(),
    );
    findings.extend(compared(
        "the number of",
        &numbers_routed(by_number),
        &rows_numbers.map(String::as_str).collect(),
    ));
    findings
}

fn compared(what: &str, code: &BTreeSet<&str>, census: &BTreeSet<&str>) -> Vec<String> {
    let unnamed = code
        .difference(census)
        .map(|name| format!("{what} {name} is hooked, and no row of the census says so"));
    let unhooked = census
        .difference(code)
        .map(|name| format!("{what} {name} is not hooked, though the census says so"));
    unnamed.chain(unhooked).collect()
}

/// How calls arrive by their numbers, whatever they are: no row's own.
const BY_NUMBER: &str = "syscall";

/// The C strings that begin the entries of the table of hooks.
fn names_patched(hooks: &str) -> BTreeSet<&str> {
    let entries = hooks.split("entry!(").skip(1);
    entries
        .filter_map(|entry| entry.trim_start().strip_prefix("c\"")?.split('"').next())
        .filter(|name| *name != BY_NUMBER)
        .collect()
}

/// The system calls that the hook of `syscall` names.
fn numbers_routed(by_number: &str) -> BTreeSet<&str> {
    let names = by_number.split("libc::SYS_").skip(1);
    names
        .map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            &rest[..end.unwrap_or(rest.len())]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_found_in_the_code() {
        let hooks =
            "macro entry!($name) [entry!(c\"mmap\", mmap, true), entry!(\n   c\"vfork\", x)] c\"\"";
        assert_eq!(names_patched(hooks), BTreeSet::from(["mmap", "vfork"]));
        let numbers = "libc::SYS_mmap => a(libc::SYS_brk),";
        assert_eq!(numbers_routed(numbers), BTreeSet::from(["mmap", "brk"]));
    }

    #[test]
    fn both_sides_are_compared() {
        let found = compared(
            "x",
            &BTreeSet::from(["a", "b"]),
            &BTreeSet::from(["b", "c"]),
        );
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("x a") && found[1].contains("x c"));
    }
}
