//! Words of a WML text, each with its place.
//!
//! Any bytes are taken: what is no UTF-8 becomes replacement characters. Lines mean nothing to the
//! grammar; a comment goes from `#` to the end of its line.

use std::rc::Rc;

use crate::fio::{Diagnostic, Place};

/// Most words of a text.
const TOKENS_MAX: usize = 200_000;

/// What a word is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// A keyword or a name.
    Word(String),
    /// A number, with its `k`, `m`, `g` worked in.
    Int(u64),
    /// A number below 0.
    Negative(u64),
    /// What stands between quotes.
    Text(String),
    /// `$NAME`, without the sign.
    Variable(String),
    /// `{ } ( ) = ,`.
    Sign(char),
}

/// A word and its place.
#[derive(Clone, Debug)]
pub(super) struct Lexed {
    pub(super) token: Token,
    pub(super) at: Place,
    /// Is it the first of its line?
    pub(super) is_first: bool,
}

struct Line<'a> {
    file: &'a Rc<str>,
    number: u32,
    text: &'a Rc<str>,
    chars: &'a [char],
}

impl Line<'_> {
    fn place(&self, from: usize, to: usize) -> Place {
        Place {
            file: self.file.clone(),
            line: self.number,
            column: from as u32 + 1,
            width: to.saturating_sub(from).max(1) as u32,
            text: self.text.clone(),
        }
    }

    fn word(&self, from: usize, is_part: impl Fn(char) -> bool) -> usize {
        let rest = &self.chars[from..];
        from + rest.iter().take_while(|c| is_part(**c)).count()
    }

    fn string(&self, from: usize, to: usize) -> String {
        self.chars[from..to].iter().collect()
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "/._:;-_".contains(c)
}

/// A number and its unit, which must be all of the word.
fn number(word: &str) -> Result<u64, &'static str> {
    let digits = word.trim_end_matches(['k', 'm', 'g']);
    let shift = match &word[digits.len()..] {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err("a number has one unit: k, m or g"),
    };
    let n: u64 = digits.parse().map_err(|_| "not a whole number with a suffix k, m or g")?;
    let n = n.checked_mul(1 << shift).filter(|n| *n <= i64::MAX as u64);
    n.ok_or("this number is too large")
}

/// Splits a text into words.
pub(super) fn lex(name: &str, bytes: &[u8], found: &mut Vec<Diagnostic>) -> Vec<Lexed> {
    let text = String::from_utf8_lossy(bytes);
    let file: Rc<str> = name.into();
    let mut all: Vec<Lexed> = Vec::new();
    // Text of a string that goes over lines, and where it began.
    let mut open: Option<(String, Place)> = None;
    for (i, raw) in text.split('\n').enumerate() {
        let text: Rc<str> = raw.trim_end_matches('\r').into();
        let chars: Vec<char> = text.chars().collect();
        let line = Line { file: &file, number: i as u32 + 1, text: &text, chars: &chars };
        let before = all.len();
        let mut at = 0;
        if let Some((so_far, _)) = &mut open {
            so_far.push('\n');
        }
        while at < chars.len() {
            if all.len() >= TOKENS_MAX {
                let message = "this text is too long";
                found.push(Diagnostic::error(&line.place(at, at + 1), message, ""));
                return all;
            }
            if let Some((mut so_far, start)) = open.take() {
                let end = line.word(at, |c| c != '"');
                so_far += &line.string(at, end);
                if end == chars.len() {
                    open = Some((so_far, start));
                } else {
                    let token = Token::Text(so_far);
                    all.push(Lexed { token, at: start, is_first: false });
                }
                at = end + 1;
                continue;
            }
            let c = chars[at];
            let is_first = all.len() == before;
            let mut push = |token, to| {
                all.push(Lexed { token, at: line.place(at, to), is_first });
                to
            };
            at = match c {
                '#' => break,
                c if c.is_whitespace() => at + 1,
                '"' => {
                    open = Some((String::new(), line.place(at, at + 1)));
                    at + 1
                }
                '{' | '}' | '(' | ')' | '=' | ',' => push(Token::Sign(c), at + 1),
                '$' => {
                    let from = at + 1;
                    let brackets = from + usize::from(matches!(chars.get(from), Some('{' | '(')));
                    let end = line.word(brackets, |c| c.is_ascii_alphanumeric() || c == '_');
                    let close = match (brackets > from, chars.get(end)) {
                        (true, Some('}' | ')')) => end + 1,
                        _ => end,
                    };
                    let name = line.string(brackets, end);
                    if name.is_empty() {
                        let message = "a variable's name follows `$`";
                        found.push(Diagnostic::error(
                            &line.place(at, close.max(from)),
                            message,
                            "",
                        ));
                    }
                    push(Token::Variable(name), close.max(from))
                }
                '0'..='9' => {
                    let end = line.word(at, |c| c.is_ascii_alphanumeric() || c == '.');
                    let n = number(&line.string(at, end)).unwrap_or_else(|why| {
                        found.push(Diagnostic::error(&line.place(at, end), why, ""));
                        0
                    });
                    push(Token::Int(n), end)
                }
                c if c == '/' || c == '-' || c.is_ascii_alphabetic() => {
                    let end = line.word(at, is_name);
                    let word = line.string(at, end);
                    let digits = word.strip_prefix('-').and_then(|d| d.parse().ok());
                    push(digits.map_or(Token::Word(word), Token::Negative), end)
                }
                _ => {
                    let message = format!("`{}` is not a part of WML", c.escape_default());
                    found.push(Diagnostic::error(&line.place(at, at + 1), message, ""));
                    at + 1
                }
            };
        }
    }
    if let Some((_, start)) = open {
        found.push(Diagnostic::error(&start, "this quote is not closed", "close it with `\"`"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> (Vec<Token>, usize) {
        let mut found = Vec::new();
        let all = lex("x.f", text.as_bytes(), &mut found);
        (all.into_iter().map(|l| l.token).collect(), found.len())
    }

    #[test]
    fn words_are_those_of_the_language() {
        let (all, errors) = tokens("set $dir=/tmp # comment \"x\"\nrun 60 -5 1m,\"a b\"{$x)${yy}");
        assert_eq!(errors, 0);
        let word = |w: &str| Token::Word(w.to_owned());
        let var = |w: &str| Token::Variable(w.to_owned());
        let want = vec![
            word("set"),
            var("dir"),
            Token::Sign('='),
            word("/tmp"),
            word("run"),
            Token::Int(60),
            Token::Negative(5),
            Token::Int(1 << 20),
            Token::Sign(','),
            Token::Text("a b".to_owned()),
            Token::Sign('{'),
            var("x"),
            Token::Sign(')'),
            var("yy"),
        ];
        assert_eq!(all, want);
    }

    #[test]
    fn what_is_none_is_said() {
        for bad in ["16kb", "1.5", "99999999999999999999", "@", "\"open", "$", "10000000000g"] {
            assert_eq!(tokens(bad).1, 1, "{bad}");
        }
    }
}
