//! An evaluation as HTML, Markdown and CSV.

use std::fmt::Write;

use super::chart::escape;
use super::claims::Published;
use super::evaluation::{Evaluation, Ours, Row};
use super::table::{Table, short};

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}\
table{border-collapse:collapse;margin:1rem 0}td,th{border-bottom:1px solid #ddd;padding:.2rem .6rem;text-align:right;vertical-align:top}\
td:first-child,th:first-child,td.note{text-align:left}td.note{font-size:.85em;max-width:30rem}tr.off td{background:#fff4e5}\
figure{margin:1.5rem 0}figcaption{font-size:.9em;color:#555}svg{width:100%;height:auto}";

impl Row {
    fn name(&self) -> String {
        self.claim.path.join(" / ")
    }

    fn published(&self) -> String {
        match &self.claim.published {
            Published::Number(n) => short(*n),
            Published::Text(text) => text.clone(),
        }
    }

    fn ours(&self) -> String {
        match &self.ours {
            Ours::Number(n) => short(*n),
            Ours::Spread(spread) => spread.to_string(),
            Ours::Text(text, _) => text.clone(),
            Ours::None => "no result".to_owned(),
        }
    }

    fn difference(&self) -> String {
        match (&self.ours, self.deviation) {
            (Ours::Text(_, Some(true)), _) => "agrees".to_owned(),
            (Ours::Text(_, Some(false)), _) => "differs".to_owned(),
            (Ours::Number(_) | Ours::Spread(_), Some(d)) if self.points => {
                format!("{d:+.1} points")
            }
            (Ours::Number(_) | Ours::Spread(_), Some(d)) => format!("{d:+.1} %"),
            _ => "-".to_owned(),
        }
    }
}

impl Evaluation {
    /// Rows that deviate by at most 10, and all that have a number or an agreement.
    #[must_use]
    pub fn agreement(&self) -> (usize, usize) {
        let counted = self
            .rows
            .iter()
            .filter(|r| !matches!(r.ours, Ours::Text(_, None)));
        let agree = counted.clone().filter(|r| !r.deviates()).count();
        (agree, counted.count())
    }

    fn failures(&self) -> Vec<String> {
        let failed = self
            .runs
            .iter()
            .filter_map(|(key, outcome)| Some((key, outcome.as_ref().err()?)));
        failed
            .map(|(k, why)| {
                format!(
                    "{} {} {} {}, seed {}: {why}",
                    k.memory, k.workload, k.policy, k.variant, k.seed
                )
            })
            .collect()
    }

    fn summary(&self) -> String {
        let (agree, of) = self.agreement();
        format!(
            "{agree} of {of} published figures are met within 10 (points for percentages, percent for the rest). \
             Each of the others says what was varied and how far that moves it. {} runs.",
            self.runs.len()
        )
    }

    /// A self-contained page.
    #[must_use]
    pub fn html(&self) -> String {
        let title = escape(self.title);
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
             <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>{}</p>\n<h2>Constants of all runs</h2>\n<ul>\n",
            escape(&self.summary())
        );
        for line in &self.constants {
            let _ = writeln!(out, "<li>{}</li>", escape(line));
        }
        out += "</ul>\n<h2>Every published figure</h2>\n<table><tr><th>figure</th><th>published</th><th>ours</th>\
                <th>deviation</th><th class=\"note\">what explains it</th></tr>\n";
        for row in &self.rows {
            let class = if row.deviates() { " class=\"off\"" } else { "" };
            let _ = writeln!(
                out,
                "<tr{class}><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"note\">{}</td></tr>",
                escape(&row.name()),
                escape(&row.published()),
                escape(&row.ours()),
                escape(&row.difference()),
                escape(&row.note),
            );
        }
        out += "</table>\n<h2>Tables</h2>\n";
        for table in &self.tables {
            out += &html_table(table);
        }
        out += "<h2>Figures</h2>\n";
        for figure in &self.figures {
            let _ = writeln!(
                out,
                "<figure><h3>{}</h3>\n{}<figcaption>{}</figcaption></figure>",
                escape(&figure.chart.title),
                figure.chart.svg(),
                escape(&figure.text),
            );
        }
        for curves in &self.curves {
            let _ = writeln!(
                out,
                "<figure><h3>{}</h3>\n{}<figcaption>{}</figcaption></figure>",
                escape(&curves.title),
                curves.svg(),
                escape(&curves.text),
            );
        }
        for failure in self.failures() {
            let _ = writeln!(out, "<p>Without result: {}</p>", escape(&failure));
        }
        out + "</body></html>\n"
    }

    /// The same without pictures.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = format!(
            "# {}\n\n{}\n\n## Constants of all runs\n\n",
            self.title,
            self.summary()
        );
        for line in &self.constants {
            let _ = writeln!(out, "- {line}");
        }
        out += "\n## Every published figure\n\n| figure | published | ours | deviation |\n|---|---|---|---|\n";
        for row in &self.rows {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} |",
                row.name(),
                row.published(),
                row.ours(),
                row.difference()
            );
        }
        out += "\n## Deviations above 10\n\n";
        for row in self.rows.iter().filter(|row| row.deviates()) {
            let _ = writeln!(
                out,
                "- **{}**: {} published, {} here. {}",
                row.name(),
                row.published(),
                row.ours(),
                row.note
            );
        }
        out += "\n## Tables\n";
        for table in &self.tables {
            let _ = writeln!(out, "\n{}\n\n| {} |", table.title, table.head.join(" | "));
            let _ = writeln!(out, "|{}", "---|".repeat(table.head.len()));
            for row in &table.rows {
                let _ = writeln!(out, "| {} |", row.join(" | "));
            }
        }
        for failure in self.failures() {
            let _ = writeln!(out, "\nWithout result: {failure}");
        }
        out
    }

    /// A line for each published figure.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out = "figure,published,ours,deviation,unit,note\n".to_owned();
        for row in &self.rows {
            let number = |n: f64| format!("{n}");
            let published = match &row.claim.published {
                Published::Number(n) => number(*n),
                Published::Text(text) => quoted(text),
            };
            let ours = match &row.ours {
                Ours::Number(n) => number(*n),
                Ours::Spread(spread) => number(spread.median),
                Ours::Text(text, _) => quoted(text),
                Ours::None => String::new(),
            };
            let deviation = row.deviation.map(|d| format!("{d:.2}")).unwrap_or_default();
            let unit = if row.points { "points" } else { "percent" };
            let _ = writeln!(
                out,
                "{},{published},{ours},{deviation},{unit},{}",
                quoted(&row.name()),
                quoted(&row.note)
            );
        }
        out
    }

    /// A line for each run.
    #[must_use]
    pub fn runs_csv(&self) -> String {
        let mut out = "variant,memory,workload,policy,seed,elapsed_s,page_ins,page_in_reads,page_outs,page_out_writes,\
                       pages_per_write,disk_busy_s,error\n"
            .to_owned();
        for (key, outcome) in &self.runs {
            let _ = write!(
                out,
                "{},{},{},{},{},",
                quoted(&key.variant),
                key.memory,
                key.workload,
                quoted(&key.policy),
                key.seed
            );
            let _ = match outcome {
                Ok(r) => writeln!(
                    out,
                    "{:.3},{},{},{},{},{:.3},{:.3},",
                    r.elapsed_ns as f64 / 1e9,
                    r.page_ins,
                    r.page_in_reads,
                    r.page_outs,
                    r.page_out_writes,
                    r.page_outs as f64 / r.page_out_writes.max(1) as f64,
                    r.busy_ns as f64 / 1e9,
                ),
                Err(why) => writeln!(out, ",,,,,,,{}", quoted(why)),
            };
        }
        out
    }
}

fn html_table(table: &Table) -> String {
    let cells = |cells: &[String], tag: &str| -> String {
        let cells = cells
            .iter()
            .map(|c| format!("<{tag}>{}</{tag}>", escape(c)));
        cells.collect()
    };
    let mut out = format!(
        "<h3>{}</h3>\n<table><tr>{}</tr>\n",
        escape(&table.title),
        cells(&table.head, "th")
    );
    for row in &table.rows {
        let _ = writeln!(out, "<tr>{}</tr>", cells(row, "td"));
    }
    out + "</table>\n"
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "'"))
}
