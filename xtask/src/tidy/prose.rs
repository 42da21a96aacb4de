//! The language of the documents: private phrases that have a term in the field, and long
//! sentences.
//!
//! In a page the rules read the prose: paragraphs and list items, for phrases also tables and
//! headings; no fenced blocks, code spans and targets of links. In Rust they read each block of doc
//! comments as a page, and the string literals of the command; only phrases are refused there.

use super::{Findings, is_test_path, numbered};
use crate::repo::TextFile;

/// Words of a sentence in a page; code spans count as one word each.
const SENTENCE_WORDS_MAX: usize = 40;

/// A phrase that readers have to translate.
pub struct Phrase {
    /// In lower case, with one space between words; matched as whole words.
    pub words: &'static str,
    /// What the field says.
    pub instead: &'static str,
    /// Longer phrases in which the words mean something else.
    pub allowed: &'static [&'static str],
}

const fn phrase(words: &'static str, instead: &'static str) -> Phrase {
    Phrase { words, instead, allowed: &[] }
}

/// Phrases that no page may have.
pub const PHRASES: &[Phrase] = &[
    phrase("held against", "validated against, compared with"),
    phrase("hold it against", "compare it with"),
    phrase("is content", "passes `e2fsck -fn`"),
    phrase("are content", "pass `e2fsck -fn`"),
    phrase("who is told", "which caller gets EIO (errseq)"),
    phrase("take the power away", "power failure"),
    phrase("takes the power away", "the power fails"),
    phrase("takes its power away", "the power fails"),
    phrase("cut everywhere", "every crash point"),
    phrase("in doubt", "unpersisted"),
    phrase("distinct states, each", "distinct recovered states"),
    phrase("broken never", "ok"),
    phrase("not asked", "not checked"),
    phrase("recovery makes otherwise", "recovery mismatches"),
    phrase("hole of linux", "a Linux bug found by Writepath"),
    phrase("holes that linux has", "bugs of Linux"),
    phrase("mend", "fix"),
    phrase("mends", "fixes"),
    phrase("mended", "fixed"),
    phrase("parameters of assumed costs", "assumed cost parameters"),
    phrase("what it is worth", "cost and benefit"),
    phrase("what they are worth", "cost and benefit"),
    phrase("for real clients", "over NBD or vhost-user"),
    phrase("way out", "hint"),
    phrase("so many", "name the number: every N µs"),
    phrase("personalities", "workload models (`.f` files)"),
    phrase("filebench text", "filebench workload model"),
    phrase("text of filebench", "filebench workload model"),
    phrase("are visited", "are explored"),
    Phrase {
        words: "looked at",
        instead: "explored, examined, checked",
        allowed: &["nobody had looked at"],
    },
    phrase("a crash is safe by", "crash-safety point"),
    phrase("until somebody misses it", "until an oracle detects it"),
    phrase("what of it", "name the thing"),
    phrase("nothing of it", "name the thing"),
    phrase("as the era does it", "as the kernel version does it"),
];

/// Checks one page.
pub fn check_page(file: &TextFile, findings: &mut Findings) {
    for piece in pieces(&file.text) {
        for phrase in found(&piece.text) {
            findings.errors.push(refusal(file, piece.line, phrase));
        }
        if piece.is_table || !has_own_sentences(&file.path) {
            continue;
        }
        for (words, start) in long_sentences(&piece.text) {
            findings.errors.push(format!(
                "{}:{}: a sentence of {words} words, at most {SENTENCE_WORDS_MAX}: `{start} …`",
                file.path, piece.line
            ));
        }
    }
}

/// Checks the doc comments of a Rust file, and its string literals if it belongs to the command.
pub fn check_rust(file: &TextFile, code: &str, findings: &mut Findings) {
    if is_test_path(&file.path) {
        return;
    }
    for (first, comment) in doc_comments(&file.text) {
        for piece in pieces(&comment) {
            for phrase in found(&piece.text) {
                findings.errors.push(refusal(file, first + piece.line - 1, phrase));
            }
        }
    }
    if !file.path.starts_with("crates/cli/src/") {
        return;
    }
    for (line, literal) in literals(&file.text, code) {
        for phrase in found(&without_code_spans(&literal)) {
            findings.errors.push(refusal(file, line, phrase));
        }
    }
}

/// Data of others keeps the notes of those who recorded it.
fn has_own_sentences(path: &str) -> bool {
    !path.starts_with("testdata/reference/")
}

fn refusal(file: &TextFile, line: usize, phrase: &Phrase) -> String {
    format!("{}:{line}: `{}`: say: {}", file.path, phrase.words, phrase.instead)
}

