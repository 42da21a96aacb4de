//! Known failures: a list of what a campaign counts, and does not fail for.
//!
//! ```toml
//! [[known]]
//! rule = "O2-exposure"              # as it stands in reports
//! path = "n*"                       # of the file; `*` is anything; left out: any
//! seen = "*never wrote*"            # what was there; left out: anything
//! setting = "ext4,era=3.8* * *"     # file system, device, states; left out: any
//! why = "ordered mode of 3.8 to 4.6.1, fixed by 06bd3c36a733"
//! ```

use serde::{Deserialize, Serialize};
use wp_crash::{Rule, Violation};

/// An entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownFailure {
    /// Name of the rule.
    pub rule: String,
    /// Pattern of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Pattern of what was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// Pattern of the setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// Why it is no failure.
    pub why: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    known: Vec<KnownFailure>,
}

/// The list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KnownFailures {
    /// Entries: does it hold for this setting?
    entries: Vec<(KnownFailure, bool)>,
}

impl KnownFailures {
    /// Reads a list, for a setting: file system, device and states, with spaces between.
    ///
    /// Errors: what is wrong with it, with the line.
    pub fn parse(text: &str, setting: &str) -> Result<KnownFailures, String> {
        let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
        let mut entries = Vec::new();
        for (n, entry) in file.known.into_iter().enumerate() {
            if Rule::of(&entry.rule).is_none() {
                let all: Vec<&str> = Rule::ALL.iter().map(|r| r.name()).collect();
                let (rule, all) = (&entry.rule, all.join(", "));
                return Err(format!("entry {}: no rule called `{rule}` (rules: {all})", n + 1));
            }
            if entry.why.trim().is_empty() {
                return Err(format!("entry {}: `why` is empty", n + 1));
            }
            let here = entry.setting.as_deref().is_none_or(|p| matches(p, setting));
            entries.push((entry, here));
        }
        Ok(KnownFailures { entries })
    }

    /// A list as text, to be read again.
    ///
    /// Errors: none that entries of plain text can give.
    pub fn write(entries: &[KnownFailure]) -> Result<String, String> {
        let file = File { known: entries.to_vec() };
        toml::to_string_pretty(&file).map_err(|e| e.to_string())
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries, and whether each holds for the setting.
    pub fn entries(&self) -> impl Iterator<Item = (&KnownFailure, bool)> {
        self.entries.iter().map(|(e, here)| (e, *here))
    }

    /// The first entry that says that this is known.
    pub fn entry_of(&self, v: &Violation) -> Option<usize> {
        self.entries.iter().position(|(e, here)| {
            *here
                && e.rule == v.rule.name()
                && e.path.as_deref().is_none_or(|p| matches(p, &v.path))
                && e.seen.as_deref().is_none_or(|p| matches(p, &v.seen))
        })
    }
}

/// Does the text fit a pattern in which `*` is anything, and everything else itself?
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_texts() {
        for (pattern, text, fits) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("", "", true),
            ("*", "", true),
            ("n*", "n12", true),
            ("n*", "d/n12", false),
            ("*/n*", "d/n12", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b", "ab-", false),
            ("ab*b", "ab", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn what_is_listed_for_the_setting_is_known() {
        let text = "[[known]]\nrule = \"O2-exposure\"\npath = \"n*\"\n\
                    setting = \"ext4,era=3.8* * *\"\nwhy = \"the hole\"\n";
        let v = |rule, path: &str| Violation {
            rule,
            path: path.to_owned(),
            offset: None,
            expected: String::new(),
            seen: String::new(),
        };
        let list = KnownFailures::parse(text, "ext4,era=3.8 fixed permitted").expect("a list");
        assert_eq!(list.entry_of(&v(Rule::Exposure, "n1")), Some(0));
        assert_eq!(list.entry_of(&v(Rule::Exposure, "m1")), None);
        assert_eq!(list.entry_of(&v(Rule::LostSync, "n1")), None);
        let other = KnownFailures::parse(text, "ext4,era=4.6 fixed permitted").expect("a list");
        assert_eq!(other.entry_of(&v(Rule::Exposure, "n1")), None);
        let entries: Vec<KnownFailure> = list.entries().map(|(e, _)| e.clone()).collect();
        let again = KnownFailures::write(&entries).expect("text");
        let again = KnownFailures::parse(&again, "ext4,era=3.8 fixed permitted");
        assert_eq!(again, Ok(list));
    }

    #[test]
    fn a_list_that_is_none_is_refused_with_the_place() {
        for (text, said) in [
            ("[[known]]\nrule = \"O2-exposure\"\n", "why"),
            ("[[known]]\nrule = \"O2\"\nwhy = \"x\"\n", "no rule called `O2`"),
            ("[[known]]\nrule = \"O2-exposure\"\nwhy = \" \"\n", "`why` is empty"),
            ("[[known]]\nrules = \"O2-exposure\"\nwhy = \"x\"\n", "rules"),
            ("[known\n", "line 1"),
        ] {
            let e = KnownFailures::parse(text, "").expect_err(text);
            assert!(e.contains(said), "{e}");
        }
    }
}
