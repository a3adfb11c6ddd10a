//! Programs in C and C++ against the library as it is installed: shared by pkg-config's flags, static, and by CMake; and what the library shows.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// What a program says where there is no userfaultfd.
const NO_USERFAULTFD: i32 = 77;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where the library was installed, once for all tests; `None`, said loudly, where a tool is missing.
fn installed(tools: &[&str]) -> Option<&'static Path> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    for tool in tools {
        if Command::new(tool).arg("--version").output().is_err() {
            eprintln!("SKIPPED: there is no {tool}");
            return None;
        }
    }
    Some(FOLDER.get_or_init(install))
}

/// In cargo's own folder, always the same one: a static is never dropped, and a folder of its own would stay.
fn install() -> PathBuf {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
    let _ = std::fs::remove_dir_all(&prefix);
    std::fs::create_dir_all(&prefix).expect("a folder");
    let own = std::env::current_exe().expect("own path");
    let built = own.ancestors().nth(2).expect("the folder of the build");
    build(built);
    let install = Command::new(repository().join("packaging/install-library"))
        .arg(&prefix)
        .arg(built)
        .output()
        .expect("a shell");
    must(&install, "installing");
    prefix
}

/// `cargo test` builds no static library.
fn build(built: &Path) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--quiet",
        "--package",
        "outpage-capi",
        "--target-dir",
    ]);
    cargo.arg(built.parent().expect("the target folder"));
    if built.ends_with("release") {
        cargo.arg("--release");
    }
    must(&cargo.output().expect("cargo"), "building the library");
}

fn must(output: &Output, what: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {text}");
}

fn flags(prefix: &Path, kind: &[&str]) -> Vec<String> {
    let output = Command::new("pkg-config")
        .args(kind)
        .arg("outpage")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output()
        .expect("pkg-config");
    must(&output, "pkg-config");
    let text = String::from_utf8(output.stdout).expect("words");
    text.split_whitespace().map(str::to_owned).collect()
}

/// Compiles with all warnings as errors.
fn compile(compiler: &str, source: &str, into: &Path, flags: &[String]) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    // An absolute path stands for itself.
    let client = repository().join("crates/client/include");
    let output = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-o"])
        .arg(into)
        .arg(tests.join(source))
        .arg("-I")
        .arg(client)
        .args(flags)
        .output()
        .expect("a compiler");
    must(&output, source);
}

