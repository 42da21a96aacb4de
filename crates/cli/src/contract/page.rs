//! The table covers every verb, and `docs/exit-codes.md` is what is made of it.

use std::fmt::Write;

use super::{ALWAYS, CONTRACTS, Contract, Work, count};
use crate::cmd::verbs::leaves;
use crate::output::Exit;

const LINE: &str = "a string takes it";
const HEAD: &str = "# Exit codes

<!-- Made from crates/cli/src/contract.rs: WRITEPATH_BLESS=1 cargo test -p writepath contract -->

Exit code 0 means that the verb did its work on at least one item. The table below
says which items count; with `--json` the document has their number as `work`
(`{\"of\": …, \"count\": …}`). With nothing to do, the exit code is 2.

With `--json` stdout is always one JSON document, also after usage errors, bugs and interrupts.
Its field `ok` says whether the exit code is 0. The document of an error has `error.code`,
`error.message` and `error.help`. `crash run` and `crash log` stream
one object a line, and the last line has `ok`.
`writepath list verbs --json` prints this page for programs. A stdout that is closed at the start
(`>&-`) is opened as `/dev/null`.

Control characters in names (of files in images, jobs, tasks) are escaped in all text: an ESC shows
as `\\x1b`. A CSV field that a spreadsheet would take for a formula begins with an apostrophe.

| code | meaning |
|-----:|---------|
";

fn page() -> String {
    let mut t = HEAD.to_owned();
    for exit in Exit::ALL {
        writeln!(t, "| {} | {} |", exit as u8, exit.means()).expect(LINE);
    }
    t.push_str("\nExit codes of every verb:\n\n| code | meaning |\n|-----:|---------|\n");
    for (exit, what) in ALWAYS {
        writeln!(t, "| {} | {what} |", exit as u8).expect(LINE);
    }
    t.push_str("\n## By verb\n\n| verb | 0 means | 0 needs at least one | further codes |\n");
    t.push_str("|------|---------|----------------------|---------------|\n");
    for c in CONTRACTS {
        let further: Vec<String> =
            c.exits.iter().map(|(exit, what)| format!("{}: {what}", *exit as u8)).collect();
        let further = further.join("; ");
        writeln!(t, "| `{}` | {} | {} | {further} |", c.verb, c.yes, c.counted()).expect(LINE);
    }
    t
}

#[test]
fn the_page_of_exit_codes_is_made_from_the_table() {
    let path = wp_machine::testing::repository("docs/exit-codes.md");
    if wp_machine::testing::blessing() {
        std::fs::write(&path, page()).expect("written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(there, page(), "WRITEPATH_BLESS=1 cargo test -p writepath contract rewrites it");
}

#[test]
fn every_verb_of_the_command_line_is_in_the_table_and_no_other() {
    let program = crate::command::built();
    let known: Vec<String> = leaves(&program).into_iter().map(|(name, _)| name).collect();
    let listed: Vec<&str> = CONTRACTS.iter().map(|c| c.verb).collect();
    assert_eq!(known, listed, "the table has the order of --help");
}

#[test]
fn every_line_of_the_table_says_something_once() {
    for Contract { verb, yes, work, exits, .. } in CONTRACTS {
        assert!(!yes.is_empty(), "{verb}");
        let counts = match work {
            Work::Counted { of, at } => !of.is_empty() && at.iter().all(|p| p.starts_with('/')),
            Work::Own(how) => !how.is_empty(),
        };
        assert!(counts, "{verb} counts nothing");
        let mut codes: Vec<u8> = exits.iter().map(|(e, _)| *e as u8).collect();
        // What is kept when it is interrupted, a verb says itself.
        let of_all = ALWAYS.iter().map(|(e, _)| *e as u8);
        codes.extend(of_all.filter(|code| *code != Exit::Interrupted as u8));
        let all = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), all, "{verb} has a code twice");
        assert!(!codes.contains(&0), "{verb}: what 0 says is `yes`");
    }
}

#[test]
fn counts_are_numbers_lists_texts_and_sums() {
    let doc = serde_json::json!({
        "n": 3, "list": [1, 2], "none": [], "text": "x", "sum": { "a": 1, "b": 0 },
        "map": { "a": "x" }, "null": null,
    });
    for (pointer, n) in [
        ("/n", Some(3)),
        ("/list", Some(2)),
        ("/none", Some(0)),
        ("/text", Some(1)),
        ("/sum", Some(1)),
        ("/map", Some(1)),
        ("/null", Some(0)),
        ("/missing", None),
    ] {
        assert_eq!(count(&doc, &[pointer]), n, "{pointer}");
    }
    assert_eq!(count(&doc, &["/missing", "/n", "/list"]), Some(3));
}
