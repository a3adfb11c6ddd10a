//! Runs of a real guest beside the simulated ones: what `guest/vm.py compare --json` wrote.

use std::path::Path;

use outpage_sim::paper::{Spread, Table};
use serde_json::Value;

use crate::error::{CliError, code};

/// Pages in a MB of 2^20 bytes.
const MB: f64 = 256.0;

/// The table of the runs in `file`, in the order of their names there.
///
/// # Errors
/// [`code::NO_INPUT`] for a file that cannot be read, [`code::DATA`] for one that `vm.py` did not write.
pub fn table(file: &Path) -> Result<Table, CliError> {
    let text = std::fs::read_to_string(file).map_err(|error| CliError::no_text(file, error))?;
    of(&text).ok_or_else(|| {
        let what = "is not what guest/vm.py compare --json writes";
        CliError::new(code::DATA, format!("{} {what}", file.display()))
    })
}

fn of(text: &str) -> Option<Table> {
    let runs: Vec<Value> = serde_json::from_str(text).ok()?;
    let mut names: Vec<&str> = Vec::new();
    for run in &runs {
        let name = run["name"].as_str()?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let first = runs.first()?;
    let rows = names.iter().map(|name| row(name, &runs));
    let head = [
        "",
        "guest MiB",
        "Disk-out",
        "of it the host's",
        "Disk-in",
        "of it the host's",
        "double paging",
        "seconds",
        "runs",
    ];
    Some(Table {
        title: format!(
            "Live: a Linux guest under QEMU's TCG, MB transferred. The limit is {} MiB, the workload \"{}\": scaled, times indicative only",
            first["memory_mib"].as_u64()?,
            first["workload"].as_str()?
        ),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.collect::<Option<_>>()?,
    })
}

/// Pages that the guest counted while its workload ran.
fn of_guest(run: &Value, name: &str) -> Option<f64> {
    let at = |when: &str| run["guest"][when][name].as_f64();
    Some(at("after")? - at("before")?)
}

fn of_host(run: &Value, name: &str) -> Option<f64> {
    run["host"][name].as_f64()
}

fn row(name: &str, runs: &[Value]) -> Option<Vec<String>> {
    let all: Vec<&Value> = runs.iter().filter(|run| run["name"] == name).collect();
    // What came to no end, or whose contents were not verified, has no figures.
    let sound: Vec<&Value> = all
        .iter()
        .copied()
        .filter(|run| run["sound"] == true)
        .collect();
    let cell = |figure: &dyn Fn(&Value) -> Option<f64>| -> Option<String> {
        let values: Option<Vec<f64>> = sound.iter().map(|run| figure(run)).collect();
        let spread = Spread::of(values?);
        Some(spread.map_or_else(|| "-".to_owned(), |spread| spread.to_string()))
    };
    let both = |host: &'static str, guest: &'static str| {
        move |run: &Value| Some((of_host(run, host)? + of_guest(run, guest)?) / MB)
    };
    let host = |name: &'static str| move |run: &Value| Some(of_host(run, name)? / MB);
    let without = all.len() - sound.len();
    let runs = match without {
        0 => all.len().to_string(),
        _ => format!("{} and {without} without result", sound.len()),
    };
    Some(vec![
        name.to_owned(),
        all.first()?["ram_mib"].as_u64()?.to_string(),
        cell(&both("page_outs", "pswpout"))?,
        cell(&host("page_outs"))?,
        cell(&both("page_ins", "pswpin"))?,
        cell(&host("page_ins"))?,
        cell(&|run| Some(of_guest(run, "double_paged")? / MB))?,
        cell(&|run| run["seconds"].as_f64())?,
        runs,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, sound: bool, outs: u64) -> Value {
        serde_json::json!({
            "name": name, "sound": sound, "ram_mib": 192, "memory_mib": 128, "workload": "pass,224,3", "seconds": 10.0,
            "guest": {"before": {"pswpin": 256, "pswpout": 0, "double_paged": 0}, "after": {"pswpin": 512, "pswpout": 256, "double_paged": 512}},
            "host": {"page_ins": 256, "page_outs": outs},
        })
    }

    #[test]
    fn figures_are_of_the_runs_that_came_to_their_ends() {
        let runs = [
            run("KVM", true, 256),
            run("HSN", true, 512),
            run("KVM", true, 768),
            run("KVM", false, 9_999_999),
        ];
        let table = of(&serde_json::to_string(&runs).expect("JSON")).expect("a table");
        assert_eq!(
            table.rows[0][..4],
            ["KVM", "192", "3 (2 to 4)", "2 (1 to 3)"]
        );
        assert_eq!(
            table.rows[0][4..],
            ["2", "1", "2", "10", "2 and 1 without result"]
        );
        assert_eq!((table.rows[1][0].as_str(), table.rows.len()), ("HSN", 2));
    }

    #[test]
    fn what_is_something_else_is_refused() {
        for text in ["", "{}", "[]", "[1]", "[{\"name\": \"KVM\"}]"] {
            assert!(of(text).is_none(), "{text}");
        }
        assert_eq!(
            table(Path::new("/nowhere")).expect_err("no file").code,
            code::NO_INPUT
        );
    }
}
