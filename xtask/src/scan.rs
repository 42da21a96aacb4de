//! A Rust source text with comments and literals blanked out, and which of its lines are tests.
//!
//! Not a parser: enough to tell code from prose, so that a comment may name what code may not use.
//! Blanked text keeps every line and column of the original.

/// What a stretch of the source is.
enum Part {
    Code,
    Line,
    Block { depth: u32 },
    Text,
    Raw { hashes: usize },
}

/// Replaces comments and the insides of string and character literals by spaces.
pub fn code_only(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut part = Part::Code;
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        // (characters taken, whether they stay visible, what follows)
        let (taken, visible, next) = match part {
            Part::Code => match rest {
                ['/', '/', ..] => (2, false, Part::Line),
                ['/', '*', ..] => (2, false, Part::Block { depth: 1 }),
                ['"', ..] => (1, true, Part::Text),
                ['r', ..] if !follows_a_word(&chars, at) => match raw_hashes(&rest[1..]) {
                    Some(hashes) => (2 + hashes, true, Part::Raw { hashes }),
                    None => (1, true, Part::Code),
                },
                ['\'', ..] => match character_literal(rest) {
                    Some(length) => (length, false, Part::Code),
                    None => (1, true, Part::Code), // a lifetime
                },
                _ => (1, true, Part::Code),
            },
            Part::Line if rest[0] == '\n' => (1, true, Part::Code),
            Part::Line => (1, false, Part::Line),
            Part::Block { depth } => match rest {
                ['/', '*', ..] => (2, false, Part::Block { depth: depth + 1 }),
                ['*', '/', ..] if depth == 1 => (2, false, Part::Code),
                ['*', '/', ..] => (2, false, Part::Block { depth: depth - 1 }),
                _ => (1, false, Part::Block { depth }),
            },
            Part::Text => match rest {
                ['\\', _, ..] => (2, false, Part::Text),
                ['"', ..] => (1, true, Part::Code),
                _ => (1, false, Part::Text),
            },
            Part::Raw { hashes } => {
                let ends = rest[0] == '"'
                    && rest.len() > hashes
                    && rest[1..=hashes].iter().all(|&c| c == '#');
                if ends { (1 + hashes, true, Part::Code) } else { (1, false, Part::Raw { hashes }) }
            }
        };
        for &c in &rest[..taken] {
            out.push(if visible || c == '\n' { c } else { ' ' });
        }
        at += taken;
        part = next;
    }
    out
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Is the `r` at `at` the end of a longer word (`br"…"` is a raw string too)?
fn follows_a_word(chars: &[char], at: usize) -> bool {
    let before = |n: usize| at.checked_sub(n).map(|i| chars[i]);
    match before(1) {
        Some('b') => before(2).is_some_and(is_word),
        Some(c) => is_word(c),
        None => false,
    }
}

/// How many `#` stand before the quote, if this continues a raw string's `r`.
fn raw_hashes(rest: &[char]) -> Option<usize> {
    let hashes = rest.iter().take_while(|&&c| c == '#').count();
    (rest.get(hashes) == Some(&'"')).then_some(hashes)
}

/// Length of the character literal that starts with this quote; `None` for a lifetime.
fn character_literal(rest: &[char]) -> Option<usize> {
    match rest {
        ['\'', '\\', _, tail @ ..] => tail.iter().position(|&c| c == '\'').map(|close| close + 4),
        ['\'', _, '\'', ..] => Some(3),
        _ => None,
    }
}

/// For each line of the blanked text: does it belong to an item under `#[cfg(test)]`?
pub fn test_lines(code: &str) -> Vec<bool> {
    let mut tests = vec![false; code.lines().count()];
    let line_of = |byte: usize| code[..byte].matches('\n').count();
    for marker in ["#[cfg(test)]", "#[cfg(all(test"] {
        for (start, _) in code.match_indices(marker) {
            let end = item_end(code, start + marker.len());
            for line in line_of(start)..=line_of(end) {
                if let Some(flag) = tests.get_mut(line) {
                    *flag = true;
                }
            }
        }
    }
    tests
}

/// Where the item that starts here ends: its closing brace, or a `;` before any brace.
fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0u32;
    for (offset, c) in code[from..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return from + offset,
            '}' => depth -= 1,
            ';' if depth == 0 => return from + offset,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_columns_stay() {
        let source = "let a = \"x // y\"; // Instant\nlet b = 'c'; /* a /* b */ c */ let d = 1;";
        let code = code_only(source);
        assert_eq!(code.chars().count(), source.chars().count());
        assert!(!code.contains("Instant") && !code.contains("// y") && !code.contains("b */"));
        assert!(code.contains("let d = 1;"));
        assert_eq!(code.lines().count(), 2);
    }

    #[test]
    fn raw_strings_escapes_and_lifetimes_do_not_derail_the_scan() {
        let source = concat!(
            "fn f<'a>(x: &'a str) -> char { let _ = r#\"a \" HashMap\"#; '\\'' }\n",
            "let s = \"\\\" HashSet\"; let r = br\"\\\"; let n = '\\u{1f}'; keep"
        );
        let code = code_only(source);
        assert!(!code.contains("HashMap") && !code.contains("HashSet"));
        assert!(code.contains("&'a str") && code.ends_with("keep"));
    }

    #[test]
    fn a_test_module_is_marked_to_its_last_brace() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { }\n}\nfn c() {}\n";
        assert_eq!(test_lines(source), [false, true, true, true, true, false]);
    }

    #[test]
    fn a_test_module_in_another_file_is_marked_to_its_semicolon() {
        assert_eq!(test_lines("#[cfg(test)]\nmod tests;\nfn a() {}\n"), [true, true, false]);
    }
}
