//! Programs that outgrow their limit, and programs into which the shim cannot follow.
//!
//! Without a C compiler or userfaultfd the tests are skipped, and say so.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use outpage_sys::uffd::{Features, Uffd, Wanted};

mod common;

use common::{Program, succeed};

/// The smallest limit there is.
const LITTLE: &str = "8M";

/// On a disk; the temporary directory may be in RAM.
const DISK: &str = env!("CARGO_TARGET_TMPDIR");

fn can_page() -> bool {
    let opened = Uffd::open(&Wanted {
        inherited: None,
        required: Features::PAGEFAULT_FLAG_WP,
        optional: Features::NONE,
    });
    if let Err(error) = &opened {
        eprintln!("SKIPPED: {error}");
    }
    opened.is_ok()
}

/// `program` under the little limit, its swap file on the disk.
fn little(program: &Program) -> Command {
    within_little(program.command())
}

fn within_little(mut command: Command) -> Command {
    command
        .env_remove("OUTPAGE_TRACE_HOOKS")
        .env("OUTPAGE_MEMORY", LITTLE)
        .env("OUTPAGE_SWAP", DISK);
    command
}

/// Compiles the test program `name` with more arguments; `false` without a compiler.
fn compile(name: &str, arguments: &[&str], into: &Path) -> bool {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let source = sources.join(name).with_extension("c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-w", "-pthread", "-o"]).arg(into);
    let Ok(status) = compiler.arg(source).args(arguments).status() else {
        eprintln!("SKIPPED: {name} needs a C compiler (cc), and there is none");
        return false;
    };
    assert!(status.success(), "{name} does not compile");
    true
}

#[test]
fn what_devices_write_to_managed_memory_is_kept() {
    let Some(program) = Program::compile("device").filter(|_| can_page()) else {
        return;
    };
    for mechanism in ["write-protect", "auto"] {
        let file = Path::new(DISK).join(format!("device-{mechanism}"));
        let output = little(&program)
            .arg(&file)
            .env("OUTPAGE_MECHANISM", mechanism)
            .output()
            .expect("program");
        let _ = std::fs::remove_file(&file);
        if output.status.code() == Some(77) {
            eprintln!("SKIPPED: {DISK} has no O_DIRECT");
            return;
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && errors.is_empty(),
            "{mechanism}: {:?}: {errors}",
            output.status
        );
    }
}

#[test]
fn what_a_process_writes_to_itself_through_pins_is_kept() {
    let Some(program) = Program::compile("poke").filter(|_| can_page()) else {
        return;
    };
    for mechanism in ["write-protect", "auto"] {
        let output = little(&program)
            .env("OUTPAGE_MECHANISM", mechanism)
            .output()
            .expect("program");
        if output.status.code() == Some(77) {
            eprintln!("SKIPPED: process_vm_writev is not allowed here");
            return;
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && errors.is_empty(),
            "{mechanism}: {:?}: {errors}",
            output.status
        );
    }
}

/// `name` ends well under the little limit, by both mechanisms, and nothing is said.
fn does_well(name: &str) {
    let Some(program) = Program::compile(name).filter(|_| can_page()) else {
        return;
    };
    for mechanism in ["write-protect", "auto"] {
        let output = little(&program)
            .env("OUTPAGE_MECHANISM", mechanism)
            .output()
            .expect("program");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && errors.is_empty(),
            "{mechanism}: {:?}: {errors}",
            output.status
        );
    }
}

#[test]
fn moved_memory_leaves_its_neighbours_as_they_were() {
    does_well("neighbours");
}

#[test]
fn memory_by_the_zero_device_is_managed() {
    does_well("zero");
}

#[test]
fn a_thread_that_a_linked_library_starts_is_no_hindrance() {
    let folder = tempfile::tempdir().expect("folder");
    let (library, path) = (folder.path().join("liblinked.so"), folder.path().join("p"));
    if !can_page() || !compile("linked", &["-DLIBRARY", "-shared", "-fPIC"], &library) {
        return;
    }
    let library = library.to_str().expect("UTF-8");
    assert!(compile("linked", &[library], &path), "it does not compile");
    for mechanism in ["write-protect", "auto"] {
        let command = within_little(common::under_shim(&path, Path::new("")));
        succeed({ command }.env("OUTPAGE_MECHANISM", mechanism));
    }
}

