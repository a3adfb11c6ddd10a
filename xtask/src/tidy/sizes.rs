//! How long files and functions are. Tests may be as long as they need.

use super::Finding;
use super::exceptions::Exceptions;
use super::tree::{Source, Tree};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// Files that are too long, their inline tests left out.
pub fn files(tree: &Tree, exceptions: &mut Exceptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        let lines = file.production_lines();
        if lines > FILE_LINES_MAX && !exceptions.allow("file-length", &file.path) {
            findings.push(Finding::new(
                &file.path,
                0,
                format!("{lines} lines, at most {FILE_LINES_MAX}"),
            ));
        }
    }
    findings
}

/// Functions that do not fit on a screen.
pub fn functions(tree: &Tree, exceptions: &mut Exceptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        for Function { name, line, lines } in functions_of(file) {
            let place = format!("{}:{name}", file.path);
            if lines > FUNCTION_LINES_MAX && !exceptions.allow("function-length", &place) {
                let text = format!("{name} has {lines} lines, at most {FUNCTION_LINES_MAX}");
                findings.push(Finding::new(&file.path, line, text));
            }
        }
    }
    findings
}

#[derive(PartialEq, Eq, Debug)]
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Functions of formatted code: one ends with the brace that is indented like its beginning.
fn functions_of(file: &Source) -> Vec<Function> {
    let lines: Vec<&str> = file
        .code
        .lines()
        .take(file.production_lines())
        .map(str::trim_end)
        .collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let indent = &line[..line.len() - line.trim_start().len()];
        let closing = format!("{indent}}}");
        for (end, line) in lines.iter().enumerate().skip(start) {
            let declared_only = line.ends_with(';')
                && line.starts_with(indent)
                && !line[indent.len()..].starts_with(' ');
            let one_line = end == start && line.ends_with('}');
            if *line == closing || declared_only || one_line {
                found.push(Function {
                    name: name.to_owned(),
                    line: start + 1,
                    lines: end - start + 1,
                });
                break;
            }
        }
    }
    found
}

/// The name, if a function begins on this line of code.
pub(super) fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    const QUALIFIERS: &[&str] = &["pub", "const", "async", "unsafe", "extern", "default"];
    let qualifies =
        |word: &str| QUALIFIERS.contains(&word) || word.starts_with("pub(") || word.ends_with(')');
    if !before.split_whitespace().all(qualifies) || !(before.is_empty() || before.ends_with(' ')) {
        return None;
    }
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (end > 0).then(|| &after[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source {
            path: "x.rs".into(),
            text: text.into(),
            code: text.into(),
        }
    }

    #[test]
    fn functions_and_their_lengths() {
        let text = "pub(crate) const fn one(\n    x: u8,\n) -> u8 {\n    x\n}\n\
                    trait T {\n    fn declared(&self);\n    fn given(&self) {}\n}\n\
                    fn outer() {\n    fn inner() {\n    }\n}\n#[cfg(test)]\nmod tests {\n    fn t() {\n    }\n}\n";
        let found: Vec<(String, usize)> = functions_of(&source(text))
            .into_iter()
            .map(|f| (f.name, f.lines))
            .collect();
        let expected = [
            ("one", 5),
            ("declared", 1),
            ("given", 1),
            ("outer", 4),
            ("inner", 2),
        ];
        assert_eq!(
            found,
            expected.map(|(name, lines)| (name.to_owned(), lines))
        );
    }

    #[test]
    fn function_types_are_no_functions() {
        assert_eq!(function_name("    build: fn(Params) -> Box<dyn X>,"), None);
        assert_eq!(function_name("type F = fn(u8);"), None);
        assert_eq!(
            function_name("    pub unsafe extern   fn call(x: u8) {"),
            Some("call")
        );
    }
}
