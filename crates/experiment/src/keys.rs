//! Every key of an experiment file: where it stands, what it takes, what stands for it, and why.
//!
//! The reader refuses what is not here, and `docs/experiments.md` has this table, word for word; a
//! test holds both together. Options of file systems and workloads, and parameters of devices, are
//! the registry's.

/// What a key takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// A string.
    Text,
    /// A whole number.
    Number,
    /// `true` or `false`.
    Truth,
    /// A string with a unit of size.
    Size,
    /// A string with a unit of time.
    Time,
    /// A path, from the folder of the file on.
    Path,
    /// A number, with a fraction or without.
    Real,
    /// An array.
    List,
    /// A table.
    Table,
    /// More than one of these.
    Any,
}

impl Takes {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Takes::Text => "string",
            Takes::Number => "whole number",
            Takes::Truth => "true or false",
            Takes::Size => "size",
            Takes::Time => "time",
            Takes::Path => "path",
            Takes::Real => "number",
            Takes::List => "array",
            Takes::Table => "table",
            Takes::Any => "see there",
        }
    }
}

/// A key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The table that it stands in; empty: the file's beginning.
    pub section: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub takes: Takes,
    /// What stands for it if it is left out; empty: nothing.
    pub default: &'static str,
    /// An example, as it stands in a file.
    pub example: &'static str,
    /// What it says.
    pub help: &'static str,
}

const fn k(
    section: &'static str,
    name: &'static str,
    takes: Takes,
    (default, example): (&'static str, &'static str),
    help: &'static str,
) -> Key {
    Key { section, name, takes, default, example, help }
}

/// The version of the format.
pub const SCHEMA: &str = "writepath/1";

use Takes::{Any, List, Number, Path, Real, Size, Table, Text, Time, Truth};

