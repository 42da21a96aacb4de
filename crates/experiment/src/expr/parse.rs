//! From text to an expression.

use std::ops::Range;

use super::{Expr, FUNCTIONS, Fold, Kind, Op, Term, Wrong};
use crate::read::suggest;

/// Longest text, and deepest nesting.
const LENGTH_MAX: usize = 10_000;
const DEPTH_MAX: u32 = 64;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(f64),
    Name(String),
    Sign(&'static str),
    End,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    token: Token,
    span: Range<usize>,
    depth: u32,
}

/// Reads an expression. Errors: the first place that is wrong.
pub fn parse(text: &str) -> Result<Expr, Wrong> {
    if text.len() > LENGTH_MAX {
        let what = format!("an expression of {} bytes", text.len());
        return Err(Wrong::new(0..1, what, format!("at most {LENGTH_MAX}")));
    }
    let mut p = Parser { text, at: 0, token: Token::End, span: 0..0, depth: 0 };
    p.next()?;
    let expr = p.comparison()?;
    match p.token {
        Token::End => Ok(expr),
        _ => Err(p.unexpected("the end, or an operator: + - * / < <= > >= == !=")),
    }
}

const SIGNS: [&str; 14] =
    ["<=", ">=", "==", "!=", "+", "-", "*", "/", "<", ">", "(", ")", ",", "["];
