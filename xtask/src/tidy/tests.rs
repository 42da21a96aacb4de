//! Each rule on the smallest file that breaks it. What the rules refuse is spelt in two halves.

use super::*;

const MANIFEST: &str = "[package]\nname = \"x\"\n[package.metadata]\nlayer = ";

/// Findings on one file in a crate of this layer.
fn findings(layer: u32, path: &str, text: &str) -> Findings {
    check(&[
        TextFile { path: "crates/x/Cargo.toml".into(), text: format!("{MANIFEST}{layer}\n") },
        TextFile { path: path.into(), text: text.into() },
    ])
}

fn errors(layer: u32, path: &str, text: &str) -> Vec<String> {
    findings(layer, path, text).errors
}

#[test]
fn clean_code_has_no_findings() {
    let found = findings(0, "crates/x/src/a.rs", "//! A.\n\nfn a() -> u32 {\n    1\n}\n");
    assert!(found.errors.is_empty());
}

#[test]
fn a_line_of_101_characters_is_refused_and_one_of_100_is_not() {
    let line = |n: usize| format!("// {}\n", "é".repeat(n - 3));
    assert!(errors(0, "crates/x/src/a.rs", &line(100)).is_empty());
    let found = errors(0, "crates/x/src/a.rs", &format!("fn a() {{}}\n{}", line(101)));
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("crates/x/src/a.rs:2: 101 characters: at most 100"));
    assert!(errors(0, "docs/a.md", &line(101)).is_empty());
}

#[test]
fn a_long_text_in_one_piece_excuses_its_line_and_a_comment_does_not() {
    let text = format!("    let a = \"{}\";\n", "x".repeat(100));
    assert!(errors(0, "crates/x/src/a.rs", &text).is_empty());
    let comment = format!("// \"{}\"\n", "x".repeat(100));
    assert_eq!(errors(0, "crates/x/src/a.rs", &comment).len(), 1);
}

#[test]
fn a_long_file_is_refused_unless_it_is_listed_and_its_tests_do_not_count() {
    let body = |n: usize| "fn a() {}\n".repeat(n);
    assert!(errors(0, "crates/x/src/a.rs", &body(600)).is_empty());
    assert_eq!(errors(0, "crates/x/src/a.rs", &body(601)).len(), 1);
    let listed = |lines: usize| {
        check(&[
            TextFile { path: "crates/x/src/a.rs".into(), text: body(700) },
            TextFile { path: ratchet::LIST.into(), text: format!("crates/x/src/a.rs\t{lines}\n") },
        ])
    };
    assert!(listed(700).errors.is_empty());
    assert!(listed(699).errors[0].contains("699 before"));
    let with_tests = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", body(10), body(2000));
    assert!(errors(0, "crates/x/src/a.rs", &with_tests).is_empty());
    assert!(errors(0, "crates/x/src/a/tests.rs", &body(2000)).is_empty());
    assert!(errors(0, "crates/x/tests/a.rs", &body(2000)).is_empty());
}

#[test]
fn a_lib_file_of_151_lines_is_refused() {
    assert!(errors(0, "crates/x/src/lib.rs", &"mod a;\n".repeat(150)).is_empty());
    let found = errors(0, "crates/x/src/lib.rs", &"mod a;\n".repeat(151));
    assert!(found[0].contains("at most 150"), "{found:?}");
}

#[test]
fn every_banned_word_is_refused_with_its_line_and_a_replacement() {
    for ban in BANNED_WORDS {
        let found = errors(10, "crates/x/src/a.rs", &format!("\n    {}", ban.word));
        assert_eq!(found.len(), 1, "{}", ban.word);
        assert!(found[0].starts_with("crates/x/src/a.rs:2: `"), "{found:?}");
        assert!(found[0].ends_with(ban.instead), "{found:?}");
    }
}

#[test]
fn every_determinism_rule_bites_in_the_lowest_layer_and_not_in_a_comment() {
    for ban in DETERMINISM {
        let found = errors(0, "crates/x/src/a.rs", &format!("fn a() {{ {}(); }}", ban.word));
        assert_eq!(found.len(), 1, "{}: {found:?}", ban.word);
        assert!(found[0].ends_with(ban.instead));
        let prose = format!("/// Not a {}.\nfn a() {{}}\n", ban.word);
        assert!(errors(0, "crates/x/src/a.rs", &prose).is_empty(), "{}", ban.word);
    }
}

