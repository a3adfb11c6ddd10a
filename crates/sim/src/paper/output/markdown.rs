//! Without pictures.

use std::fmt::Write;

use super::{Class, Evaluation, MORE, RULE};
use crate::paper::table::Table;

impl Evaluation {
    /// The evaluation without pictures.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n{RULE} {} runs.\n\n", self.title, self.runs.len());
        for line in self.verdicts() {
            let _ = writeln!(out, "- {line}");
        }
        table(&mut out, &self.by_claim());
        for class in Class::COUNTED.into_iter().chain([Class::Restated]) {
            if self.of(class).next().is_some() {
                self.rows_of(&mut out, class);
            }
        }
        out += "\n## What is not met, and what moves it\n\n";
        for row in self.rows.iter().filter(|row| row.is_open()) {
            let _ = writeln!(
                out,
                "- **{}** ({}): {} published, {} here. {}",
                row.words(),
                row.verdict.name(),
                row.published(),
                row.ours(),
                row.why()
            );
        }
        let _ = writeln!(out, "\n{MORE}");
        out += "\n## Constants of all runs\n\n";
        for line in &self.constants {
            let _ = writeln!(out, "- {line}");
        }
        if !self.provenance.rows.is_empty() {
            table(&mut out, &self.provenance);
        }
        out += "\n## Tables\n";
        for own in &self.tables {
            table(&mut out, own);
        }
        out += "\n## Figures\n";
        for figure in &self.figures {
            table(&mut out, &figure.chart.table());
            let _ = writeln!(out, "\n{}", figure.text);
        }
        for failure in self.failures() {
            let _ = writeln!(out, "\nWithout result: {failure}");
        }
        out
    }

    fn rows_of(&self, out: &mut String, class: Class) {
        let _ = writeln!(
            out,
            "\n## Rows: {}\n\n| figure | published | ours, median | 95 % of runs | difference | verdict |\n|---|---|---|---|---|---|",
            class.name()
        );
        for row in self.of(class) {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} |",
                row.words(),
                row.published(),
                row.ours(),
                row.interval(),
                row.difference(),
                row.verdict.name()
            );
        }
    }
}

fn table(out: &mut String, table: &Table) {
    let _ = writeln!(out, "\n{}\n\n| {} |", table.title, table.head.join(" | "));
    let _ = writeln!(out, "|{}", "---|".repeat(table.head.len()));
    for row in &table.rows {
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
}
