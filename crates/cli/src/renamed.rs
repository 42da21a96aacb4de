//! Options that were renamed, or became subcommands: the old word is refused with an error that
//! names the new one, as a command line to paste where that is possible.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::internal::shell;

/// Old and new option, with the verb that has it.
const OPTIONS: [(&str, &str, &str); 3] = [
    ("crash", "--hold", "--require"),
    ("crash", "--company", "--concurrent-sync-us"),
    ("crash", "--check-cmd", "--check"),
];

/// An option of `crash` that became a subcommand.
struct Moved {
    old: &'static str,
    /// The new command line, of anything.
    new: &'static str,
    /// How the words behind `crash` are said today: from the option's value, and the words without
    /// both.
    say: fn(&str, Vec<String>) -> Vec<String>,
}

const MOVED: [Moved; 6] = [
    Moved { old: "--bug", new: "writepath crash bug ID", say: |id, rest| said("bug", id, rest) },
    Moved {
        old: "--mutate",
        new: "writepath crash mutate SITES",
        say: |sites, rest| said("mutate", sites, rest),
    },
    Moved { old: "--state", new: "writepath crash show PROGRAM FRAME[:U,V]", say: shown },
    Moved {
        old: "--against",
        new: "writepath crash compare PROGRAMS --fs FS --fs OTHER",
        say: |fs, rest| compared("--fs", "ext4,era=6.18", fs, rest),
    },
    Moved {
        old: "--against-device",
        new: "writepath crash compare PROGRAMS --device DEVICE --device OTHER",
        say: |device, rest| compared("--device", "fixed", device, rest),
    },
    Moved {
        old: "--against-space",
        new: "writepath crash compare PROGRAMS --space SPACE --space OTHER",
        say: |space, rest| compared("--space", "permitted", space, rest),
    },
];

/// Options that `crash` had beside one of [`MOVED`] only, and the subcommand that has them.
const BESIDE: [(&str, &str); 3] = [
    ("--image", "writepath crash show PROGRAM FRAME[:U,V] --image FILE"),
    ("--witnesses", "writepath crash mutate SITES --witnesses FILE"),
    ("--search", "writepath crash mutate SITES --search N"),
];

/// The error of a renamed option and its hint; `None`: clap's own error says it better.
pub fn hint(arguments: &[String], error: &clap::Error) -> Option<(String, String)> {
    let at = arguments.iter().skip(1).position(|a| !a.starts_with('-'))? + 1;
    let (verb, rest) = (&arguments[at], &arguments[at + 1..]);
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return None };
    let given = given.split('=').next().unwrap_or(given);
    if verb == "crash"
        && let Some(moved) = moved(given, rest)
    {
        return Some(moved);
    }
    let (_, old, new) = OPTIONS.iter().find(|(v, old, _)| v == verb && *old == given)?;
    Some((format!("option {old} was renamed to {new}"), format!("writepath {verb} {new} …")))
}

/// The same of an option of `crash` that became a subcommand. `rest`: the words behind `crash`.
fn moved(given: &str, rest: &[String]) -> Option<(String, String)> {
    let beside = BESIDE.iter().find(|(old, _)| *old == given);
    let name = |word: &String| word.split('=').next().unwrap_or_default().to_owned();
    // Of several options the one that became a subcommand says what is meant.
    let is_meant =
        |m: &&Moved| m.old == given || beside.is_some() && rest.iter().any(|w| name(w) == m.old);
    match (MOVED.iter().find(is_meant), beside) {
        (Some(moved), _) => {
            let what = format!("option {} became a subcommand", moved.old);
            let line = moved.line(rest).unwrap_or_else(|| moved.new.to_owned());
            Some((what, line))
        }
        (None, Some((old, new))) => {
            Some((format!("option {old} belongs to a subcommand"), (*new).to_owned()))
        }
        (None, None) => None,
    }
}

impl Moved {
    /// The user's own command line in today's words; `None`: it would not be understood.
    fn line(&self, rest: &[String]) -> Option<String> {
        let at = rest.iter().position(|w| w.split('=').next() == Some(self.old))?;
        let mut left = rest.to_vec();
        let option = left.remove(at);
        let value = match option.split_once('=') {
            Some((_, value)) => value.to_owned(),
            None if at < left.len() => left.remove(at),
            None => return None,
        };
        let words = [vec!["crash".to_owned()], (self.say)(&value, left)].concat();
        let argv = std::iter::once("writepath").chain(words.iter().map(String::as_str));
        crate::command::built().try_get_matches_from(argv).ok()?;
        let words: Vec<String> = words.iter().map(|w| shell(w)).collect();
        Some(format!("writepath {}", words.join(" ")))
    }
}

fn said(verb: &str, value: &str, rest: Vec<String>) -> Vec<String> {
    [vec![verb.to_owned(), value.to_owned()], rest].concat()
}