/// All keys, by table, in the order in which they are explained.
pub const KEYS: &[Key] = &[
    k("", "schema", Text, ("", "\"writepath/1\""), "version of this format; required"),
    k("", "name", Text, ("", "\"fsync-eras\""), "name of the results folder; required"),
    k("", "about", Text, ("", "\"what fsync costs\""), "purpose of the experiment, free text"),
    k("", "seed", Number, ("1", "7"), "seed of every random stream of the first run of each point"),
    k("", "repeat", Number, ("1", "5"), "runs of each point, with seeds from `seed` upwards"),
    k("", "show", List, ("", "[\"fsync_ns\"]"), "metrics to print in the table"),
    k("", "machine", Table, ("", ""), "the computer"),
    k("", "device", Table, ("", ""), "the drive"),
    k("", "fs", Table, ("", ""), "the file system"),
    k("", "workload", Table, ("", ""), "the workload; required"),
    k("", "measure", Table, ("", ""), "further measurements"),
    k("", "sweep", Table, ("", ""), "settings that differ from point to point"),
    k("", "points", Table, ("", ""), "names of points and of parts of the sweep, for claims"),
    k("", "crash", Table, ("", ""), "power failures"),
    k("", "vary", Table, ("", ""), "settings to vary for the intervals of claims"),
    k("", "claim", List, ("", ""), "expected results, one `[[claim]]` each"),
    k("machine", "cpu", Text, ("i7-4770", "\"free\""), "CPU profile (`writepath list cpus`)"),
    k(
        "machine",
        "kernel",
        Text,
        ("", "\"3.13\""),
        "kernel version of the block layer [default: that of `fs.era`]",
    ),
    k(
        "machine",
        "elevator",
        Text,
        ("", "\"noop\""),
        "I/O scheduler (`writepath list elevators`) [default: the kernel's]",
    ),
    k(
        "machine",
        "partition_start",
        Size,
        ("", "\"1MiB\""),
        "start of the partition [default: 1MiB; 0B on zones and with several devices]",
    ),
    k(
        "machine",
        "partition_size",
        Size,
        ("", "\"29GiB\""),
        "size of the partition [default: the rest]",
    ),
    k("machine", "disk", Text, ("sdb1", "\"nvme0n1\""), "name of the partition in traces"),
    k("device", "preset", Text, ("ssd-128", "\"zn540-4tb\""), "preset (`writepath list devices`)"),
    k(
        "device",
        "more",
        List,
        ("", "[{ preset = \"zn540-4tb\" }]"),
        "further devices of the same file system, after the first",
    ),
    k("fs", "kind", Text, ("ext4", "\"f2fs\""), "file system (`writepath list fs`)"),
    k("fs", "mount", Text, ("", "\"nobarrier,relatime\""), "mount options, as one string"),
    k("fs", "mkfs", Table, ("", "{ segs_per_sec = 2 }"), "mkfs options, as a table"),
    k("workload", "name", Text, ("", "\"varmail\""), "a workload (`writepath list workloads`)"),
    k("workload", "fio", Path, ("", "\"randwrite.fio\""), "instead: a fio job file"),
    k("workload", "wml", Path, ("", "\"mail.f\""), "instead: a filebench workload model (.f file)"),
    k("workload", "program", Path, ("", "\"hole.txt\""), "instead: a file with a program"),
    k(
        "workload",
        "script",
        Any,
        ("", "[\"open 0 f rw,creat\", \"fsync 0\"]"),
        "instead: a program's steps, an array of strings or one string with lines",
    ),
    k(
        "workload",
        "vars",
        Table,
        ("", "{ BS = \"4k\" }"),
        "with `fio` and `wml`: values of the variables",
    ),
    k(
        "workload",
        "start_within",
        Time,
        ("0ns", "\"10s\""),
        "start at a random time within this long after the mount",
    ),
    k(
        "measure",
        "phases",
        Truth,
        ("false", "true"),
        "blocks dispatched by phase, class and task (metrics `phase.…`); of workload fsync-last",
    ),
    k(
        "measure",
        "pages",
        Truth,
        ("false", "true"),
        "pages of 4 KiB written and not discarded, by class (metrics `pages.…`)",
    ),
    k("sweep", "zip", List, ("", "[\"fs.era\", \"machine.cpu\"]"), "keys that are swept together"),
    k(
        "crash",
        "points",
        Text,
        ("every", "\"random\""),
        "crash points: every change of the possible crash states, or random ones",
    ),
    k(
        "crash",
        "random",
        Number,
        ("", "1000"),
        "with `points = \"random\"`: number of crash points",
    ),
    k("crash", "at", Time, ("", "\"120s\""), "one crash point, as time since power-on"),
    k(
        "crash",
        "space",
        Text,
        ("permitted", "\"modelled\""),
        "crash states to explore, as `writepath crash --space`",
    ),
    k(
        "crash",
        "complete",
        Number,
        ("16", "12"),
        "explore every state of up to this many unpersisted writes",
    ),
    k("crash", "samples", Number, ("64", "256"), "random states of a crash point that has more"),
    k(
        "crash",
        "check",
        List,
        ("", "[\"fsck\", \"O4-lost-sync\"]"),
        "rules to check [default: all]",
    ),
    k(
        "crash",
        "require",
        List,
        ("", "[\"names\", \"size\"]"),
        "rules to check besides POSIX, as `--require` [default: what the file system promises]",
    ),
    k("crash", "used", Truth, ("true", "false"), "free blocks of the drive hold old data"),
    k("vary", "by", Text, ("half", "\"two\""), "`half`: times 0.5 and 1.5; `two`: times 0.5 and 2"),
    k(
        "vary",
        "also",
        List,
        ("", "[\"workload.flowop_ns\"]"),
        "further assumed settings: workload options, device parameters",
    ),
    k(
        "vary",
        "all_cpu",
        Truth,
        ("false", "true"),
        "vary all CPU costs together, besides each alone",
    ),
    k("claim", "id", Text, ("", "\"faster\""), "name of the claim"),
    k(
        "claim",
        "claim",
        Text,
        ("", "\"f2fs-oprw/fig6.1b.max\""),
        "a claim of a paper: its value and band in papers/claims.toml",
    ),
    k("claim", "about", Text, ("", "\"syncing less is faster\""), "the claim in words"),
    k("claim", "expr", Text, ("", "\"fsync_ns[3.4] > fsync_ns[3.8]\""), "expression to compare"),
    k("claim", "between", List, ("", "[1.18, 1.42]"), "lowest and highest accepted value"),
    k("claim", "equals", Real, ("", "10"), "the only accepted value"),
    k("claim", "at_least", Real, ("", "1.5"), "lowest accepted value"),
    k("claim", "at_most", Real, ("", "0"), "highest accepted value"),
    k(
        "claim",
        "interval",
        Truth,
        ("false", "true"),
        "vary all assumed settings; the claim holds if it holds for every variation",
    ),
    k(
        "claim",
        "null",
        Any,
        ("", "\"set.workload.n / 10\""),
        "prediction of a null model: a number or an expression",
    ),
    k("claim", "source", Text, ("", "\"section 6.3\""), "source of the claim"),
];

/// The keys of a table.
pub fn of(section: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |k| k.section == section)
}

/// A key of a table.
pub fn find(section: &str, name: &str) -> Option<&'static Key> {
    of(section).find(|k| k.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_there_once_and_every_table_has_keys() {
        for (n, key) in KEYS.iter().enumerate() {
            let same = |k: &Key| k.section == key.section && k.name == key.name;
            assert_eq!(KEYS.iter().position(same), Some(n), "{}.{}", key.section, key.name);
            assert!(key.section.is_empty() || find("", key.section).is_some(), "{}", key.section);
            assert!(!key.help.is_empty());
        }
    }
}
