//! Options that were renamed: the old word is refused with an error that names the new one.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Old and new option, with the verb that has it.
const OPTIONS: [(&str, &str, &str); 3] = [
    ("crash", "--hold", "--require"),
    ("crash", "--company", "--concurrent-sync-us"),
    ("crash", "--check-cmd", "--check"),
];

/// The error of a renamed option and its hint; `None`: clap's own error says it better.
pub fn hint(arguments: &[String], error: &clap::Error) -> Option<(String, String)> {
    let verb = arguments.iter().skip(1).find(|a| !a.starts_with('-'))?;
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return None };
    let given = given.split('=').next().unwrap_or(given);
    let (_, old, new) = OPTIONS.iter().find(|(v, old, _)| v == verb && *old == given)?;
    Some((format!("option {old} was renamed to {new}"), format!("writepath {verb} {new} …")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn told(line: &str) -> Option<(String, String)> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = crate::Cli::command().try_get_matches_from(&words).err()?;
        hint(&words, &error)
    }

    #[test]
    fn an_old_option_is_refused_and_the_new_one_is_named() {
        for line in ["writepath crash seq-1 --hold names", "writepath --json crash --hold=marks"] {
            let (what, _) = told(line).expect("it is an old option");
            assert_eq!(what, "option --hold was renamed to --require");
        }
        let (what, help) = told("writepath crash --company 150").expect("it is an old option");
        assert_eq!(what, "option --company was renamed to --concurrent-sync-us");
        assert_eq!(help, "writepath crash --concurrent-sync-us …");
        assert!(told("writepath run --hold names").is_none());
        assert!(told("writepath crash --holds names").is_none());
        for (_, old, new) in OPTIONS {
            let crash = crate::built().find_subcommand("crash").expect("a verb").clone();
            let has = |name: &str| crash.get_arguments().any(|a| a.get_long() == name.get(2..));
            assert!(has(new) && !has(old), "{old}");
        }
    }
}