#[test]
fn the_lab_may_read_files_and_only_the_command_may_print() {
    assert!(errors(8, "crates/x/src/a.rs", "use std::fs;").is_empty());
    assert_eq!(errors(7, "crates/x/src/a.rs", "use std::fs;").len(), 1);
    assert_eq!(errors(8, "crates/x/src/a.rs", "fn a() { println!(); }").len(), 1);
    assert!(errors(10, "crates/x/src/a.rs", "fn a() { println!(); }").is_empty());
}

#[test]
fn a_grouped_import_does_not_hide_a_module() {
    let one = "use std::{cell::Cell, fs, io};";
    let spread = "use std::{\n    rc::{Rc, Weak},\n    fs::File,\n};\nfn a() {}";
    assert_eq!(errors(0, "crates/x/src/a.rs", one).len(), 1);
    assert_eq!(errors(0, "crates/x/src/a.rs", spread).len(), 1);
    assert!(errors(0, "crates/x/src/a.rs", "use std::{cell::Cell, io};").is_empty());
}

#[test]
fn tests_may_use_files_but_not_random_order() {
    let test = |body: &str| format!("#[cfg(test)]\nmod tests {{\n    {body}\n}}\n");
    assert!(errors(0, "crates/x/src/a.rs", &test("use std::fs;")).is_empty());
    assert_eq!(errors(0, "crates/x/src/a.rs", &test("use std::collections::HashMap;")).len(), 1);
}

#[test]
fn an_expectation_with_a_reason_lifts_a_lint_for_the_lines_below_it_only() {
    let lifted = "#[expect(clippy::disallowed_methods, reason = \"real-time mode\")]\n\
                  let now = Instant::now();\n";
    assert!(errors(1, "crates/x/src/a.rs", lifted).is_empty());
    let far = lifted.replacen('\n', "\n\n\n\n\n\n", 1);
    assert_eq!(errors(1, "crates/x/src/a.rs", &far).len(), 1);
    let spread = lifted.replace("expect(clippy", "expect(\n clippy").replace(", r", ",\n r");
    assert!(errors(1, "crates/x/src/a.rs", &spread).is_empty());
    let whole = far.replace("#[", "#![");
    assert!(errors(1, "crates/x/benches/a.rs", &whole).is_empty());
    let printing = lifted.replace("let now = Instant::now();", "println!();");
    assert_eq!(errors(1, "crates/x/src/a.rs", &printing).len(), 1);
}

#[test]
fn names_of_one_machine_are_refused_in_any_text_file() {
    for ban in BANNED_PLACES {
        assert_eq!(
            errors(0, "docs/a.md", &format!("see {}x", ban.word)).len(),
            usize::from(!ban.word.ends_with(char::is_alphanumeric)),
            "{}",
            ban.word
        );
        assert_eq!(errors(0, "docs/a.md", &format!("see {}", ban.word)).len(), 1, "{}", ban.word);
        assert!(errors(0, "Cargo.lock", ban.word).is_empty());
    }
    let inside = ["target/t", "mp/x, mnt/ro", "ot/y and frame", "work/z"].concat();
    assert!(errors(0, "docs/a.md", &inside).is_empty());
}

#[test]
fn a_file_outside_any_crate_is_held_to_every_rule() {
    assert_eq!(errors(10, "examples/a.rs", "use std::fs;").len(), 1);
}

#[test]
fn a_test_that_its_crates_program_does_not_name_is_found() {
    let file = |path: &str, text: &str| TextFile { path: path.into(), text: text.into() };
    let all = |text: &str| {
        let files = [
            file("crates/x/tests/all.rs", text),
            file("crates/x/tests/reads.rs", ""),
            file("crates/x/tests/world/mod.rs", ""),
            file("crates/x/tests/world/part.rs", ""),
            file("crates/x/tests/docs/main.rs", ""),
            file("crates/y/tests/alone.rs", ""),
        ];
        check(&files).errors
    };
    assert!(all("mod reads;\nmod world;\n").is_empty());
    let found = all("mod world;\n");
    assert_eq!(found, ["crates/x/tests/all.rs:1: no `mod reads;`: it would not run"]);
}

#[test]
fn an_example_that_nobody_compiles_is_refused_and_a_text_is_not() {
    let example =
        |tag: &str| format!("/// A.\n///\n/// ```{tag}\n/// a();\n/// ```\nfn a() {{}}\n");
    let found = errors(0, "crates/x/src/a.rs", &example(""));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("crates/x/src/a.rs:3: an example that is not compiled"));
    assert!(errors(0, "crates/x/src/a.rs", &example("text")).is_empty());
    assert!(errors(0, "crates/base/src/a.rs", &example("")).is_empty());
}
