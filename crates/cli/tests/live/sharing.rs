//! Shared anonymous memory: paged like private memory as long as one process has it, given back before another gets it, exact to the byte.

use std::os::unix::process::ExitStatusExt;

use super::{Case, Done};

/// `shared` with four times the limit.
fn shared(case: &Case, what: &str) -> Done {
    with_shared(case, "on", what)
}

fn with_shared(case: &Case, on_or_off: &str, what: &str) -> Done {
    let program = case.compiled("shared");
    let options = ["--memory", "8M", "--shared", on_or_off];
    case.run(&options, &[&program, "32", what])
}

fn right(done: &Done, what: &str) {
    assert!(
        done.status.success() && done.stdout.ends_with("ok\n"),
        "{what}: {}: {}{}",
        done.status,
        done.stdout,
        done.stderr
    );
}

/// Every frame of it is one of the limit.
pub fn shared_memory_is_paged(case: &Case) {
    for what in ["fill", "threads", "advice", "partly", "direct"] {
        let done = shared(case, what);
        right(&done, what);
        done.paged_well().within_limit();
        assert_eq!(done.count("unmanaged_shared_bytes"), 0, "{what}");
    }
}

/// Programs with private memory go on as they do without, but for a userfaultfd of their own on shared memory, which the pager's excludes.
pub fn torture_beside_shared(case: &Case) {
    let operations = super::ALONE.replace(",uffd", "");
    for operations in [operations.as_str(), super::RAW] {
        case.torture(&[], &["-s", "5", "-o", operations])
            .paged_well();
    }
}

/// What another process, or another mapping, is about to see is all there before.
pub fn shared_memory_goes_back(case: &Case) {
    for what in ["fork", "forkearly"] {
        let done = shared(case, what);
        right(&done, what);
        done.paged_well();
        let unpaged = done.count("peak_unpaged_shared_bytes");
        assert!(unpaged >= 28 << 20, "{what}: it is named: {unpaged}");
    }
    for what in ["alias", "remap", "cut"] {
        right(&shared(case, what), what);
    }
}

/// What no hook sees ends the process, or leaves memory as it is; it never shows a wrong byte.
pub fn unseen_calls_never_show_holes(case: &Case) {
    for (what, said) in [
        ("rawremove", "may have emptied it"),
        ("rawdontneed", "may have emptied it"),
        ("rawalias", "mapped it a second time"),
    ] {
        let done = shared(case, what);
        let ended = done.status.signal() == Some(libc::SIGKILL);
        assert!(
            ended && done.stderr.contains(said) && done.stderr.lines().count() == 1,
            "{what}: {}: {}{}",
            done.status,
            done.stdout,
            done.stderr
        );
    }
    right(&shared(case, "rawfork"), "rawfork");
}

/// Where it is not to be managed it stays with the kernel, and is named.
pub fn shared_memory_stays(case: &Case) {
    // What is counted is the most at one look, and looks are an eighth of the run apart.
    let done = with_shared(case, "off", "hold");
    right(&done, "hold");
    assert_eq!(
        done.count("peak_unpaged_shared_bytes") >> 20,
        32,
        "{}",
        done.stats
    );
}
