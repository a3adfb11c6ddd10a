//! The programs: what each one runs, which Debian packages have it, and how large it is.
//!
//! Their scripts are part of this binary, so that it needs nothing beside it but the programs themselves.
//! All of them draw from the same generator with the same seed and print the same each time.

use super::super::tools;

/// One program of the benchmark.
#[derive(Debug)]
pub struct Program {
    /// Its name on the command line.
    pub name: &'static str,
    /// What kind of program it is.
    pub kind: &'static str,
    /// The commands that it needs, each with the Debian package that has it.
    pub commands: &'static [(&'static str, &'static str)],
    /// A command of `sh` that fails where something else is missing, and the Debian package that has it.
    pub probe: Option<(&'static str, &'static str)>,
    /// The files that it is made of: name and contents. `{n}` in them stands for the size.
    pub files: &'static [(&'static str, &'static str)],
    /// What `sh` runs once in the directory of the files, untimed, before all runs.
    pub prepare: &'static str,
    /// What is run. `{n}` stands for the size, `{dir}` for the directory of the files.
    pub command: &'static [&'static str],
    /// The size at `--scale 1`: such that the program touches 60 to 400 MiB, and takes 0.5 to 10 s without a
    /// limit on a virtual CPU of 2025.
    pub size: u32,
    /// Processes that it has at the same time.
    pub processes: u32,
}

macro_rules! script {
    ($name:literal) => {
        ($name, include_str!(concat!("scripts/", $name)))
    };
}

/// All programs.
pub const PROGRAMS: &[Program] = &[
    Program {
        name: "perl-hash",
        kind: "interpreter",
        commands: &[("perl", "perl")],
        files: &[script!("hash.pl")],
        command: &["perl", "{dir}/hash.pl", "{n}"],
        size: 600_000,
        ..PLAIN
    },
    Program {
        name: "python-dict",
        kind: "interpreter",
        commands: &[("python3", "python3")],
        files: &[script!("dict.py")],
        command: &["python3", "{dir}/dict.py", "{n}"],
        size: 450_000,
        ..PLAIN
    },
    Program {
        name: "awk-array",
        kind: "interpreter",
        commands: &[("mawk", "mawk")],
        files: &[script!("array.awk")],
        command: &["mawk", "-v", "n={n}", "-f", "{dir}/array.awk"],
        size: 800_000,
        ..PLAIN
    },
    Program {
        name: "gawk-array",
        kind: "interpreter",
        commands: &[("gawk", "gawk")],
        files: &[script!("array.awk")],
        command: &["gawk", "-v", "n={n}", "-f", "{dir}/array.awk"],
        size: 500_000,
        ..PLAIN
    },
    Program {
        name: "node-objects",
        kind: "interpreter",
        commands: &[("node", "nodejs")],
        files: &[script!("objects.js")],
        // V8 sizes its heap by a cgroup's limit, which one side alone would be: these are what Node.js 20 takes without one.
        command: &[
            "node",
            "--max-semi-space-size=16",
            "--max-old-space-size=4144",
            "{dir}/objects.js",
            "{n}",
        ],
        size: 500_000,
        ..PLAIN
    },
    Program {
        name: "ruby-hash",
        kind: "interpreter",
        commands: &[("ruby", "ruby")],
        files: &[script!("hash.rb")],
        command: &["ruby", "{dir}/hash.rb", "{n}"],
        size: 450_000,
        ..PLAIN
    },
    Program {
        name: "lua-table",
        kind: "interpreter",
        commands: &[("lua5.4", "lua5.4")],
        files: &[script!("table.lua")],
        command: &["lua5.4", "{dir}/table.lua", "{n}"],
        size: 350_000,
        ..PLAIN
    },
    Program {
        name: "sqlite-zipf",
        kind: "store",
        commands: &[("sqlite3", "sqlite3")],
        files: &[script!("zipf.sql")],
        command: &[
            "sqlite3",
            "-init",
            "/dev/null",
            ":memory:",
            ".read {dir}/zipf.sql",
        ],
        size: 500_000,
        ..PLAIN
    },
    Program {
        name: "redis-zipf",
        kind: "store",
        commands: &[
            ("redis-server", "redis-server"),
            ("redis-cli", "redis-tools"),
        ],
        files: &[script!("redis.sh"), script!("zipf-redis.lua")],
        command: &["sh", "{dir}/redis.sh", "{dir}", "{n}"],
        size: 600_000,
        processes: 3,
        ..PLAIN
    },
    Program {
        name: "gcc-large",
        kind: "compiler",
        commands: &[("gcc", "gcc"), ("awk", "mawk")],
        files: &[script!("source.awk")],
        prepare: "awk -v n={n} -f source.awk >large.c",
        command: &["sh", "-c", "gcc -O2 -S -o - {dir}/large.c | cksum"],
        size: 400,
        processes: 4,
        ..PLAIN
    },
    Program {
        name: "ld-objects",
        kind: "linker",
        commands: &[("ld", "binutils"), ("as", "binutils"), ("awk", "mawk")],
        files: &[script!("objects.sh")],
        prepare: "sh objects.sh . {n}",
        command: &[
            "sh",
            "-c",
            "cd {dir} && ld -e a_function_with_a_long_name_0_0 -o linked object*.o && cksum <linked",
        ],
        size: 150_000,
        processes: 2,
        ..PLAIN
    },
    Program {
        name: "minisat",
        kind: "solver",
        commands: &[("minisat", "minisat"), ("awk", "mawk")],
        files: &[script!("clauses.awk")],
        prepare: "awk -v n={n} -f clauses.awk >clauses.cnf",
        // Its exit status is 10 for what can be satisfied, 20 for what cannot; beside the answer it prints times.
        command: &[
            "sh",
            "-c",
            "minisat -verb=0 {dir}/clauses.cnf {dir}/answer >/dev/null 2>&1; cksum <{dir}/answer",
        ],
        size: 250_000,
        processes: 2,
        ..PLAIN
    },
    Program {
        name: "sort-pipeline",
        kind: "pipeline",
        commands: &[("sort", "coreutils"), ("awk", "mawk")],
        files: &[script!("lines.awk")],
        prepare: "awk -v n={n} -f lines.awk >lines",
        command: &[
            "sh",
            "-c",
            "sort {dir}/lines | uniq -c | sort -n | tail -n 40",
        ],
        size: 800_000,
        processes: 5,
        ..PLAIN
    },
    Program {
        name: "xz-9",
        kind: "compression",
        commands: &[("xz", "xz-utils"), ("awk", "mawk")],
        files: &[script!("lines.awk")],
        prepare: "awk -v n={n} -f lines.awk >lines",
        command: &["sh", "-c", "xz -9 -T1 -c {dir}/lines | cksum"],
        size: 200_000,
        processes: 3,
        ..PLAIN
    },
    Program {
        name: "numpy-gather",
        kind: "arrays",
        commands: &[("python3", "python3")],
        probe: Some(("python3 -c 'import numpy'", "python3-numpy")),
        files: &[script!("gather.py")],
        command: &["python3", "{dir}/gather.py", "{n}"],
        size: 5_000_000,
        ..PLAIN
    },
];

