//! Lengths that may only fall: files of more than 600 lines and functions of more than 70.
//!
//! `xtask/long.tsv` lists those that were longer when the rule came. One that is not listed, or
//! that grew, is an error; `tidy --fix` lowers and drops what became shorter, and adds nothing.

use std::collections::BTreeMap;

/// Lines of a file besides its tests, at most.
pub const FILE_LINES: usize = 600;
/// Lines of a function, its signature and last brace too, at most.
pub const FUNCTION_LINES: usize = 70;
/// The list, from the root of the workspace.
pub const LIST: &str = "xtask/long.tsv";

/// What is long: `path`, or `path fn name`, and its lines.
pub type Long = BTreeMap<String, usize>;

/// The long ones of a file. Lines of tests do not count.
pub fn long_ones(path: &str, text: &str, is_test: &[bool]) -> Long {
    let own = is_test.iter().filter(|test| !**test).count();
    let mut out = Long::new();
    if own > FILE_LINES {
        out.insert(path.to_owned(), own);
    }
    let lines: Vec<&str> = text.lines().collect();
    for (from, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line).filter(|_| !is_test[from]) else { continue };
        let indent = line.len() - line.trim_start().len();
        let ends = |l: &&str| l.len() == indent + 1 && l.ends_with('}');
        let length = lines[from..].iter().position(ends).map_or(0, |at| at + 1);
        if length > FUNCTION_LINES {
            let all = out.entry(format!("{path} fn {name}")).or_default();
            *all = length.max(*all);
        }
    }
    out
}

/// The name of the function whose body begins on this line of formatted code.
fn function_name(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let (before, rest) = code.split_once("fn ")?;
    let is_qualifier = |word: &str| {
        word.starts_with("pub") || matches!(word, "const" | "async" | "unsafe" | "in" | "extern")
    };
    if !before.split_whitespace().all(is_qualifier) || code.ends_with([';', '}']) {
        return None;
    }
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

/// Reads the list. Errors: a line that is not a name, a tab and a number.
pub fn parse(text: &str) -> Result<Long, String> {
    let pair = |line: &str| {
        let (name, lines) = line.split_once('\t').filter(|(name, _)| !name.is_empty())?;
        Some((name.to_owned(), lines.parse().ok()?))
    };
    let wrong = |n: usize| format!("{LIST}:{}: a name, a tab, a number of lines", n + 1);
    text.lines().enumerate().map(|(n, line)| pair(line).ok_or_else(|| wrong(n))).collect()
}

/// What grew, or is new; each with what to do.
pub fn refusals(found: &Long, listed: &Long) -> Vec<String> {
    let refusal = |(name, lines): (&String, &usize)| {
        let most = if name.contains(" fn ") { FUNCTION_LINES } else { FILE_LINES };
        match listed.get(name) {
            Some(allowed) if lines <= allowed => None,
            Some(allowed) => Some(format!(
                "{name}: {lines} lines, {allowed} before: it may only become shorter; split by job"
            )),
            None => Some(format!("{name}: {lines} lines: at most {most}; split by job")),
        }
    };
    found.iter().filter_map(refusal).collect()
}

/// The list without what became short, and with what became shorter. `None`: it is as it was.
pub fn lowered(found: &Long, listed: &Long) -> Option<String> {
    let now: Long = listed
        .iter()
        .filter_map(|(name, allowed)| Some((name.clone(), *found.get(name)?.min(allowed))))
        .collect();
    (now != *listed).then(|| now.iter().map(|(name, lines)| format!("{name}\t{lines}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(all: &[(&str, usize)]) -> Long {
        all.iter().map(|(name, lines)| ((*name).to_owned(), *lines)).collect()
    }

    #[test]
    fn a_function_is_counted_with_its_signature_and_its_last_brace() {
        let body =
            |n: usize| format!("    pub async fn a(\n{}    }}\n", "        b();\n".repeat(n));
        let of = |text: &str| long_ones("a.rs", text, &vec![false; text.lines().count()]);
        assert_eq!(of(&body(FUNCTION_LINES - 2)), Long::new());
        assert_eq!(of(&body(FUNCTION_LINES - 1)), long(&[("a.rs fn a", FUNCTION_LINES + 1)]));
        let text = body(200);
        assert_eq!(long_ones("a.rs", &text, &vec![true; 202]), Long::new());
        assert_eq!(function_name("    let f: fn (u32) = g;"), None);
        assert_eq!(function_name("pub(crate) const fn c() {"), Some("c"));
        assert_eq!(function_name("    fn declared(&self);"), None);
        assert_eq!(function_name("fn short() {}"), None);
    }

    #[test]
    fn what_grew_and_what_is_new_is_refused_and_what_shrank_is_lowered() {
        let listed = parse("a.rs\t700\nb.rs fn b\t90\nc.rs\t800\n").expect("a list");
        let same = long(&[("a.rs", 700), ("b.rs fn b", 90), ("c.rs", 800)]);
        assert_eq!((refusals(&same, &listed), lowered(&same, &listed)), (Vec::new(), None));
        let found = long(&[("a.rs", 701), ("b.rs fn b", 80), ("d.rs fn d", 71)]);
        let refused = refusals(&found, &listed);
        assert_eq!(refused.len(), 2);
        assert!(refused[0].contains("700 before") && refused[1].contains("at most 70"));
        assert_eq!(lowered(&found, &listed).expect("lower"), "a.rs\t700\nb.rs fn b\t80\n");
        assert!(parse("a.rs 7\n").is_err_and(|e| e.contains("long.tsv:1")));
    }
}
