//! Every command that the documentation names exists, with the options that it is given there.

#[path = "../tests/docs/pages.rs"]
mod pages;

use clap::{Command, CommandFactory};

use crate::command::Cli;
use pages::{blocks, commands, pages};

/// Commands of this program in a line of shell, as words.
///
/// Quotes, pipes, redirections and remarks as a shell has them; a `$name` is a word like another.
fn invocations(line: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let ends = |words: &mut Vec<String>, found: &mut Vec<Vec<String>>| {
        let words = std::mem::take(words);
        let skip = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["writepath", ..] => 0,
            ["cargo", "run", "--release", "--", ..] => 3,
            _ => return,
        };
        let redirect = words.iter().position(|w| w == ">" || w == "2>").unwrap_or(words.len());
        found.push(words[skip..redirect].to_vec());
    };
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '|' | ';' | '&') => {
                words.extend(word.take());
                ends(&mut words, &mut found);
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            // `$(writepath …)`: what is within is a command of its own.
            (None, '(') if word.as_deref().is_some_and(|w| w.ends_with('$')) => {
                (words, word) = (Vec::new(), None);
            }
            (None, ')') => {
                words.extend(word.take());
                ends(&mut words, &mut found);
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    ends(&mut words, &mut found);
    found
}

/// Reads a command line as the program does.
fn understood(words: &[String]) -> Result<clap::ArgMatches, clap::Error> {
    let words = words.iter().map(std::ffi::OsString::from).collect();
    Cli::command().try_get_matches_from(crate::cmd::fio::with_verb(words))
}

#[test]
fn every_command_line_of_the_documentation_is_understood() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for page in pages() {
        for (line, command) in blocks(&page).iter().flat_map(commands) {
            for words in invocations(&command) {
                seen += 1;
                let Err(e) = understood(&words) else { continue };
                if e.use_stderr() {
                    let first = e.to_string().lines().next().unwrap_or_default().to_owned();
                    wrong.push(format!("{}:{line}: {}: {first}", page.path, words.join(" ")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 80, "only {seen} commands were found");
}

/// Options and verbs of a mention in running text that do not exist.
fn unknown(mention: &str) -> Option<String> {
    let mut at: Command = Cli::command();
    at.build();
    for word in mention.split_whitespace().skip(1) {
        let name = word.split('=').next().expect("a first part");
        if let Some(option) = name.strip_prefix("--") {
            let option = option.trim_end_matches(|c: char| !c.is_alphanumeric());
            let is_there = at.get_arguments().any(|a| a.get_long() == Some(option));
            if !option.is_empty() && !is_there && !["help", "version"].contains(&option) {
                return Some(format!("`{mention}`: no option --{option}"));
            }
        } else if at.has_subcommands() {
            // `VERB` and `…` stand for any; what follows one is that one's.
            match at.find_subcommand(word) {
                Some(verb) => at = verb.clone(),
                // `crash seq-1`: the subcommand is that by default.
                None if at.is_args_conflicts_with_subcommands_set() => {}
                None if word.chars().all(|c| !c.is_lowercase()) => return None,
                None => return Some(format!("`{mention}`: no verb {word}")),
            }
        }
    }
    None
}

#[test]
fn every_option_that_running_text_names_exists() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for page in pages() {
        let mut is_open = false;
        for (n, line) in page.text.lines().enumerate() {
            if line.starts_with("```") {
                is_open = !is_open;
            }
            // Code is every second part between backticks.
            for code in line.split('`').skip(1).step_by(2).filter(|_| !is_open) {
                if code.starts_with("writepath ") {
                    seen += 1;
                    wrong.extend(unknown(code).map(|w| format!("{}:{}: {w}", page.path, n + 1)));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 20, "only {seen} mentions were found");
}

#[test]
fn a_line_of_shell_falls_into_its_commands() {
    let one = |line| invocations(line).into_iter().map(|w| w.join("+")).collect::<Vec<_>>();
    assert_eq!(one("writepath run --fs 'a b'  # c"), ["writepath+run+--fs+a b"]);
    assert_eq!(one("zstd -dc t | writepath replay - > x"), ["writepath+replay+-"]);
    assert_eq!(one("cargo run --release -- list fs"), ["--+list+fs"]);
    assert_eq!(one("a=$(writepath list fs | head); b"), ["writepath+list+fs"]);
    assert!(unknown("writepath run --sf").is_some());
    assert!(unknown("writepath frobnicate").is_some());
    assert!(unknown("writepath kernels waits --json").is_none());
}

/// Every verb and subcommand, except the program itself and `help`.
fn verbs() -> Vec<Command> {
    let mut program = Cli::command().term_width(100);
    program.build();
    let mut left: Vec<Command> =
        program.get_subcommands().filter(|v| v.get_name() != "help").cloned().collect();
    let mut all = Vec::new();
    while let Some(verb) = left.pop() {
        left.extend(verb.get_subcommands().filter(|v| v.get_name() != "help").cloned());
        all.push(verb);
    }
    all
}

#[test]
fn an_option_is_one_line_of_help() {
    let mut wrong = Vec::new();
    for mut verb in verbs() {
        let name = verb.get_display_name().unwrap_or_default().to_owned();
        for a in verb.get_arguments() {
            let help = a.get_help().map(|h| h.to_string()).unwrap_or_default();
            if help.chars().count() > 80 {
                wrong.push(format!("{name} {}: {} columns", a.get_id(), help.chars().count()));
            }
        }
        // A line that is wrapped begins in the column of texts.
        let help = verb.render_help().to_string();
        let wrapped = help.lines().filter(|l| l.starts_with("             ") && !l.contains("--"));
        wrong.extend(wrapped.map(|l| format!("{name}: wrapped: {}", l.trim())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_example_of_a_verb_is_understood() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for verb in verbs() {
        let text = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
        for words in text.lines().skip(1).flat_map(|line| invocations(line.trim())) {
            seen += 1;
            if let Err(e) = understood(&words) {
                wrong.push(format!("{}: {e}", words.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 40, "only {seen} examples");
}

#[test]
fn every_verb_and_every_option_says_what_it_is() {
    let mut left = vec![Cli::command()];
    left[0].build();
    let mut seen = 0;
    while let Some(verb) = left.pop() {
        let name = verb.get_display_name().unwrap_or("writepath").to_owned();
        assert!(verb.get_about().is_some(), "{name} says nothing");
        for a in verb.get_arguments() {
            seen += 1;
            let help = a.get_help().map(|h| h.to_string()).unwrap_or_default();
            assert!(help.len() > 6, "{name} {}: `{help}`", a.get_id());
            assert!(!help.ends_with('.'), "{name} {}: clap takes the full stop", a.get_id());
        }
        left.extend(verb.get_subcommands().filter(|v| v.get_name() != "help").cloned());
    }
    assert!(seen > 100, "only {seen} options");
}
