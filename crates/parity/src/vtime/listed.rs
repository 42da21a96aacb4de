//! Lists of the differences that are known, each with the kernel's function and the reason.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What is not as listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Finding {
    /// A difference that the list does not have.
    Unlisted(String),
    /// A line that is no difference (any more).
    Stale(String),
    /// An entry without a function or a reason.
    Unexplained(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Unlisted(line) => write!(f, "not listed: {line}"),
            Finding::Stale(line) => write!(f, "listed and gone: {line}"),
            Finding::Unexplained(line) => write!(f, "without function or reason: {line}"),
        }
    }
}

/// Differences with one cause.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// Function of the kernel.
    pub kernel_function: String,
    /// What it does that we do not.
    pub why: String,
    /// The differences, as the comparison prints them.
    pub lines: Vec<String>,
    /// They depend on what is run beside them: where they are not found they are not gone.
    #[serde(default)]
    pub sometimes: bool,
}

#[derive(Deserialize, Default)]
struct File {
    #[serde(default)]
    difference: Vec<Listed>,
}

/// Reads a list. Errors: what is wrong with the text.
pub fn parse_differences(text: &str) -> Result<Vec<Listed>, String> {
    toml::from_str::<File>(text).map(|f| f.difference).map_err(|e| e.to_string())
}

/// Holds what was found against a list; `was_run` says of a line whether its difference would have
/// been found.
pub fn check(
    found: &BTreeSet<String>,
    listed: &[Listed],
    was_run: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let lines: BTreeSet<&str> =
        listed.iter().flat_map(|l| l.lines.iter().map(String::as_str)).collect();
    let unlisted = found.iter().filter(|f| !lines.contains(f.as_str()));
    let mut out: Vec<Finding> = unlisted.map(|f| Finding::Unlisted(f.clone())).collect();
    let always = listed.iter().filter(|l| !l.sometimes).flat_map(|l| &l.lines);
    let stale: BTreeSet<&String> = always.filter(|l| was_run(l) && !found.contains(*l)).collect();
    out.extend(stale.into_iter().map(|l| Finding::Stale(l.clone())));
    let bare = listed.iter().filter(|l| l.kernel_function.is_empty() || l.why.is_empty());
    out.extend(bare.map(|l| Finding::Unexplained(l.lines.join("; "))));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_listed_what_is_gone_and_what_has_no_reason_is_told() {
        let listed = parse_differences(
            "[[difference]]\nkernel_function = \"f\"\nwhy = \"w\"\nlines = [\"a\", \"b\", \"c\"]\n\
             [[difference]]\nkernel_function = \"\"\nwhy = \"w\"\nlines = [\"d\"]\n\
             [[difference]]\nkernel_function = \"f\"\nwhy = \"w\"\nlines = [\"e\"]\n\
             sometimes = true\n",
        )
        .expect("parses");
        let found = BTreeSet::from(["a".to_owned(), "d".to_owned(), "new".to_owned()]);
        let findings = check(&found, &listed, |line| line != "c");
        let unexplained = Finding::Unexplained("d".to_owned());
        let expected = [Finding::Unlisted("new".to_owned()), Finding::Stale("b".to_owned())];
        assert_eq!(findings, [&expected[..], &[unexplained]].concat());
    }
}
