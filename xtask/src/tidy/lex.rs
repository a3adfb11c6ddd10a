//! Just enough of Rust's lexer to tell code from comments and literals.

/// The text with comments, strings and characters replaced by blanks; line ends stay.
pub fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_or_comment(bytes, at);
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    // Only whole literals and comments were replaced, by ASCII.
    String::from_utf8(code).unwrap_or_default()
}

/// The end of the comment or literal that begins at `at`; `at` when none does.
fn literal_or_comment(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let previous_is_word =
        at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    match rest {
        [b'/', b'/', ..] => at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => at + block_comment(rest),
        [b'"', ..] => at + string(rest),
        [b'r', b'"' | b'#', ..] if !previous_is_word || bytes[at - 1] == b'b' => {
            at + raw_string(rest)
        }
        [b'\'', ..] => at + character(rest),
        _ => at,
    }
}

/// Block comments nest.
fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at + 1 < rest.len() {
        match &rest[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r"..."` or `r#"..."#` with any number of marks; 0 for a raw identifier.
fn raw_string(rest: &[u8]) -> usize {
    let marks = rest[1..].iter().take_while(|&&b| b == b'#').count();
    if rest.get(1 + marks) != Some(&b'"') {
        return 0;
    }
    let mut end = vec![b'"'];
    end.resize(1 + marks, b'#');
    let body = &rest[2 + marks..];
    let found = body.windows(end.len()).position(|window| window == end);
    found.map_or(rest.len(), |position| 2 + marks + position + end.len())
}

/// A character literal; 0 for a lifetime.
fn character(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return rest
            .iter()
            .skip(3)
            .position(|&b| b == b'\'')
            .map_or(rest.len(), |position| position + 4);
    }
    // One character of up to four bytes, then the quote; a lifetime has no quote there.
    let text = rest.get(1..rest.len().min(6)).unwrap_or(&[]);
    let len = match text.first() {
        Some(0..=0x7f) => 1,
        Some(0x80..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(_) => 4,
        None => return 0,
    };
    if text.get(len) == Some(&b'\'') {
        len + 2
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        code_only(text)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn comments_and_literals_go() {
        assert_eq!(words("a // unsafe\nb"), "a b");
        assert_eq!(words("a /* x /* y */ z */ b"), "a b");
        assert_eq!(words(r#"f("unsafe \" x", b"y") g"#), "f( , b ) g");
        assert_eq!(words(r###"f(r#"a " b"#, br"c") g"###), "f( , b ) g");
        assert_eq!(words(r"f('x', '\'', '\u{1F600}', 'ä') g"), "f( , , , ) g");
        assert_eq!(
            words("fn f<'a>(x: &'a str, 'b: loop {})"),
            "fn f<'a>(x: &'a str, 'b: loop {})"
        );
        assert_eq!(words("r#type + var\"s\""), "r#type + var");
    }

    #[test]
    fn lines_stay() {
        let text = "a\n/* x\ny */ b\n\"s\nt\" c";
        assert_eq!(code_only(text).lines().count(), text.lines().count());
    }
}