/// A paragraph, a list item, a heading or a row of a table, as one line of prose.
struct Piece {
    line: usize,
    text: String,
    is_table: bool,
}

/// The prose of a page. A licence is quoted, so its section has none.
fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let (mut in_fence, mut in_licence, mut open) = (false, false, false);
    for (number, line) in numbered(text) {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        in_fence ^= is_fence;
        if is_fence || in_fence || line.is_empty() || line.starts_with("<!--") {
            open = false;
            continue;
        }
        let is_heading = line.starts_with('#');
        if is_heading {
            in_licence = line.to_lowercase().contains("licence");
        }
        if in_licence {
            continue;
        }
        let is_table = line.starts_with('|');
        if open && !is_table && !is_heading && !is_item(line) {
            let piece = pieces.last_mut().expect("an open piece");
            piece.text.push(' ');
            piece.text.push_str(line);
        } else {
            pieces.push(Piece { line: number, text: line.to_owned(), is_table });
        }
        open = !is_table && !is_heading;
    }
    for piece in &mut pieces {
        piece.text = without_links(&without_code_spans(&piece.text));
    }
    pieces
}

fn is_item(line: &str) -> bool {
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = rest.len() < line.len() && (rest.starts_with(". ") || rest.starts_with(") "));
    numbered || ["- ", "* ", "+ "].iter().any(|bullet| line.starts_with(bullet))
}

/// Puts a word that stands for code in the place of each code span.
fn without_code_spans(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('`') {
        let ticks = 1 + after.len() - after.trim_start_matches('`').len();
        let body = &after[ticks - 1..];
        let Some((_, behind)) = body.split_once(&"`".repeat(ticks)) else { break };
        out.push_str(before);
        out.push_str("CODE");
        rest = behind;
    }
    out + rest
}

/// Leaves out where links lead.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        out.push_str(before);
        rest = after.split_once(')').map_or("", |(_, behind)| behind);
    }
    out + rest
}

/// The phrases in a text.
fn found(text: &str) -> Vec<&'static Phrase> {
    let text = text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    let bare = |phrase: &Phrase| phrase.allowed.iter().fold(text.clone(), |t, a| t.replace(a, ""));
    PHRASES.iter().filter(|p| super::contains_word(&bare(p), p.words)).collect()
}

/// Number of words and first words of each sentence that is too long.
fn long_sentences(text: &str) -> Vec<(usize, String)> {
    let mut long = Vec::new();
    let mut sentence: Vec<&str> = Vec::new();
    let mut finish = |sentence: &mut Vec<&str>| {
        let words = sentence.iter().filter(|w| w.contains(char::is_alphanumeric)).count();
        if words > SENTENCE_WORDS_MAX {
            long.push((words, sentence[..6].join(" ")));
        }
        sentence.clear();
    };
    for word in text.split_whitespace() {
        sentence.push(word);
        if word.trim_end_matches([')', '"', '*', '_', ']']).ends_with(['.', '!', '?']) {
            finish(&mut sentence);
        }
    }
    finish(&mut sentence);
    long
}

/// Each block of doc comments as a page, with the number of its first line.
fn doc_comments(text: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut open = "";
    for (number, line) in numbered(text) {
        let line = line.trim_start();
        let marker = ["///", "//!"].into_iter().find(|m| line.starts_with(m)).unwrap_or("");
        if marker.is_empty() {
            open = "";
            continue;
        }
        if marker != open {
            blocks.push((number, String::new()));
        }
        open = marker;
        let (_, block) = blocks.last_mut().expect("an open block");
        block.push_str(&line[marker.len()..]);
        block.push('\n');
    }
    blocks
}

