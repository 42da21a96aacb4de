//! Text from outside (names in images, jobs, traces) as a terminal may be given it.
//!
//! A file name may hold any byte. Escape sequences in one would move the cursor, change the title
//! or hide lines of a report; a line feed would forge one; marks of writing direction would show
//! it in another order.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

/// Does a terminal do something else with it than show it?
fn is_control(c: char) -> bool {
    // C0, DEL and C1; line and paragraph separators; the marks of Unicode's bidirectional text.
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{061c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, is_kept: fn(char) -> bool) -> Cow<'_, str> {
    let is_bad = |c: char| is_control(c) && !is_kept(c);
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if !is_bad(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if u32::from(c) < 0x100 => {
                write!(out, "\\x{:02x}", u32::from(c)).expect("a string takes it");
            }
            c => write!(out, "\\u{{{:x}}}", u32::from(c)).expect("a string takes it"),
        }
    }
    Cow::Owned(out)
}

/// A name, or other text of one line: every control character is escaped.
pub fn name(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// Whole output: line feeds and tabs stay, every other control character is escaped.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

/// A JSON document with no character in its strings that a terminal would obey; it says the same.
///
/// RFC 8259 (section 7) has C0 escaped, which every writer does, and leaves DEL, C1 and the marks
/// of writing direction as they are.
pub fn json(text: &str) -> Cow<'_, str> {
    let is_bad = |c: char| is_control(c) && !c.is_ascii() || c == '\u{7f}';
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            // None of them is beyond the Basic Multilingual Plane.
            c if is_bad(c) => write!(out, "\\u{:04x}", u32::from(c)).expect("a string takes it"),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// How a path is written in text: on one line, see [`name`].
pub trait Shown {
    /// The path with every control character escaped, and what is not UTF-8 replaced by U+FFFD.
    fn shown(&self) -> String;
}

impl Shown for Path {
    fn shown(&self) -> String {
        name(&self.to_string_lossy()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_all_other_text_stays() {
        for plain in ["", "a b", "쓰기 경로", "a\\b", "├─ 4 µs", "👩‍💻"] {
            assert!(matches!(name(plain), Cow::Borrowed(same) if same == plain));
        }
        assert_eq!(name("\x1b]0;x\x07"), "\\x1b]0;x\\x07");
        assert_eq!(name("a\nfinding: b\r\t"), "a\\nfinding: b\\r\\t");
        assert_eq!(name("\u{9b}2J\u{7f}\u{202e}"), "\\x9b2J\\x7f\\u{202e}");
        assert_eq!(lines("a\tb\nc\rd\x08"), "a\tb\nc\\rd\\x08");
    }

    #[test]
    fn json_says_the_same_and_moves_no_cursor() {
        let text = "{\"a\u{9b}\": \"b\u{7f}\u{202e}\\u001b\"}\n";
        assert_eq!(json(text), "{\"a\\u009b\": \"b\\u007f\\u202e\\u001b\"}\n");
        assert!(matches!(json("{\"µ\": 1}\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_path_is_one_line() {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"a\nok: b\xff"));
        assert_eq!(path.shown(), "a\\nok: b\u{fffd}");
    }

    #[test]
    fn what_comes_out_has_no_control_character_whatever_goes_in() {
        let mut rng = crate::Rng::stream(1, "plain");
        for _ in 0..2000 {
            let text: String = (0..rng.below(20))
                .filter_map(|_| char::from_u32(rng.below(0x2100) as u32))
                .collect();
            let shown = name(&text);
            assert!(!shown.contains(is_control), "{text:?}: {shown:?}");
            assert_eq!(name(&shown), shown, "it is escaped once");
            assert!(!lines(&text).contains(|c| is_control(c) && c != '\n' && c != '\t'));
        }
    }
}
