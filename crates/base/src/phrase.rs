//! Phrases with parts, and their translation: `{0} of {1} cuts`.
//!
//! ```text
//! pattern "at {0} KiB", text "at 16 KiB" -> parts ["16"] -> fill("{0} KiB에서") -> "16 KiB에서"
//! ```
//! Invariant: a part is carried as it is; no number is written anew.

/// What stands for `{0}`, `{1}`, … in a text (they come in this order), if it is that pattern. No
/// part is empty.
pub fn parts<'t>(pattern: &str, text: &'t str) -> Option<Vec<&'t str>> {
    let mut literals = pattern.split('{').map(|p| p.split_once('}').map_or(p, |(_, l)| l));
    let mut rest = text.strip_prefix(literals.next()?)?;
    let mut out = Vec::new();
    let mut literals = literals.peekable();
    while let Some(literal) = literals.next() {
        let is_last = literals.peek().is_none();
        let at = if is_last {
            rest.len().checked_sub(literal.len()).filter(|_| rest.ends_with(literal))?
        } else {
            rest.find(literal)?
        };
        if at == 0 {
            return None;
        }
        out.push(&rest[..at]);
        rest = &rest[at + literal.len()..];
    }
    rest.is_empty().then_some(out)
}

/// A pattern with its `{0}`, `{1}`, … put in; one that is not there is `?`.
pub fn fill(pattern: &str, parts: &[&str]) -> String {
    let mut out = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let (index, after) = after.split_once('}').unwrap_or((after, ""));
        out.push_str(index.parse().ok().and_then(|i: usize| parts.get(i)).unwrap_or(&"?"));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The pattern of a list that fits best, by its place, and the parts. The shortest parts say most:
/// `{0}: share of {1}` before `{0}: {1}`.
pub fn find<'t, 'p>(
    patterns: impl Iterator<Item = &'p str>,
    text: &'t str,
) -> Option<(usize, Vec<&'t str>)> {
    let found = patterns.enumerate().filter_map(|(n, p)| Some((n, parts(p, text)?)));
    found.min_by_key(|(_, p)| p.iter().map(|p| p.len()).sum::<usize>())
}

/// A text by a list of phrases in two languages. What is no phrase as a whole is taken apart at
/// `; `, and what is none then at `, `: a part reaches over neither, but for a list of names whose
/// items are no phrases. `None`: a piece is in none of them.
pub fn translate(phrases: &[[String; 2]], text: &str) -> Option<String> {
    let one = |text: &str| {
        let (n, parts) = find(phrases.iter().map(|p| p[0].as_str()), text)?;
        Some((fill(&phrases[n][1], &parts), parts.iter().any(|p| p.contains([';', ',']))))
    };
    let whole = |text: &str| one(text).filter(|(_, is_loose)| !is_loose).map(|(said, _)| said);
    let apart = |text: &str, at: &str, each: &dyn Fn(&str) -> Option<String>| {
        let pieces: Option<Vec<String>> = text.split(at).map(each).collect();
        pieces.map(|p| p.join(at))
    };
    let loose = |text: &str| one(text).map(|(said, _)| said);
    let list =
        |text: &str| whole(text).or_else(|| apart(text, ", ", &whole)).or_else(|| loose(text));
    whole(text).or_else(|| apart(text, "; ", &list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_never_empty_and_nothing_is_left_over() {
        assert_eq!(parts("a {0} b", "a x b"), Some(vec!["x"]));
        assert_eq!(parts("a {0} b", "a  b"), None);
        assert_eq!(parts("a {0} b", "a x b c"), None);
        assert_eq!(parts("same", "same"), Some(Vec::new()));
        assert_eq!(parts("same", "same."), None);
        assert_eq!(fill("{1} of {0}", &["ten", "two"]), "two of ten");
        assert_eq!(fill("{1} of {0}", &["ten"]), "? of ten");
    }

    #[test]
    fn a_text_is_translated_whole_or_piece_by_piece_or_not_at_all() {
        let phrases = [("a {0}", "{0}에서 a"), ("b; c", "다"), ("b {0}", "{0}에서 b"), ("c", "라")]
            .map(|(en, ko)| [en, ko].map(str::to_owned));
        let ko = |text| translate(&phrases, text);
        assert_eq!(ko("a 1.5").as_deref(), Some("1.5에서 a"));
        assert_eq!(ko("b; c").as_deref(), Some("다"), "the whole of it first");
        assert_eq!(ko("c; b 2").as_deref(), Some("라; 2에서 b"));
        assert_eq!(ko("c; a 1, b 2, c").as_deref(), Some("라; 1에서 a, 2에서 b, 라"));
        assert_eq!(ko("a x, y").as_deref(), Some("x, y에서 a"), "a list of names");
        assert_eq!(ko("c; d"), None);
        assert_eq!(ko(""), None);
    }
}