/// Each string literal with the number of the line that it begins in. `code` is `text` with the
/// insides of literals blanked out (`scan::code_only`).
fn literals(text: &str, code: &str) -> Vec<(usize, String)> {
    let mut literals: Vec<(usize, String)> = Vec::new();
    let (mut line, mut inside) = (1, false);
    for (c, visible) in text.chars().zip(code.chars()) {
        if visible == '"' {
            inside = !inside;
            if inside {
                literals.push((line, String::new()));
            }
        } else if inside {
            let (_, literal) = literals.last_mut().expect("an open literal");
            // A backslash before a line break joins two lines.
            literal.push(if c == '\\' { ' ' } else { c });
        }
        line += usize::from(c == '\n');
    }
    literals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan;

    fn page(path: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check_page(&TextFile { path: path.into(), text: text.into() }, &mut findings);
        findings.errors
    }

    fn rust(path: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        let file = TextFile { path: path.into(), text: text.into() };
        check_rust(&file, &scan::code_only(text), &mut findings);
        findings.errors
    }

    #[test]
    fn every_phrase_is_refused_across_a_line_break_in_a_table_and_in_a_heading() {
        for phrase in PHRASES {
            let broken = phrase.words.replacen(' ', "\n", 1);
            for text in [
                format!("First.\n\nIt {broken} here.\n"),
                format!("First.\n\n| It {} here |\n", phrase.words),
                format!("First.\n\n# It {}\n", phrase.words.to_uppercase()),
            ] {
                let found = page("docs/a.md", &text);
                assert_eq!(found.len(), 1, "{text}: {found:?}");
                assert!(found[0].starts_with("docs/a.md:3: `"), "{found:?}");
                assert!(found[0].ends_with(phrase.instead), "{found:?}");
            }
        }
    }

    #[test]
    fn what_a_page_quotes_is_not_its_prose() {
        for text in [
            "```\nwhat is in doubt\n```\n",
            "The field `in doubt` and ``the ` mended`` one.\n",
            "See [that](docs/mended.md).\n",
            "<!-- mended -->\n",
            "## MIT licence\n\nWhat is in doubt.\n",
        ] {
            assert_eq!(page("docs/a.md", text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(page("docs/a.md", "## MIT licence\n\na\n\n## B\n\nIn doubt.\n").len(), 1);
    }

    #[test]
    fn a_phrase_in_another_meaning_and_a_part_of_a_word_are_allowed() {
        assert!(page("docs/a.md", "Programs that nobody had\nlooked at before.\n").is_empty());
        assert_eq!(page("docs/a.md", "States that are looked at.\n").len(), 1);
        assert!(page("docs/a.md", "An amended commit; so manyfold.\n").is_empty());
    }

    #[test]
    fn a_sentence_of_41_words_is_refused_and_one_of_40_is_not() {
        let sentence = |n: usize| format!("{}end.\n", "word ".repeat(n - 1));
        assert!(page("docs/a.md", &sentence(40)).is_empty());
        let found = page("docs/a.md", &format!("Short.\n\n- Short (too.) {}", sentence(41)));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("docs/a.md:3: a sentence of 41 words, at most 40"));
        let code = format!("`{}` {}", sentence(30).trim(), sentence(39));
        assert!(page("docs/a.md", &code).is_empty());
    }

    #[test]
    fn items_tables_and_data_of_others_have_no_long_sentences() {
        let words = |n: usize| "word ".repeat(n);
        let items = format!("{}\n- {}\n2. {}\n", words(40), words(39), words(39));
        assert!(page("docs/a.md", &items).is_empty(), "{:?}", page("docs/a.md", &items));
        assert!(page("docs/a.md", &format!("| {} |\n", words(50))).is_empty());
        assert!(page("testdata/reference/x/README.md", &words(50)).is_empty());
        assert_eq!(page("docs/a.md", &words(50)).len(), 1);
    }

    #[test]
    fn doc_comments_and_the_commands_literals_are_read_and_other_code_is_not() {
        let comment = "/// A state that is in doubt.\nfn a() {}\n";
        assert_eq!(rust("crates/x/src/a.rs", comment).len(), 1);
        assert_eq!(rust("crates/x/src/a.rs", &comment.replace("///", "//!")).len(), 1);
        assert!(rust("crates/x/src/a.rs", &comment.replace("///", "//")).is_empty());
        assert!(rust("crates/x/tests/a.rs", comment).is_empty());
        let literal = "    print(\"units in doubt\");\n";
        assert_eq!(rust("crates/cli/src/a.rs", literal).len(), 1);
        assert!(rust("crates/x/src/a.rs", literal).is_empty());
        assert!(rust("crates/cli/src/a.rs", "let mended = fix(\"a\");\n").is_empty());
        assert!(rust("crates/cli/src/a.rs", "// \"in doubt\"\nlet a = '\"';\n").is_empty());
    }

    #[test]
    fn a_phrase_is_found_across_a_line_break_of_a_comment_and_of_a_literal() {
        let comment = "\n    /// A state that is in\n    /// doubt.\n    fn a() {}\n";
        let found = rust("crates/x/src/a.rs", comment);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/x/src/a.rs:2: `in doubt`"), "{found:?}");
        let literal = "fn a() {\n    print(\n        \"units in \\\n         doubt\",\n    );\n}\n";
        let found = rust("crates/cli/src/a.rs", literal);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/cli/src/a.rs:3: `in doubt`"), "{found:?}");
        let two = "/// What is in\nconst A: u32 = 0;\n/// doubt.\nconst B: u32 = 0;\n";
        assert!(rust("crates/x/src/a.rs", two).is_empty());
        let fenced = "/// ```text\n/// in doubt\n/// ```\nfn a() {}\n";
        assert!(rust("crates/x/src/a.rs", fenced).is_empty());
    }
}
