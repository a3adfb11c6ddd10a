//! What the installed headers of the kernel know and the census does not.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::table::Census;

/// Where Debian and others install the headers of x86-64.
const NUMBERS: &[&str] = &[
    "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "/usr/include/asm/unistd_64.h",
];

/// Files with flags, the machine's own headers in either place.
const FLAGS: &[&str] = &[
    "/usr/include/asm-generic/mman-common.h",
    "/usr/include/asm-generic/mman.h",
    "/usr/include/linux/mman.h",
    "/usr/include/x86_64-linux-gnu/asm/mman.h",
    "/usr/include/asm/mman.h",
    "/usr/include/linux/sched.h",
    "/usr/include/linux/shm.h",
    "/usr/include/linux/prctl.h",
    "/usr/include/x86_64-linux-gnu/asm/prctl.h",
    "/usr/include/asm/prctl.h",
    "/usr/include/linux/fcntl.h",
    "/usr/include/asm-generic/fcntl.h",
    "/usr/include/linux/userfaultfd.h",
    "/usr/include/linux/io_uring.h",
    "/usr/include/linux/close_range.h",
];

/// Families of which every flag has to be known. Of `MAP_SHARED_VALIDATE` and the like the headers are the source.
const PREFIXES: &[&str] = &[
    "MADV_",
    "MREMAP_",
    "CLONE_",
    "MAP_",
    "SHM_",
    "PR_",
    "PROT_",
    "MCL_",
    "MLOCK_",
    "ARCH_",
    "F_",
    "UFFDIO_",
    "UFFD_FEATURE_",
    "CLOSE_RANGE_",
    "IORING_OP_",
];

/// System calls and flags that the census lacks or has under another number; a line that says so where nothing is known.
pub fn missing(census: &Census) -> Vec<String> {
    let Some(numbers) = NUMBERS
        .iter()
        .find_map(|path| fs::read_to_string(path).ok())
    else {
        eprintln!(
            "SKIPPED: the kernel's headers are not installed: the census is compared with none"
        );
        return Vec::new();
    };
    let mut findings = calls_missing(census, &numbers);
    let texts = FLAGS.iter().filter(|path| Path::new(path).exists());
    let texts: Vec<String> = texts
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect();
    findings.extend(flags_missing(census, &texts));
    findings
}

fn calls_missing(census: &Census, header: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, number) in defines(header) {
        let Some(name) = name.strip_prefix("__NR_") else {
            continue;
        };
        let wanted = number.and_then(|number| number.parse::<u32>().ok());
        match census.calls().find(|(known, _)| *known == name) {
            None => findings.push(format!(
                "{name}: this system call of the installed headers is not in the census"
            )),
            Some((_, number)) if number != wanted => findings.push(format!(
                "{name}: its number is {wanted:?} in the installed headers, {number:?} in the census"
            )),
            Some(_) => {}
        }
    }
    findings
}

fn flags_missing(census: &Census, headers: &[String]) -> Vec<String> {
    let mut names = BTreeSet::new();
    for header in headers {
        names.extend(defines(header).map(|(name, _)| name));
        names.extend(enumerated(header));
    }
    let ours = |name: &&str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let known = |name: &&str| {
        census.flags().any(|flag| match flag.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => flag == *name,
        })
    };
    let unknown = names
        .iter()
        .copied()
        .filter(|name| ours(name) && !known(name));
    unknown
        .map(|name| format!("{name}: this flag of the installed headers is not in the census"))
        .collect()
}

/// Name and first word of the value of each constant.
fn defines(header: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    header.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start();
        let mut words = rest.strip_prefix("define")?.split_whitespace();
        let name = words.next()?;
        // Macros with arguments are none.
        (!name.contains('(')).then(|| (name, words.next()))
    })
}

/// Members of enumerations: a name at the beginning of a line, and a comma or a value behind it.
fn enumerated(header: &str) -> impl Iterator<Item = &str> {
    header.lines().filter_map(|line| {
        let name = line.strip_prefix('\t')?;
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        let follows = name[end..].trim_start();
        (end > 0 && follows.starts_with([',', '='])).then(|| &name[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_found() {
        let header = "#define __NR_a 7\n# define MADV_X\t2 /* x */\n#define F(x) 1\nenum {\n\tIORING_OP_NOP,\n\tIORING_OP_B = 3,\n\tint x;\n};\n";
        let defined: Vec<_> = defines(header).collect();
        assert_eq!(defined, [("__NR_a", Some("7")), ("MADV_X", Some("2"))]);
        let members: Vec<_> = enumerated(header).collect();
        assert_eq!(members, ["IORING_OP_NOP", "IORING_OP_B"]);
    }
}