#[test]
fn the_pager_never_gets_into_libraries_that_define_functions_of_libc_anew() {
    let folder = tempfile::tempdir().expect("folder");
    let library = folder.path().join("libinterposer.so");
    let built = compile("interposer", &["-shared", "-fPIC"], &library);
    let Some(program) = Program::compile("zero").filter(|_| built && can_page()) else {
        return;
    };
    let list = format!("{}:{}", library.display(), common::shim().display());
    for mechanism in ["write-protect", "auto"] {
        let mut command = little(&program);
        command
            .env("LD_PRELOAD", &list)
            .env("OUTPAGE_MECHANISM", mechanism);
        succeed(&mut command);
    }
}

#[test]
fn a_limit_that_cannot_be_kept_ends_the_program() {
    let Some(program) = Program::compile("outgrow") else {
        return;
    };
    let run = |allow: &str| {
        little(&program)
            .env("OUTPAGE_SWAP", "/nonexistent")
            .env("OUTPAGE_ALLOW_UNMANAGED", allow)
            .output()
            .expect("program")
    };
    let refused = run("0");
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.signal(), Some(9), "{errors}");
    assert!(
        errors.lines().count() == 1 && errors.contains("--allow-unmanaged"),
        "{errors}"
    );
    let allowed = run("1");
    let errors = String::from_utf8_lossy(&allowed.stderr);
    assert!(allowed.status.success(), "{errors}");
    assert!(
        errors.lines().count() == 1 && errors.contains("without a limit"),
        "{errors}"
    );
}

/// Writes an executable file to `folder`; returns its path.
fn write(folder: &Path, name: &str, content: &[u8]) -> String {
    let path = folder.join(name);
    std::fs::write(&path, content).expect("write");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    path.into_os_string().into_string().expect("UTF-8")
}

#[test]
fn programs_that_leave_the_limit_are_named() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let (Some(program), Some(fixed)) = (Program::compile("launch"), compile_static(folder.path()))
    else {
        return;
    };
    let script = write(
        folder.path(),
        "script",
        format!("#! {fixed} -x\n").as_bytes(),
    );
    for name in [&fixed, &script] {
        let mut command = little(&program);
        let output = command.arg(name).output().expect("program");
        let errors = String::from_utf8_lossy(&output.stderr);
        let line = format!("outpage: {name} is statically linked: it runs without a limit");
        assert!(output.status.success(), "{errors}");
        assert_eq!(errors.lines().collect::<Vec<_>>(), [&line; 4]);
    }
    // The others are not, nor is the loader, which follows itself.
    succeed(little(&program).arg("/bin/true"));
    succeed(little(&program).args(["/lib64/ld-linux-x86-64.so.2", "/bin/true"]));
    let script = write(folder.path(), "fine", b"#!/bin/sh\nexit 0\n");
    succeed(little(&program).arg(script));
}

/// Valgrind carries a program out with the libraries that it was to have, and the shim among them.
#[test]
fn what_valgrind_carries_out_is_left_alone() {
    let Some(program) = Program::compile("outgrow") else {
        return;
    };
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no valgrind");
        return;
    }
    let output = Command::new("sh")
        .args(["-c", "valgrind -q --tool=none \"$1\"; exit $?", "-"])
        .arg(program.path())
        .env("LD_PRELOAD", common::shim())
        .env("OUTPAGE_MEMORY", LITTLE)
        .env("OUTPAGE_SWAP", DISK)
        .output()
        .expect("sh");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines: Vec<_> = errors.lines().collect();
    assert!(
        lines.len() == 1 && lines[0].contains("statically linked: it runs without a limit"),
        "{errors}"
    );
}

/// A static program that does nothing; `None` without a compiler or a static libc.
fn compile_static(folder: &Path) -> Option<String> {
    let source = write(folder, "fixed.c", b"int main(void) { return 0; }\n");
    let path = folder.join("fixed");
    let compiled = Command::new("cc")
        .args(["-static", "-o"])
        .arg(&path)
        .arg(source)
        .output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: no static program can be compiled here");
        return None;
    }
    path.into_os_string().into_string().ok()
}
