//! Text from outside (names in images, jobs, traces) as a terminal may be given it.
//!
//! A file name may hold any byte. Escape sequences in one would move the cursor, change the title
//! or hide lines of a report; a line feed would forge one; marks of writing direction would show
//! it in another order.

use std::borrow::Cow;
use std::fmt::Write;

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
