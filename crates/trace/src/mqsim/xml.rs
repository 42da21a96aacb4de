//! The XML that MQSim's files are written in: elements with text or with elements, nothing else.
//!
//! Left out: attributes, CDATA, entities of one's own; MQSim's files have none.

use crate::error::{Place, Wrong};

/// Deepest nesting; MQSim's is 4.
const DEPTH_MAX: usize = 16;
/// Most elements of a file; a scenario of ten flows has 250.
const ELEMENTS_MAX: usize = 100_000;

/// An element.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Element {
    pub name: String,
    /// Where it begins.
    pub line: u64,
    /// What is in it but elements, without surrounding blanks.
    pub text: String,
    pub children: Vec<Element>,
}

/// Reads a text.
struct Reader<'t> {
    rest: &'t str,
    line: u64,
    elements: usize,
}

/// The outermost element of a text. Errors: a text that is not well formed, or has what is left out
/// here.
pub(super) fn parse(text: &str) -> Result<Element, Wrong> {
    let mut reader = Reader { rest: text, line: 1, elements: 0 };
    reader.skip_outside()?;
    let root = reader.element(0)?;
    reader.skip_outside()?;
    match reader.rest.is_empty() {
        true => Ok(root),
        false => Err(reader.wrong("something is behind the outermost element")),
    }
}

impl<'t> Reader<'t> {
    fn wrong(&self, what: impl Into<String>) -> Wrong {
        let help = "expected an XML file as MQSim reads it: <NAME>VALUE</NAME>";
        Wrong::new(Place::Line(self.line), what, help)
    }

    /// Takes some bytes.
    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.bytes().filter(|b| *b == b'\n').count() as u64;
        self.rest = rest;
        taken
    }

    /// Takes all before a word, and the word.
    fn until(&mut self, word: &str, what: &str) -> Result<&'t str, Wrong> {
        let Some(at) = self.rest.find(word) else {
            return Err(self.wrong(format!("{what} has no end (`{word}`)")));
        };
        let taken = self.take(at);
        self.take(word.len());
        Ok(taken)
    }

    /// Passes over a comment or a declaration, if one begins here.
    fn skip_remark(&mut self) -> Result<bool, Wrong> {
        if self.rest.starts_with("<!--") {
            self.until("-->", "a comment")?;
            return Ok(true);
        }
        if self.rest.starts_with("<?") {
            self.until("?>", "a declaration")?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Passes over what may be outside the outermost element.
    fn skip_outside(&mut self) -> Result<(), Wrong> {
        loop {
            let blanks = self.rest.len() - self.rest.trim_start().len();
            self.take(blanks);
            if !self.skip_remark()? {
                return Ok(());
            }
        }
    }

    fn element(&mut self, depth: usize) -> Result<Element, Wrong> {
        self.elements += 1;
        if depth > DEPTH_MAX || self.elements > ELEMENTS_MAX {
            return Err(self.wrong("too many elements"));
        }
        if !self.rest.starts_with('<') || self.rest.starts_with("</") {
            return Err(self.wrong("no element begins here"));
        }
        let line = self.line;
        self.take(1);
        let tag = self.until(">", "a tag")?;
        let (name, is_empty) = match tag.strip_suffix('/') {
            Some(name) => (name.trim_end(), true),
            None => (tag.trim_end(), false),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || !name.chars().all(is_name) {
            let shown = crate::blkparse::shortened(name);
            return Err(self.wrong(format!("`<{shown}>` is no name of an element")));
        }
        let mut element = Element { name: name.to_owned(), line, ..Element::default() };
        if is_empty {
            return Ok(element);
        }
        let mut text = String::new();
        loop {
            if self.skip_remark()? {
                continue;
            }
            if self.rest.starts_with("</") {
                self.take(2);
                let end = self.until(">", "a tag")?.trim();
                if end != name {
                    let end = crate::blkparse::shortened(end);
                    let what = format!("`</{end}>` ends `<{name}>` of line {line}");
                    return Err(self.wrong(what));
                }
                element.text = unescaped(text.trim());
                return Ok(element);
            }
            if self.rest.starts_with('<') {
                element.children.push(self.element(depth + 1)?);
                continue;
            }
            match self.rest.find('<') {
                Some(at) => text.push_str(self.take(at)),
                None => return Err(self.wrong(format!("`<{name}>` of line {line} has no end"))),
            }
        }
    }
}

/// A text with the five characters that XML has names for.
fn unescaped(text: &str) -> String {
    let names = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    names.iter().fold(text.to_owned(), |text, (name, c)| text.replace(name, c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_texts_and_remarks() {
        let text = "<?xml version=\"1.0\"?>\n<!-- a -->\n<A>\n <B> x &amp; <!-- no -->y </B>\n <C/>\n</A>\n";
        let root = parse(text).expect("well formed");
        assert_eq!((root.name.as_str(), root.line, root.children.len()), ("A", 3, 2));
        assert_eq!((root.children[0].text.as_str(), root.children[0].line), ("x & y", 4));
        assert_eq!(root.children[1].text, "");
    }

    #[test]
    fn what_is_not_well_formed_is_refused_with_its_line() {
        let wrong = [
            ("", 1, "no element begins"),
            ("<A>\n<B>x</C></A>", 2, "ends `<B>`"),
            ("<A>\n<B>x", 2, "has no end"),
            ("<A b=\"1\"></A>", 1, "no name of an element"),
            ("<A></A>\n<B></B>", 2, "behind the outermost"),
            ("<A><!-- x</A>", 1, "a comment has no end"),
            ("<A", 1, "a tag has no end"),
        ];
        for (text, line, says) in wrong {
            let e = parse(text).expect_err(text);
            assert!(e.place == Place::Line(line) && e.what.contains(says), "{text}: {e:?}");
        }
        let deep = "<A>".repeat(100);
        assert!(parse(&deep).expect_err("deep").what.contains("too many"));
    }
}
