//! `writepath --help`: verbs by what people come for, on one screen.
//!
//! Invariant: every verb stands in one group, with the line that its own help begins with.

use std::fmt::Write;

use clap::Command;

use crate::output::Exit;

/// Groups of verbs, in the order in which a newcomer needs them.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run, explain, crash-test", &["run", "explain", "diff", "trace", "report", "crash"]),
    ("Images and mounts", &["mkfs", "mount", "inspect", "fsck", "recover"]),
    (
        "Kernels, drives and traces",
        &["kernels", "kernel-lab", "serve", "replay", "compare", "device", "calibrate"],
    ),
    (
        "Papers and experiments",
        &["reproduce", "matrix", "techniques", "perturb", "check", "merge", "fio", "filebench"],
    ),
    ("Reference", &["list", "clean", "man", "completions"]),
];

/// The text, from the verbs' own lines.
pub fn text(program: &Command) -> String {
    const LINE: &str = "a string takes it";
    let about = program.get_about().map(ToString::to_string).unwrap_or_default();
    let about = about.replace(", as ", ",\nas ");
    let mut t = format!("{about}.\n\nUsage: writepath [--json] VERB [OPTIONS]\n");
    for (group, verbs) in GROUPS {
        writeln!(t, "\n{group}:").expect(LINE);
        for name in verbs {
            let verb = program.get_subcommands().find(|c| c.get_name() == *name);
            let line = verb.and_then(Command::get_about).map(ToString::to_string);
            writeln!(t, "  {name:<12} {}", line.unwrap_or_default()).expect(LINE);
        }
    }
    t.push_str("\nTry first:\n");
    for example in [
        "writepath run --fs ext4,era=3.4 --workload fsync-last,n=10,case=extend",
        "writepath explain results/latest",
        "writepath crash seq-1",
    ] {
        writeln!(t, "  {example}").expect(LINE);
    }
    t.push_str("\nOptions:\n  --json           print JSON: one document, or one object a line\n");
    t.push_str("  -h, --help       print this; with a verb, print its options (-V: the version)\n");
    t.push_str("\nExit codes (of each verb: `writepath list verbs`):\n");
    for e in Exit::ALL {
        let means = e.means().split(" (").next().unwrap_or_default();
        writeln!(t, "  {:>3} {means}", e as u8).expect(LINE);
    }
    t.truncate(t.trim_end().len());
    t.push_str(" (143: SIGTERM, 129: SIGHUP)\n");
    t
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_stands_in_one_group_and_all_fit_a_screen() {
        let program = crate::command::built();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, v)| v.iter().copied()).collect();
        grouped.sort_unstable();
        let mut verbs: Vec<&str> =
            program.get_subcommands().map(Command::get_name).filter(|n| *n != "help").collect();
        verbs.sort_unstable();
        assert_eq!(grouped, verbs);
        let text = text(&program);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text.lines().count() <= 64, "{}", text.lines().count());
        assert!(!text.contains(".\n  "), "a line of a verb ends without a full stop");
    }
}
