//! What xfstests' `check` prints, test by test.
//!
//! Source: `check` of xfstests: a test's line begins with its name; what else it says of the test
//! follows; the summary begins with `Ran:`.

/// What came of a test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It failed; what `check` printed of it.
    Failed(String),
    /// It did not run; xfstests' reason.
    NotRun(String),
    /// The guest's kernel panicked, or the guest ended in it; what it said.
    Panicked(String),
    /// It took more time than it may; whose.
    TooLong(String),
}

impl Verdict {
    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Failed(_) => "failed",
            Verdict::NotRun(_) => "not run",
            Verdict::Panicked(_) => "panicked",
            Verdict::TooLong(_) => "too long",
        }
    }

    /// What was said with it; nothing of one that passed.
    pub fn said(&self) -> Option<&str> {
        match self {
            Verdict::Passed => None,
            Verdict::Failed(said)
            | Verdict::NotRun(said)
            | Verdict::Panicked(said)
            | Verdict::TooLong(said) => Some(said),
        }
    }

    /// Of a test that has ended, from all that `check` has printed so far.
    pub(super) fn of(output: &str, test: &str) -> Verdict {
        let Some((line, rest)) = section(output, test) else {
            // `check` itself failed, or said something that is not known.
            return Verdict::Failed(output.trim_end().to_owned());
        };
        if let Some((_, why)) = line.split_once("[not run]") {
            return Verdict::NotRun(why.trim().to_owned());
        }
        // The summary has the last word: it may have counted what no line of the test says.
        let mut failures = output.lines().filter_map(|l| l.strip_prefix("Failures:"));
        let is_failure = failures.any(|l| l.split_whitespace().any(|name| name == test));
        let is_empty = rest.iter().all(|l| l.trim().is_empty());
        if is_seconds(line) && is_empty && !is_failure {
            return Verdict::Passed;
        }
        let said = std::iter::once(&line).chain(&rest).map(|l| l.trim_end());
        let said: Vec<&str> = said.filter(|l| !l.trim().is_empty()).collect();
        match said.is_empty() {
            true => Verdict::Failed("check says nothing more of it".to_owned()),
            false => Verdict::Failed(said.join("\n").trim_start().to_owned()),
        }
    }
}

/// The line of a test behind its name, and the lines up to the next test or the summary.
fn section<'a>(output: &'a str, test: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let mut lines = output.lines();
    let line = lines.find_map(|line| {
        let rest = line.strip_prefix(test)?;
        rest.starts_with(char::is_whitespace).then_some(rest)
    })?;
    let is_next = |line: &&str| line.starts_with("Ran:") || is_test_line(line);
    Some((line, lines.take_while(|line| !is_next(line)).collect()))
}

/// Does a line begin with the name of a test? Lines of a difference are indented.
fn is_test_line(line: &str) -> bool {
    let name = line.split_whitespace().next().unwrap_or_default();
    let Some((group, number)) = name.split_once('/') else { return false };
    let is_word =
        |part: &str, of: fn(&u8) -> bool| !part.is_empty() && part.bytes().all(|b| of(&b));
    line.starts_with(name)
        && is_word(group, u8::is_ascii_alphanumeric)
        && is_word(number, u8::is_ascii_digit)
}

/// The time of a test that passed, perhaps behind that of its last run: `3s`, ` 2s ...  3s`.
fn is_seconds(line: &str) -> bool {
    let mut words = line.split_whitespace().rev();
    let is_time = |word: &str| {
        word.strip_suffix('s')
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    words.next().is_some_and(is_time) && words.all(|word| word == "..." || is_time(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "FSTYP         -- ext4\n\
        MKFS_OPTIONS  -- /dev/vdc\n\
        \n\
        generic/001         2s\n\
        generic/004         [not run] no O_TMPFILE\n\
        generic/009         - output mismatch (see /run/results/generic/009.out.bad)\n\
        \x20   --- tests/generic/009.out\n\
        \x20   +generic/001 5s\n\
        generic/010         2s ...  3s\n\
        generic/011        _check_dmesg: something found in dmesg (see /run/x)\n\
        \n\
        generic/012         1s\n\
        generic/013        \n";

    #[test]
    fn what_check_prints_is_what_came_of_each_test() {
        let of = |test: &str| Verdict::of(OUTPUT, test);
        assert_eq!(of("generic/001"), Verdict::Passed);
        assert_eq!(of("generic/004"), Verdict::NotRun("no O_TMPFILE".into()));
        let Verdict::Failed(said) = of("generic/009") else { panic!("it failed") };
        assert!(
            said.starts_with("- output mismatch") && said.ends_with("+generic/001 5s"),
            "{said}"
        );
        assert_eq!(of("generic/010"), Verdict::Passed);
        assert!(of("generic/011").said().is_some_and(|said| said.contains("dmesg")));
        // A test whose output was right and that failed otherwise has no time.
        assert!(matches!(of("generic/013"), Verdict::Failed(_)));
    }

    #[test]
    fn the_summary_has_the_last_word_and_silence_is_no_success() {
        let failed = format!("{OUTPUT}Ran: generic/012\nFailures: generic/012\nFailed 1 of 1\n");
        assert!(matches!(Verdict::of(&failed, "generic/012"), Verdict::Failed(_)));
        let passed = format!("{OUTPUT}Ran: generic/012\nPassed all 1 tests\n");
        assert_eq!(Verdict::of(&passed, "generic/012"), Verdict::Passed);
        for odd in ["", "mount: no\n", "Passed all 1 tests\n", "generic/0012  1s\n"] {
            assert!(matches!(Verdict::of(odd, "generic/001"), Verdict::Failed(_)), "{odd}");
        }
        for line in ["", "generic/001", " generic/001 ...", " 5s ...", " - 5s", " s"] {
            assert!(!is_seconds(line), "{line}");
        }
    }
}
