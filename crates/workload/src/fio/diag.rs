//! Diagnostics that show the place: file, line, column, a caret, and a way out.

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
    /// The way out; may be empty.
    pub help: String,
}

impl Diagnostic {
    /// An error.
    pub fn error(at: &Place, message: impl Into<String>, help: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            at: at.clone(),
            message: message.into(),
            help: help.into(),
        }
    }

    /// A warning.
    pub fn warning(at: &Place, message: impl Into<String>, help: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(at, message, help) }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.severity == Severity::Error { "error" } else { "warning" };
        let number = self.at.line.to_string();
        let margin = " ".repeat(number.len());
        // Control characters would move the caret, or worse, the terminal's cursor.
        let shown: String =
            self.at.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        writeln!(f, "{word}: {}", self.message)?;
        writeln!(f, "{margin}--> {}:{}:{}", self.at.file, self.at.line, self.at.column)?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{number} | {shown}")?;
        let space = " ".repeat(self.at.column.saturating_sub(1) as usize);
        write!(f, "{margin} | {space}{}", "^".repeat(self.at.width.max(1) as usize))?;
        if !self.help.is_empty() {
            write!(f, "\n{margin} = help: {}", self.help)?;
        }
        Ok(())
    }
}
