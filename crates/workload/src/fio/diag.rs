//! Diagnostics that show the place: file, line, column, a caret, and a hint.

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;

/// A place in a job file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Name of the file, as it was given or included.
    pub file: Rc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Characters underlined, at least 1.
    pub width: u32,
    /// The whole line.
    pub text: Rc<str>,
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// The job cannot run.
    Error,
    /// It runs, not quite as fio would.
    Warning,
}

/// One remark about a job file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Where.
    pub at: Place,
    /// What is wrong.
    pub message: String,
    /// The hint; may be empty.
    pub help: String,
    /// fio can do it, and Writepath cannot (yet).
    pub is_unsupported: bool,
}

impl Diagnostic {
    /// An error.
    pub fn error(at: &Place, message: impl Into<String>, help: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            at: at.clone(),
            message: message.into(),
            help: help.into(),
            is_unsupported: false,
        }
    }

    /// An error about what fio can do, and Writepath cannot (yet).
    pub fn unsupported(
        at: &Place,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic { is_unsupported: true, ..Diagnostic::error(at, message, help) }
    }

    /// A warning.
    pub fn warning(at: &Place, message: impl Into<String>, help: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(at, message, help) }
    }
}

/// Characters of a source line that are shown.
const EXCERPT: usize = 120;

/// What is shown of a line that is wrong at character `column`, and how far it is to there.
///
/// A line may be as long as its file: of a long one the part around the error is shown.
fn excerpt(line: &str, column: usize) -> (String, usize) {
    // Control characters would move the caret, or worse, the terminal's cursor.
    let chars: Vec<char> = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if chars.len() <= EXCERPT {
        return (chars.into_iter().collect(), column);
    }
    let from = column.saturating_sub(EXCERPT / 2).min(chars.len() - EXCERPT);
    let mut shown = chars[from..from + EXCERPT].to_vec();
    if from > 0 {
        shown[0] = '…';
    }
    if from + EXCERPT < chars.len() {
        shown[EXCERPT - 1] = '…';
    }
    (shown.into_iter().collect(), (column - from).min(EXCERPT))
}

/// A message whose middle is left out if somebody has written a very long word there.
fn shortened(message: &str) -> Cow<'_, str> {
    let chars = message.chars().count();
    if chars <= 400 {
        return message.into();
    }
    let start: String = message.chars().take(200).collect();
    let end: String = message.chars().skip(chars - 100).collect();
    format!("{start}…{end}").into()
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.severity == Severity::Error { "error" } else { "warning" };
        let number = self.at.line.to_string();
        let margin = " ".repeat(number.len());
        let column = self.at.column.saturating_sub(1) as usize;
        let (shown, before) = excerpt(&self.at.text, column);
        writeln!(f, "{word}: {}", shortened(&self.message))?;
        writeln!(f, "{margin}--> {}:{}:{}", self.at.file, self.at.line, self.at.column)?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{number} | {shown}")?;
        let width = (self.at.width.max(1) as usize).min(EXCERPT.saturating_sub(before).max(1));
        write!(f, "{margin} | {}{}", " ".repeat(before), "^".repeat(width))?;
        if !self.help.is_empty() {
            write!(f, "\n{margin} = help: {}", self.help)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_line_the_part_around_the_error_is_shown() {
        let text: Rc<str> = (0..20_000).map(|n| format!("{n}, ")).collect::<String>().into();
        let column = text.find("10001,").expect("there") as u32 + 1;
        let at = Place { file: "a.toml".into(), line: 7, column, width: 5, text };
        let message = format!("`{}` cannot be swept", "k".repeat(100_000));
        let said = Diagnostic::error(&at, message, "").to_string();
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].len() < 400 && lines[0].ends_with("cannot be swept"), "{said}");
        assert!(lines[1..].iter().all(|l| l.chars().count() < 130), "{said}");
        let caret = lines[4].chars().position(|c| c == '^').expect("a caret");
        let under: String = lines[3].chars().skip(caret).take(5).collect();
        assert_eq!((under.as_str(), lines[4].matches('^').count()), ("10001", 5), "{said}");
        assert!(lines[3].contains('…') && lines[3].ends_with('…'), "{said}");
    }
}