/// What most programs have in common.
const PLAIN: Program = Program {
    name: "",
    kind: "",
    commands: &[],
    probe: None,
    files: &[],
    prepare: "",
    command: &[],
    size: 0,
    processes: 1,
};

/// What stands before each command: the programs that Debian installs come first, and nothing depends on the
/// language or on the seeds of hashes.
pub fn environment() -> Vec<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    [
        &*format!("PATH=/usr/bin:/bin:{path}"),
        "LC_ALL=C",
        "PYTHONHASHSEED=0",
        "PYTHONDONTWRITEBYTECODE=1",
        "PERL_HASH_SEED=0",
        "PERL_PERTURB_KEYS=0",
    ]
    .map(str::to_owned)
    .to_vec()
}

impl Program {
    /// The program of this name.
    ///
    /// # Errors
    /// A sentence that lists the names.
    pub fn parse(name: &str) -> Result<&'static Self, String> {
        let found = PROGRAMS.iter().find(|program| program.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
            format!("no program {name:?}; there are {}", names.join(", "))
        })
    }

    /// What is missing for it on this machine, with its Debian package; `None` when nothing is.
    pub fn missing(&self) -> Option<String> {
        let absent = |&&(command, _): &&(&str, &str)| tools::find(command).is_err();
        if let Some((command, package)) = self.commands.iter().find(absent) {
            return Some(format!("{command} is missing (apt-get install {package})"));
        }
        let (probe, package) = self.probe?;
        let fails = tools::call(
            "env",
            &environment()
                .iter()
                .map(String::as_str)
                .chain(["sh", "-c", probe])
                .map(AsRef::as_ref)
                .collect::<Vec<_>>(),
        );
        fails
            .err()
            .map(|_| format!("`{probe}` fails (apt-get install {package})"))
    }

    /// Its size at a scale; at least 1.
    pub fn scaled(&self, scale: f64) -> u32 {
        (f64::from(self.size) * scale).clamp(1.0, f64::from(u32::MAX)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_can_be_asked_for_and_says_what_it_needs() {
        for (at, program) in PROGRAMS.iter().enumerate() {
            assert_eq!(Program::parse(program.name).unwrap().name, program.name);
            assert!(!program.kind.is_empty() && !program.commands.is_empty());
            assert!(
                PROGRAMS[..at]
                    .iter()
                    .all(|other| other.name != program.name)
            );
            let texts = program.files.iter().map(|(_, text)| *text);
            let words = program.command.iter().copied().chain([program.prepare]);
            assert!(
                texts.chain(words).any(|text| text.contains("{n}")),
                "{} has a size",
                program.name
            );
        }
        assert!(Program::parse("perl").unwrap_err().contains("perl-hash"));
    }

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let program = Program {
            commands: &[("sh", "dash"), ("no-such-command-here", "no-such-package")],
            ..PLAIN
        };
        let text = program.missing().unwrap();
        assert!(text.contains("no-such-command-here") && text.contains("install no-such-package"));
        let program = Program {
            probe: Some(("exit 1", "no-such-module")),
            ..PLAIN
        };
        assert!(program.missing().unwrap().contains("no-such-module"));
        assert_eq!(PLAIN.missing(), None);
    }

    #[test]
    fn sizes_follow_the_scale() {
        let program = Program::parse("gcc-large").unwrap();
        assert_eq!((program.scaled(0.5), program.scaled(1e-9)), (200, 1));
    }
}
