//! The fix for an option that a verb does not have: the option that was meant, or where its value
//! belongs.

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What people look for, and where it is: words of an option, an option that the verb has to have
/// for the answer to be true, and the answer.
const PLACES: [(&[&str], &str, &str); 4] = [
    (
        &["era", "kernel", "kernel-version", "linux"],
        "fs",
        "the kernel version is an option of the file system: --fs ext4,era=3.4",
    ),
    (
        &["size", "capacity"],
        "partition-size",
        "--partition-size 1G, or the capacity of the drive: --device ssd-128,capacity_bytes=1073741824",
    ),
    (
        &["mount", "mount-options", "options", "barrier", "data"],
        "fs",
        "mount options follow the file system: --fs ext4,data=journal",
    ),
    (
        &["time", "runtime", "duration", "seconds"],
        "workload",
        "the length of a run is an option of its workload: `writepath list workloads`",
    ),
];

/// The fix for an unknown option; `None`: the error is another one.
///
/// `words`: the command line without the program's name.
pub fn fix(error: &clap::Error, program: &Command, words: &[String]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if !option.starts_with('-') {
        return subcommand(program, words);
    }
    let name = option.strip_prefix("--")?.split('=').next()?;
    let (verb, path) = verb(program, words);
    let all: Vec<&str> = verb.get_arguments().filter_map(|a| a.get_long()).collect();
    if let Some(meant) = meant(name, &all) {
        return Some(format!("did you mean --{meant}?"));
    }
    let place = PLACES.iter().find(|(words, has, _)| words.contains(&name) && all.contains(has));
    let place = place.map(|(_, _, what)| (*what).to_owned());
    Some(place.unwrap_or_else(|| format!("`{path} --help` lists the options")))
}

/// The fix for a word too many behind a verb that has a subcommand by default: what was meant is a
/// subcommand that does not come first, or is mistyped.
fn subcommand(program: &Command, words: &[String]) -> Option<String> {
    let at = words.iter().position(|w| !w.starts_with('-'))?;
    let verb = program.find_subcommand(&words[at])?;
    let first = words.get(at + 1).filter(|_| verb.is_args_conflicts_with_subcommands_set())?;
    let path = format!("writepath {}", verb.get_name());
    if verb.find_subcommand(first).is_some() {
        return None;
    }
    if let Some(name) = words[at + 1..].iter().find(|w| verb.find_subcommand(w).is_some()) {
        return Some(format!("the subcommand comes first: {path} {name} …"));
    }
    let all: Vec<&str> = verb.get_subcommands().map(Command::get_name).collect();
    Some(format!("did you mean `{path} {}`?", meant(first, &all)?))
}

/// The command that the words lead to, and how it is called.
fn verb<'a>(program: &'a Command, words: &[String]) -> (&'a Command, String) {
    let (mut at, mut path) = (program, "writepath".to_owned());
    for word in words.iter().filter(|w| !w.starts_with('-')) {
        let Some(next) = at.get_subcommands().find(|c| c.get_name() == word) else { break };
        at = next;
        path = format!("{path} {word}");
    }
    (at, path)
}

/// The option that was meant: some letters are wrong, or a word of it is missing or one too many.
fn meant<'a>(name: &str, all: &[&'a str]) -> Option<&'a str> {
    let letters = |o: &&str| strsim::damerau_levenshtein(name, o);
    let near = all.iter().copied().min_by_key(letters);
    let near = near.filter(|o| letters(o) <= 1 + name.len() / 5);
    near.or_else(|| {
        let shares = |o: &&str| {
            let words = |t: &str| t.split('-').map(str::to_owned).collect::<Vec<_>>();
            let (ours, its) = (words(name), words(o));
            ours.iter().all(|w| its.contains(w)) || its.iter().all(|w| ours.contains(w))
        };
        let mut found = all.iter().copied().filter(shares);
        // Of several none is the one.
        found.next().filter(|_| found.next().is_none())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> String {
        let program = crate::command::built();
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let argv = std::iter::once("writepath".to_owned()).chain(words.clone());
        let error = program.clone().try_get_matches_from(argv).expect_err("it is refused");
        fix(&error, &program, &words).expect("an unknown option")
    }

    #[test]
    fn a_mistyped_option_is_recognised() {
        for (line, meant) in [
            ("run --fss ext4", "--fs"),
            ("run --wrokload x", "--workload"),
            ("run --device-preset x", "--device"),
            ("crash --complet 3", "--complete"),
            ("serve nbd --sokcet x", "--socket"),
            ("explain --top-calls 3 results", "--top"),
        ] {
            assert_eq!(told(line), format!("did you mean {meant}?"), "{line}");
        }
    }

    #[test]
    fn a_subcommand_that_is_mistyped_or_comes_late_is_recognised() {
        assert_eq!(told("crash bugg A3"), "did you mean `writepath crash bug`?");
        let late = "the subcommand comes first: writepath crash bug …";
        assert_eq!(told("crash --json bug A3"), late);
        assert_eq!(told("crash --fs f2fs bug A3"), late);
    }

    #[test]
    fn what_belongs_elsewhere_is_sent_there_and_nothing_else_is_guessed() {
        assert!(told("run --era 3.4").contains("--fs ext4,era=3.4"));
        assert!(told("diff --kernel 3.4").contains("--fs ext4,era=3.4"));
        assert!(told("run --size 1G").contains("--partition-size"));
        assert_eq!(told("crash --unit 3"), "`writepath crash --help` lists the options");
        assert_eq!(told("serve nbd --era 3"), "`writepath serve nbd --help` lists the options");
    }
}
