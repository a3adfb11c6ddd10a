//! A self-contained page.

use std::fmt::Write;

use super::{Class, Evaluation, MORE, RULE, Row, Verdict};
use crate::paper::chart::escape;
use crate::paper::table::Table;

/// What is folded is open on paper.
const STYLE: &str = "body{font:15px/1.45 sans-serif;max-width:64rem;margin:1.5rem auto;padding:0 1rem;color:#222}\
table{border-collapse:collapse;margin:.6rem 0}td,th{border-bottom:1px solid #ddd;padding:.1rem .6rem;text-align:right;vertical-align:top}\
td:first-child,th:first-child,table.words td{text-align:left}table.verdicts{font-size:.87em;line-height:1.3}\
td.met{color:#1a6b1a}td.missed{color:#a01818;font-weight:bold}td.undetermined{color:#8a5a00}\
details{margin:.5rem 0}summary{cursor:pointer;font-weight:bold}details table{font-size:.85em}div.wide{overflow-x:auto}\
figure{margin:1.2rem 0;break-inside:avoid}figcaption{font-size:.9em;color:#555}svg{width:100%;height:auto}\
h1,h2,h3{line-height:1.2;break-after:avoid}\
@media print{body{max-width:none;margin:0;font-size:10pt}div.wide{overflow:visible}figure{margin:.6rem 0}\
details table{font-size:6.5pt}td,th{padding:.05rem .25rem;overflow-wrap:anywhere}table.verdicts td:last-child,table.verdicts th{white-space:nowrap}details::details-content{content-visibility:visible;display:block}tr{break-inside:avoid}}";

impl Evaluation {
    /// A self-contained page: verdicts, figures, and folded what they rest on.
    #[must_use]
    pub fn html(&self) -> String {
        let title = escape(self.title);
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
             <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<ul>\n"
        );
        for line in self.verdicts() {
            let _ = writeln!(out, "<li>{}</li>", escape(&line));
        }
        let _ = writeln!(
            out,
            "</ul>\n<p>{} {} runs.</p>",
            escape(RULE),
            self.runs.len()
        );
        let claims = self.by_claim();
        let _ = writeln!(
            out,
            "<h2>{}</h2>\n{}",
            escape(&claims.title),
            html_table(&claims, " class=\"verdicts\"")
        );
        let independent = verdicts(self.of(Class::Independent));
        if !independent.is_empty() {
            let name = Class::Independent.name();
            let _ = writeln!(out, "<h2>Rows: {name}</h2>\n{independent}");
        }
        for class in [Class::Derived, Class::Construction, Class::Restated] {
            let rows = verdicts(self.of(class));
            if !rows.is_empty() {
                fold(&mut out, &format!("Rows: {}", class.name()), &rows);
            }
        }
        self.charts(&mut out);
        fold(
            &mut out,
            "What is not met, and what moves it",
            &self.notes(),
        );
        let constants = self
            .constants
            .iter()
            .map(|line| format!("<li>{}</li>\n", escape(line)));
        fold(
            &mut out,
            "Constants of all runs",
            &format!("<ul>\n{}</ul>", constants.collect::<String>()),
        );
        let provenance = Some(&self.provenance).filter(|table| !table.rows.is_empty());
        for table in provenance.into_iter().chain(&self.tables) {
            fold(&mut out, &table.title, &html_table(table, ""));
        }
        for failure in self.failures() {
            let _ = writeln!(out, "<p>Without result: {}</p>", escape(&failure));
        }
        out + "</body></html>\n"
    }

    fn charts(&self, out: &mut String) {
        let figures = self
            .figures
            .iter()
            .map(|f| (&f.chart.title, f.chart.svg(), &f.text));
        let curves = self.curves.iter().map(|c| (&c.title, c.svg(), &c.text));
        for (at, (title, svg, text)) in figures.chain(curves).enumerate() {
            if at == 0 {
                *out += "<h2>Figures</h2>\n";
            }
            let _ = writeln!(
                out,
                "<figure><h3>{}</h3>\n{svg}<figcaption>{}</figcaption></figure>",
                escape(title),
                escape(text),
            );
        }
    }

    fn notes(&self) -> String {
        let open = self.rows.iter().filter(|row| row.is_open());
        let notes = open.map(|row| {
            format!(
                "<p><b>{}</b> ({}): {} published, {} here. {}</p>\n",
                escape(&row.words()),
                row.verdict.name(),
                escape(&row.published()),
                escape(&row.ours()),
                escape(&row.why())
            )
        });
        let notes: String = notes.collect();
        match notes.as_str() {
            "" => notes,
            _ => notes + &format!("<p>{MORE}</p>\n"),
        }
    }
}

/// One line a claim; nothing without claims.
fn verdicts<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let lines = rows.map(|row| {
        let class = match row.verdict {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::Undetermined => "undetermined",
            Verdict::NotJudged => "none",
        };
        format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"{class}\">{}</td></tr>\n",
            escape(&row.words()),
            escape(&row.published()),
            escape(&row.ours()),
            escape(&row.interval()),
            row.verdict.name(),
        )
    });
    let lines: String = lines.collect();
    if lines.is_empty() {
        return lines;
    }
    format!(
        "<table class=\"verdicts\"><tr><th>claim</th><th>published</th><th>ours, median</th><th>95 % of runs</th>\
         <th>verdict</th></tr>\n{lines}</table>\n"
    )
}

fn fold(out: &mut String, title: &str, body: &str) {
    if !body.is_empty() {
        let _ = writeln!(
            out,
            "<details><summary>{}</summary><div class=\"wide\">\n{body}</div></details>",
            escape(title)
        );
    }
}

/// With `class` in its tag.
fn html_table(table: &Table, class: &str) -> String {
    let cells = |cells: &[String], tag: &str| -> String {
        let cells = cells
            .iter()
            .map(|c| format!("<{tag}>{}</{tag}>", escape(c)));
        cells.collect()
    };
    let mut out = format!("<table{class}><tr>{}</tr>\n", cells(&table.head, "th"));
    for row in &table.rows {
        let _ = writeln!(out, "<tr>{}</tr>", cells(row, "td"));
    }
    out + "</table>\n"
}
