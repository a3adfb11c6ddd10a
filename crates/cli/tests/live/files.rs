//! Files of RAM without a name under `--shared tree`: paged where they are mapped, and right by their descriptors.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use super::Case;

/// Whatever a program does with such files, it finds what it finds without Outpage.
pub fn files_are_as_without(case: &Case) {
    let program = case.compiled("files");
    let arguments = [program.as_str(), "16", "all"];
    let alone = Command::new(&program)
        .args(&arguments[1..])
        .current_dir(case.directory)
        .output()
        .expect("the program");
    assert!(alone.status.success());
    let done = case.run(&["--memory", "10M", "--shared", "tree"], &arguments);
    let expected = String::from_utf8_lossy(&alone.stdout);
    assert_eq!(done.stdout, expected, "{}", done.stderr);
    done.paged_well();
}

/// Without `--shared tree` nobody does anything to such files.
pub fn files_are_left_alone(case: &Case) {
    let program = case.compiled("files");
    for what in ["bynumber", "reserve", "truncate", "punch", "lock", "mode"] {
        let arguments = ["16", what];
        let alone = Command::new(&program).args(arguments).output();
        let alone = alone.expect("the program");
        assert!(alone.status.success());
        for shared in ["off", "on"] {
            let options = ["--memory", "10M", "--shared", shared];
            let done = case.run(&options, &[&[program.as_str()][..], &arguments].concat());
            let expected = String::from_utf8_lossy(&alone.stdout);
            assert_eq!(done.stdout, expected, "{what} {shared}: {}", done.stderr);
        }
    }
}

/// What is done by mappings alone, and by reserving and giving back as a collector does, takes nothing out of the limit.
pub fn mapped_files_keep_to_the_limit(case: &Case) {
    let program = case.compiled("files");
    for what in [
        "views",
        "again",
        "outlive",
        "fixed",
        "move",
        "small",
        "collector",
    ] {
        let options = ["--memory", "10M", "--shared", "tree"];
        let done = case.run(&options, &[&program, "32", what]);
        let right = done.status.success() && !done.stdout.replace(" 0 wrong", "").contains("wrong");
        assert!(right, "{what}: {}{}", done.stdout, done.stderr);
        done.paged_well();
        let unpaged = done.count("peak_unpaged_shared_bytes");
        assert!(unpaged < 1 << 20, "{what}: {unpaged} bytes");
    }
}

/// What cannot be brought in is no zero for who reads it by a descriptor: the program ends.
pub fn a_lost_file_is_not_read(case: &Case) {
    let program = case.compiled("files");
    let faults = ["--tier", "none", "--faults", "seed=7,read=1000"];
    let options = [&["--memory", "10M", "--shared", "tree"][..], &faults].concat();
    let done = case.run(&options, &[&program, "32", "reads"]);
    let line = "a memfd that is paged cannot be brought in, the program ends: ";
    let said = done.stderr.lines().filter(|said| said.contains(line));
    assert_eq!(said.count(), 1, "{}{}", done.stdout, done.stderr);
    let ended = format!("a child ended with {}\n", libc::SIGKILL);
    assert!(done.stdout.ends_with(&ended), "{}", done.stdout);
    assert_eq!(done.status.signal(), None);
}
