//! Wraps comments that are wider than a line; rustfmt leaves them alone.
//!
//! Only whole-line comments: what does not fit moves to the line below, if that one goes on with
//! the same paragraph, or else to a new line. Tables, code blocks and words without a space stay
//! as they are. A text that fits comes back unchanged.

/// Rewrites the comments of a Rust text so that they fit into `width` characters.
pub fn wrap_comments(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut in_code_block = false;
    let mut at = 0;
    while at < lines.len() {
        let Some(comment) = Comment::parse(&lines[at]) else {
            in_code_block = false;
            at += 1;
            continue;
        };
        in_code_block ^= comment.body.trim_start().starts_with("```");
        let fits = lines[at].chars().count() <= width;
        let is_table = comment.body.trim_start().starts_with('|');
        let breaks = if fits || is_table || in_code_block { None } else { comment.split(width) };
        if let Some((kept, rest)) = breaks {
            let next = lines.get(at + 1).and_then(|line| Comment::parse(line));
            let hang = comment.hang(next.as_ref());
            let joined = next.filter(|next| next.continues(&comment, hang)).map(|next| {
                format!("{}{:hang$}{rest} {}", comment.prefix, "", next.body.trim_start())
            });
            let fresh = format!("{}{:hang$}{rest}", comment.prefix, "");
            lines[at] = kept;
            match joined {
                Some(line) => lines[at + 1] = line,
                None => lines.insert(at + 1, fresh),
            }
        }
        at += 1;
    }
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

/// A line that is nothing but a comment.
struct Comment<'a> {
    /// Indentation and `//`, `///` or `//!`.
    prefix: &'a str,
    /// What follows, its leading spaces included.
    body: &'a str,
}

impl<'a> Comment<'a> {
    fn parse(line: &'a str) -> Option<Comment<'a>> {
        let indent = line.len() - line.trim_start().len();
        let marker = ["//!", "///", "//"].into_iter().find(|m| line[indent..].starts_with(m))?;
        let (prefix, body) = line.split_at(indent + marker.len());
        Some(Comment { prefix, body })
    }

    /// The line up to the last space at which it may break, and the words after it.
    fn split(&self, width: usize) -> Option<(String, String)> {
        let room = width.checked_sub(self.prefix.chars().count())?;
        let text_from = self.body.len() - self.body.trim_start().len();
        let may_break = |at: usize| {
            // A word that would start a list, a heading or a quotation on the next line stays.
            let word = self.body[at..].split_whitespace().next().unwrap_or_default();
            at > text_from && item_width(&format!("{word} ")) == 0 && !word.starts_with(['#', '>'])
        };
        let mut spaces = self.body.match_indices(' ').map(|(at, _)| at);
        let at = spaces.rfind(|&at| self.body[..at].chars().count() <= room && may_break(at))?;
        let kept = format!("{}{}", self.prefix, self.body[..at].trim_end());
        Some((kept, self.body[at..].trim().to_owned()))
    }

    fn leading(&self) -> usize {
        self.body.len() - self.body.trim_start().len()
    }

    /// How far the rest of this line is indented: as the line below, if that goes on with it.
    fn hang(&self, next: Option<&Comment<'_>>) -> usize {
        let text = self.body.trim_start();
        let own = self.leading() + label_width(text);
        let own = own + item_width(&self.body[own.min(self.body.len())..]);
        let goes_on = next.filter(|next| {
            next.leading() >= self.leading() && next.continues(self, next.leading())
        });
        goes_on.map_or(own, Comment::leading)
    }

    /// Does this line go on with the paragraph of the one above, indented by `hang`?
    fn continues(&self, above: &Comment<'_>, hang: usize) -> bool {
        let text = self.body.trim_start();
        let starts_anew = text.is_empty()
            || text.starts_with(['#', '|', '>'])
            || text.starts_with("```")
            || text.contains("]: ")
            || item_width(text) > 0
            || label_width(text) > 0;
        self.prefix == above.prefix && self.leading() == hang && !starts_anew
    }
}

/// Width of `- `, `* ` or `12. ` at the start of a list's item; 0 if it is none.
fn item_width(text: &str) -> usize {
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    let rest = &text[digits..];
    match digits {
        0 if ["- ", "* ", "+ "].iter().any(|bullet| rest.starts_with(bullet)) => 2,
        1.. if rest.starts_with(". ") || rest.starts_with(") ") => digits + 2,
        _ => 0,
    }
}

/// Width of a label with the spaces behind it (`Errors:  `); 0 if there is none.
fn label_width(text: &str) -> usize {
    let Some((label, rest)) = text.split_once(": ") else {
        return 0;
    };
    let is_label = label.starts_with(|c: char| c.is_ascii_uppercase())
        && label.len() <= 12
        && label.chars().all(|c| c.is_ascii_alphabetic() || c == ' ');
    if !is_label {
        return 0;
    }
    label.len() + 2 + (rest.len() - rest.trim_start().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(lines: &[&str]) -> Vec<String> {
        wrap_comments(&format!("{}\n", lines.join("\n")), 20).lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_fits_is_unchanged_to_the_byte() {
        let text = "//! A.\n\n/// Twenty characters\nfn a() {}\n    // b\n";
        assert_eq!(wrap_comments(text, 21), text);
    }

    #[test]
    fn what_does_not_fit_goes_on_in_the_same_paragraph() {
        let lines = ["/// one two three four five", "/// six seven", "///", "/// eight"];
        let expected = ["/// one two three", "/// four five six", "/// seven", "///", "/// eight"];
        assert_eq!(wrapped(&lines), expected);
    }

    #[test]
    fn labels_and_items_hang_and_are_not_joined() {
        let lines = ["//! Left:  one two three", "//! Right: a", "//! 1. one two three four"];
        assert_eq!(
            wrapped(&lines),
            [
                "//! Left:  one two",
                "//!        three",
                "//! Right: a",
                "//! 1. one two three",
                "//!    four",
            ]
        );
    }

    #[test]
    fn a_paragraph_keeps_the_indentation_that_it_has() {
        let lines = [
            "/// Shape: one two three",
            "/// [`Four`] five",
            "",
            "// - a b c d e f g h i",
            "//     j k",
        ];
        let expected = ["/// Shape: one two", "/// three [`Four`]", "/// five", ""];
        assert_eq!(wrapped(&lines)[..4], expected);
        assert_eq!(wrapped(&lines)[4..], ["// - a b c d e f g h", "//     i j k"]);
    }

    #[test]
    fn tables_code_blocks_code_and_single_words_stay() {
        let lines = [
            "/// | one | two | three | four |",
            "/// ```",
            "/// let a = 1; let b = 2;",
            "/// ```",
            "let a = 1; // one two three four five",
            "// AVeryLongWordWithoutSpaces",
        ];
        assert_eq!(wrapped(&lines), lines);
    }

    #[test]
    fn a_break_never_makes_a_list() {
        let wrapped = wrapped(&["// one two abcd efg - hij"]);
        assert_eq!(wrapped, ["// one two abcd", "// efg - hij"]);
    }
}