/// Signs that one finds in text, and what is meant.
const MEANT: [(&str, &str); 4] = [("−", "-"), ("×", "*"), ("÷", "/"), ("≥", ">=")];

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '.'
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Result<(), Wrong> {
        let blank = self.rest().len() - self.rest().trim_start().len();
        self.at += blank;
        let start = self.at;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            (self.token, self.span) = (Token::End, start..start);
            return Ok(());
        };
        let (token, length) = if let Some(s) = SIGNS.iter().find(|s| rest.starts_with(**s)) {
            (Token::Sign(s), s.len())
        } else if let Some((sign, meant)) = MEANT.iter().find(|(s, _)| rest.starts_with(*s)) {
            let meant = SIGNS.iter().find(|s| *s == meant).expect("one of the signs");
            (Token::Sign(meant), sign.len())
        } else if first == '"' {
            let end = rest[1..].find('"').ok_or_else(|| {
                Wrong::new(
                    start..self.text.len(),
                    "a quoted name that does not end",
                    "close it with \"",
                )
            })?;
            (Token::Name(rest[1..=end].to_owned()), end + 2)
        } else if first.is_ascii_digit() {
            self.number()?
        } else if is_name(first) {
            let length = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            (Token::Name(rest[..length].to_owned()), length)
        } else {
            let end = start + first.len_utf8();
            return Err(Wrong::new(start..end, format!("`{first}` means nothing here"), ""));
        };
        self.at = start + length;
        (self.token, self.span) = (token, start..start + length);
        Ok(())
    }

    fn number(&self) -> Result<(Token, usize), Wrong> {
        let rest = self.rest();
        let mut length = 0;
        let mut before = ' ';
        for c in rest.chars() {
            let signs = matches!(c, '+' | '-') && matches!(before, 'e' | 'E');
            if !(is_name(c) || signs) {
                break;
            }
            length += c.len_utf8();
            before = c;
        }
        let text = &rest[..length];
        let plain = text.replace('_', "");
        match plain.parse::<f64>() {
            Ok(x) if x.is_finite() => Ok((Token::Number(x), length)),
            _ => {
                let span = self.at..self.at + length;
                let help = "numbers are 10, 1.5, 1e9; a metric whose name begins so is quoted";
                Err(Wrong::new(span, format!("`{text}` is not a number"), help))
            }
        }
    }

    fn unexpected(&self, wanted: &str) -> Wrong {
        let found = match &self.token {
            Token::End => "the expression ends".to_owned(),
            _ => format!("`{}`", &self.text[self.span.clone()]),
        };
        Wrong::new(self.span.clone(), format!("{found} where {wanted} is expected"), "")
    }

    fn sign(&mut self, sign: &'static str) -> Result<bool, Wrong> {
        if self.token != Token::Sign(sign) {
            return Ok(false);
        }
        self.next()?;
        Ok(true)
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), Wrong> {
        if self.sign(sign)? { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    fn deeper(&mut self) -> Result<(), Wrong> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Wrong::new(self.span.clone(), "the expression nests too deep", ""));
        }
        Ok(())
    }

    fn comparison(&mut self) -> Result<Expr, Wrong> {
        self.deeper()?;
        let left = self.sum()?;
        let ops = [
            ("<", Op::Less),
            ("<=", Op::LessEq),
            (">", Op::More),
            (">=", Op::MoreEq),
            ("==", Op::Equal),
            ("!=", Op::Differs),
        ];
        let mut out = left;
        if let Some((_, op)) = ops.iter().find(|(s, _)| self.token == Token::Sign(s)) {
            self.next()?;
            let right = self.sum()?;
            out = binary(*op, out, right);
            if ops.iter().any(|(s, _)| self.token == Token::Sign(s)) {
                let help = "compare two at a time, in parentheses";
                return Err(Wrong::new(self.span.clone(), "a second comparison", help));
            }
        }
        self.depth -= 1;
        Ok(out)
    }

    fn sum(&mut self) -> Result<Expr, Wrong> {
        let mut left = self.product()?;
        loop {
            let op = match self.token {
                Token::Sign("+") => Op::Add,
                Token::Sign("-") => Op::Sub,
                _ => return Ok(left),
            };
            self.next()?;
            left = binary(op, left, self.product()?);
        }
    }

    fn product(&mut self) -> Result<Expr, Wrong> {
        let mut left = self.factor()?;
        loop {
            let op = match self.token {
                Token::Sign("*") => Op::Mul,
                Token::Sign("/") => Op::Div,
                _ => return Ok(left),
            };
            self.next()?;
            left = binary(op, left, self.factor()?);
        }
    }

    fn factor(&mut self) -> Result<Expr, Wrong> {
        let start = self.span.start;
        match self.token.clone() {
            Token::Number(x) => {
                let at = self.span.clone();
                self.next()?;
                Ok(Expr { at, kind: Kind::Number(x) })
            }
            Token::Sign("-") => {
                self.deeper()?;
                self.next()?;
                let inner = self.factor()?;
                self.depth -= 1;
                let at = start..inner.at.end;
                Ok(Expr { at, kind: Kind::Negative(Box::new(inner)) })
            }
            Token::Sign("(") => {
                self.next()?;
                let inner = self.comparison()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Name(name) => {
                let at = self.span.clone();
                let quoted = self.text[at.clone()].starts_with('"');
                self.next()?;
                if !quoted && self.token == Token::Sign("(") {
                    return self.call(&name, at);
                }
                let mut end = at.end;
                let mut terms = Vec::new();
                if self.token == Token::Sign("[") {
                    terms = self.terms()?;
                    end = self.at;
                    self.next()?;
                }
                Ok(Expr { at: at.start..end, kind: Kind::Metric(name, terms) })
            }
            _ => Err(self.unexpected("a metric, a number or a function")),
        }
    }

    fn call(&mut self, name: &str, at: Range<usize>) -> Result<Expr, Wrong> {
        let Some((_, fold)) = FUNCTIONS.iter().find(|(n, _)| *n == name) else {
            let names = FUNCTIONS.map(|(n, _)| n);
            let what = format!("no function called `{name}`");
            return Err(Wrong::new(at, what, suggest("there are", &names, name)));
        };
        self.next()?;
        let mut all = vec![self.comparison()?];
        while self.sign(",")? {
            all.push(self.comparison()?);
        }
        let end = self.span.end;
        self.expect(")")?;
        let at = at.start..end;
        if all.len() == 1 {
            let inner = Box::new(all.remove(0));
            return Ok(Expr { at, kind: Kind::Fold(*fold, inner) });
        }
        if !matches!(fold, Fold::Min | Fold::Max) {
            let help = "only min and max take several arguments";
            return Err(Wrong::new(at, format!("`{name}` takes one argument"), help));
        }
        Ok(Expr { at, kind: Kind::Among(*fold, all) })
    }

    /// What stands in brackets, up to the closing one: the text is read here, for values may be
    /// anything.
    fn terms(&mut self) -> Result<Vec<Term>, Wrong> {
        let open = self.span.start;
        let mut terms = Vec::new();
        loop {
            let start = self.at;
            let mut end = start;
            let mut quoted = false;
            for c in self.rest().chars() {
                if !quoted && matches!(c, ',' | ']') {
                    break;
                }
                quoted ^= c == '"';
                end += c.len_utf8();
            }
            let Some(close) = self.text[end..].chars().next() else {
                let what = "brackets that do not close";
                return Err(Wrong::new(open..self.text.len(), what, "close them with `]`"));
            };
            terms.push(term(self.text, start..end)?);
            self.at = end + 1;
            if close == ']' {
                return Ok(terms);
            }
        }
    }
}

/// One term: `word`, `"word"`, `key=word`.
fn term(text: &str, at: Range<usize>) -> Result<Term, Wrong> {
    let raw = &text[at.clone()];
    let start = at.start + (raw.len() - raw.trim_start().len());
    let at = start..start + raw.trim().len();
    let raw = raw.trim();
    let (key, word) = match raw.find('=').filter(|i| !raw[..*i].contains('"')) {
        Some(i) => (Some(raw[..i].trim().to_owned()), raw[i + 1..].trim()),
        None => (None, raw),
    };
    let plain = word.strip_prefix('"').and_then(|w| w.strip_suffix('"')).unwrap_or(word);
    if plain.is_empty() && plain.len() == word.len() || plain.contains('"') {
        let help = "write a value of the sweep, a name of [points], or KEY=VALUE";
        return Err(Wrong::new(at.start..at.end.max(at.start + 1), "no point", help));
    }
    Ok(Term { at, key, word: plain.to_owned() })
}

fn binary(op: Op, left: Expr, right: Expr) -> Expr {
    let at = left.at.start..right.at.end;
    Expr { at, kind: Kind::Binary(op, Box::new(left), Box::new(right)) }
}