fn run(program: &Path, prefix: &Path) {
    let output = Command::new(program)
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .output()
        .expect("the program");
    if output.status.code() == Some(NO_USERFAULTFD) {
        eprintln!("SKIPPED: {}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    must(&output, &program.display().to_string());
}

#[test]
fn programs_in_c_and_cpp_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(prefix) = installed(&["cc", "c++", "pkg-config"]) else {
        return;
    };
    let (shared, cflags) = (
        flags(prefix, &["--cflags", "--libs"]),
        flags(prefix, &["--cflags"]),
    );
    let program = |name: &str| folder.path().join(name);
    compile("cc", "regions.c", &program("shared"), &shared);
    run(&program("shared"), prefix);
    let mut whole = cflags;
    whole.push(prefix.join("lib/liboutpage.a").display().to_string());
    whole.extend(["-lpthread", "-ldl", "-lm"].map(str::to_owned));
    compile("cc", "regions.c", &program("static"), &whole);
    run(&program("static"), prefix);
    compile("cc", "../examples/lru.c", &program("lru"), &shared);
    run(&program("lru"), prefix);
    let mut strict = shared;
    strict.push("-std=c++17".into());
    compile("c++", "vector.cpp", &program("vector"), &strict);
    run(&program("vector"), prefix);
}

/// The quick start of README, as it is written there.
#[test]
fn the_quick_start_runs() {
    let Some(prefix) = installed(&["cc", "pkg-config"]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let readme = std::fs::read_to_string(repository().join("README.md")).expect("README");
    let (_, block) = readme.split_once("```c\n").expect("a block in C");
    let (block, _) = block.split_once("```").expect("its end");
    let (source, program) = (folder.path().join("a.c"), folder.path().join("a"));
    std::fs::write(&source, block).expect("a file");
    let flags = flags(prefix, &["--cflags", "--libs"]);
    compile("cc", source.to_str().expect("a path"), &program, &flags);
    let output = Command::new(program)
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .output()
        .expect("the program");
    let why = String::from_utf8_lossy(&output.stderr);
    if why.contains("userfaultfd") {
        eprintln!("SKIPPED: {why}");
        return;
    }
    must(&output, "the quick start");
    assert_eq!(output.stdout, b"77\n");
}

#[test]
fn cmake_finds_the_package() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(prefix) = installed(&["cc", "cmake", "make"]) else {
        return;
    };
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regions.c");
    let lists = format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(user C)\nfind_package(Outpage 0.1 REQUIRED)\n\
         add_executable(user {})\ntarget_link_libraries(user Outpage::outpage)\n",
        tests.display()
    );
    std::fs::write(folder.path().join("CMakeLists.txt"), lists).expect("a file");
    let cmake = |arguments: &[&str]| {
        let mut command = Command::new("cmake");
        command.args(arguments).current_dir(folder.path());
        command.env("CMAKE_PREFIX_PATH", prefix);
        must(&command.output().expect("cmake"), "cmake");
    };
    cmake(&["-S", ".", "-B", "build"]);
    cmake(&["--build", "build"]);
    run(&folder.path().join("build/user"), prefix);
}

/// What programs that were linked to an earlier build of this version rely on is as it was: functions may be added, none changed or removed.
///
/// Where something was added, or the version is another one, `abi/outpage.abi` is stored anew: `OUTPAGE_STORE_ABI=1 cargo test -p outpage-capi abi`.
#[test]
fn the_abi_is_the_stored_one() {
    let Some(prefix) = installed(&["cc", "nm", "abidw", "abidiff"]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("abi/outpage.abi");
    let library = described(prefix, folder.path(), "include/outpage.h");
    // Described again below.
    let library = {
        let kept = folder.path().join("library.abi");
        std::fs::rename(library, &kept).expect("a file");
        kept
    };
    if std::env::var_os("OUTPAGE_STORE_ABI").is_some() {
        std::fs::copy(&library, &stored).expect("the description is stored");
    }
    let (code, report) = differences(&stored, &library);
    assert_eq!(code, 0, "{report}");
    // And the check sees what it is for: a parameter that is another, and a function that is gone.
    let header =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("include/outpage.h"));
    let header = header.expect("the header");
    for (from, to) in [
        (
            "size_t offset, size_t len, int advice)",
            "size_t offset, size_t len, const char *advice)",
        ),
        ("const char *outpage_version(void);", ""),
    ] {
        let changed = header.replace(from, to);
        assert_ne!(changed, header);
        let path = folder.path().join("changed.h");
        std::fs::write(&path, changed).expect("a header");
        let other = described(prefix, folder.path(), path.to_str().expect("a path"));
        let (code, report) = differences(&stored, &other);
        assert_ne!(code & ABI_CHANGED, 0, "{from}: {report}");
    }
}

/// The bit of abidiff's exit code that says that the two differ (its manual).
const ABI_CHANGED: i32 = 4;