/// `show` has the program first, then the state, then the options.
fn shown(state: &str, mut rest: Vec<String>) -> Vec<String> {
    let behind = rest.iter().map(String::as_str).chain([state]);
    let read = crate::command::built()
        .try_get_matches_from(["writepath", "crash", "show"].into_iter().chain(behind));
    let show =
        read.as_ref().ok().and_then(|m| m.subcommand_matches("crash")?.subcommand_matches("show"));
    let program = show.and_then(|m| m.get_one::<String>("program")).cloned();
    // Without a program `crash` meant that.
    let program = program.unwrap_or_else(|| "seq-1".to_owned());
    if let Some(at) = rest.iter().position(|w| *w == program) {
        rest.remove(at);
    }
    [vec!["show".to_owned(), program, state.to_owned()], rest].concat()
}

/// `compare` has one option twice: what it was beside the new one, or its default.
fn compared(option: &str, default: &str, value: &str, rest: Vec<String>) -> Vec<String> {
    let is_given = rest.iter().any(|w| w.split('=').next() == Some(option));
    let words = |value: &str| vec![option.to_owned(), value.to_owned()];
    let default = if is_given { Vec::new() } else { words(default) };
    [vec!["compare".to_owned()], rest, default, words(value)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &[&str]) -> Option<(String, String)> {
        let words: Vec<String> = line.iter().map(ToString::to_string).collect();
        let error = crate::command::built().try_get_matches_from(&words).err()?;
        hint(&words, &error)
    }

    fn told_of(line: &str) -> Option<(String, String)> {
        told(&line.split(' ').collect::<Vec<_>>())
    }

    #[test]
    fn an_old_option_is_refused_and_the_new_one_is_named() {
        for line in ["writepath crash seq-1 --hold names", "writepath --json crash --hold=marks"] {
            let (what, _) = told_of(line).expect("it is an old option");
            assert_eq!(what, "option --hold was renamed to --require");
        }
        let (what, help) = told_of("writepath crash --company 150").expect("it is an old option");
        assert_eq!(what, "option --company was renamed to --concurrent-sync-us");
        assert_eq!(help, "writepath crash --concurrent-sync-us …");
        assert!(told_of("writepath run --hold names").is_none());
        assert!(told_of("writepath run --bug A3").is_none());
        assert!(told_of("writepath crash --holds names").is_none());
        for (_, old, new) in OPTIONS {
            let crash = crate::command::built().find_subcommand("crash").expect("a verb").clone();
            let has = |name: &str| crash.get_arguments().any(|a| a.get_long() == name.get(2..));
            assert!(has(new) && !has(old), "{old}");
        }
    }

    #[test]
    fn an_option_that_became_a_subcommand_is_answered_with_the_users_own_command_line() {
        for (old, new) in [
            ("crash --bug A3", "crash bug A3"),
            ("crash --json --minimise 10 --bug=all", "crash bug all --json --minimise 10"),
            (
                "crash --mutate ext4/ --search 20 --workers 1",
                "crash mutate ext4/ --search 20 --workers 1",
            ),
            ("crash --search 20 --mutate all", "crash mutate all --search 20"),
            (
                "crash log.txt --fs ext4,nobarrier --state 4:0,1",
                "crash show log.txt 4:0,1 --fs ext4,nobarrier",
            ),
            ("crash --fs f2fs --state 4 --image i", "crash show seq-1 4 --fs f2fs --image i"),
            ("crash --image i --state 4 log.txt", "crash show log.txt 4 --image i"),
            ("crash p --against f2fs", "crash compare p --fs ext4,era=6.18 --fs f2fs"),
            ("crash --fs btrfs --against f2fs", "crash compare --fs btrfs --fs f2fs"),
            ("crash p --against-device emmc-16", "crash compare p --device fixed --device emmc-16"),
            ("crash --against-space modelled", "crash compare --space permitted --space modelled"),
        ] {
            let (what, help) = told_of(&format!("writepath {old}")).expect("it is an old option");
            assert!(what.ends_with(" became a subcommand"), "{what}");
            assert_eq!(help, format!("writepath {new}"), "{old}");
        }
        let steps = ["writepath", "crash", "open 0 a rw,creat; fsync 0", "--state", "3"];
        let (_, help) = told(&steps).expect("it is an old option");
        assert_eq!(help, "writepath crash show 'open 0 a rw,creat; fsync 0' 3");
    }

    #[test]
    fn what_cannot_be_said_today_is_answered_with_the_form_of_the_new_words() {
        for (old, new) in [
            ("crash --bug", "writepath crash bug ID"),
            ("crash p --state 4 --budget 5m", "writepath crash show PROGRAM FRAME[:U,V]"),
            ("crash p --image i", "writepath crash show PROGRAM FRAME[:U,V] --image FILE"),
            ("crash --search 3", "writepath crash mutate SITES --search N"),
        ] {
            let (_, help) = told_of(&format!("writepath {old}")).expect("it is an old option");
            assert_eq!(help, new, "{old}");
        }
    }
}