/// abidw's description of the functions that `header` declares and the library shows. The types are the header's: Rust's debugging information
/// calls them otherwise.
fn described(prefix: &Path, folder: &Path, header: &str) -> PathBuf {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join(header);
    let symbols = Command::new("nm")
        .args(["-D", "--defined-only", "--without-symbol-versions"])
        .arg(prefix.join("lib/liboutpage.so.0"))
        .output()
        .expect("nm");
    let symbols = String::from_utf8(symbols.stdout).expect("names");
    let text = std::fs::read_to_string(&header).expect("the header");
    let mut source = format!("#include \"{}\"\n", header.display());
    let shown: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    source.push_str(&bodies(&text, &shown));
    std::fs::write(folder.join("stub.c"), source).expect("a file");
    let compiled = Command::new("cc")
        .args([
            "-g",
            "-shared",
            "-fPIC",
            "-w",
            "-Wl,-soname,liboutpage.so.0",
        ])
        .args(["-o", "stub.so", "stub.c"])
        .current_dir(folder)
        .output();
    must(&compiled.expect("cc"), "the stub");
    let written = Command::new("abidw")
        .args(["--no-corpus-path", "--no-comp-dir-path", "--no-show-locs"])
        .args(["--out-file", "stub.abi", "stub.so"])
        .current_dir(folder)
        .output();
    must(&written.expect("abidw"), "abidw");
    folder.join("stub.abi")
}

/// Each declared function that is `shown`, with a body of nothing, so that there is something to describe.
fn bodies(header: &str, shown: &[&str]) -> String {
    let plain = without_comments(header);
    let lines = plain.split(';').filter_map(|part| {
        let (before, _) = part.split_once('(')?;
        let line = before.rfind('\n').map_or(0, |end| end + 1);
        let name = before[line..].rsplit([' ', '*']).next()?;
        let body = || format!("{} {{ __builtin_trap(); }}\n", part[line..].trim());
        shown.contains(&name).then(body)
    });
    lines.collect()
}

fn without_comments(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        plain.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, rest)| rest);
    }
    plain + rest
}

fn differences(stored: &Path, library: &Path) -> (i32, String) {
    let output = Command::new("abidiff").args([stored, library]).output();
    let output = output.expect("abidiff");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().unwrap_or(-1), report)
}

/// The functions of the header, of the symbol map and of the library are the same, and all are in the manual.
#[test]
fn the_library_shows_what_the_header_declares() {
    let of = |path: &str| {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
    };
    let (header, map, manual) = (
        of("include/outpage.h"),
        of("outpage.map"),
        of("man/outpage.3"),
    );
    let names = |text: &str, behind: char| -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (at, _) in text.match_indices("outpage_") {
            let rest = &text[at..];
            let end = rest
                .find(|c: char| c != '_' && !c.is_ascii_alphanumeric())
                .unwrap_or(rest.len());
            let apart = !text[..at].ends_with(|c: char| c == '_' || c.is_ascii_alphanumeric());
            if apart && rest[end..].starts_with(behind) {
                names.push(rest[..end].to_owned());
            }
        }
        names.sort_unstable();
        names.dedup();
        names
    };
    let declared = names(&header, '(');
    assert_eq!(declared.len(), 30);
    assert_eq!(names(&map, ';'), declared);
    for name in &declared {
        assert!(
            manual.contains(name.as_str()),
            "{name} is not in the manual"
        );
    }
    let Some(prefix) = installed(&["cc", "nm", "readelf"]) else {
        return;
    };
    let library = prefix.join("lib/liboutpage.so.0");
    let symbols = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&library)
        .output()
        .expect("nm");
    let symbols = String::from_utf8(symbols.stdout).expect("names");
    let shown: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    let versioned: Vec<String> = declared
        .iter()
        .map(|name| format!("{name}@@OUTPAGE_0.1"))
        .collect();
    let shown: Vec<&str> = shown
        .into_iter()
        .filter(|name| !name.starts_with("OUTPAGE_"))
        .collect();
    assert_eq!(shown, versioned);
    let dynamic = Command::new("readelf")
        .arg("-d")
        .arg(&library)
        .output()
        .expect("readelf");
    let dynamic = String::from_utf8_lossy(&dynamic.stdout).into_owned();
    assert!(dynamic.contains("soname: [liboutpage.so.0]"), "{dynamic}");
}
