//! Every word of WML 1.5 once: what it does here.

use crate::fio::Class;

/// Whose word it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A command.
    Command,
    /// An attribute of `define file`.
    File,
    /// An attribute of `define fileset`.
    Fileset,
    /// An attribute of `define process`.
    Process,
    /// An attribute of `thread`.
    Thread,
    /// A type of flowop.
    Flowop,
    /// An attribute of `flowop`.
    Attribute,
    /// An attribute of `define flowop`.
    Composite,
    /// An attribute of `randvar`.
    RandVar,
    /// An attribute of `cvar`.
    CVar,
    /// A type of `cvar`.
    CVarType,
    /// An attribute of `eventgen`.
    EventGen,
    /// An attribute of `enable multi` and `domultisync`.
    Multi,
}

impl Owner {
    /// How it is called in a table.
    pub const fn word(self) -> &'static str {
        match self {
            Owner::Command => "command",
            Owner::File => "file",
            Owner::Fileset => "fileset",
            Owner::Process => "process",
            Owner::Thread => "thread",
            Owner::Flowop => "flowop type",
            Owner::Attribute => "flowop",
            Owner::Composite => "define flowop",
            Owner::RandVar => "randvar",
            Owner::CVar => "cvar",
            Owner::CVarType => "cvar type",
            Owner::EventGen => "eventgen",
            Owner::Multi => "multi",
        }
    }
}

/// A word.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// Whose.
    pub owner: Owner,
    /// The word.
    pub name: &'static str,
    /// How near to filebench.
    pub class: Class,
    /// What differs, or why it is refused.
    pub note: &'static str,
}

const fn exact(owner: Owner, name: &'static str, note: &'static str) -> Word {
    Word { owner, name, class: Class::Exact, note }
}

const fn near(owner: Owner, name: &'static str, note: &'static str) -> Word {
    Word { owner, name, class: Class::Approximated, note }
}

const fn no_effect(owner: Owner, name: &'static str, note: &'static str) -> Word {
    Word { owner, name, class: Class::NoEffect, note }
}

const fn no(owner: Owner, name: &'static str, note: &'static str) -> Word {
    Word { owner, name, class: Class::Refused, note }
}

use Owner::{
    Attribute, CVar, CVarType, Command, Composite, EventGen, File, Fileset, Flowop, Multi,
};
use Owner::{Process, RandVar, Thread};

const CACHED: &str =
    "of filebench before 1.5; false: files are synced and dropped from the page cache when made";
const NO_EFFECT: &str = "accepted without effect: it changes nothing that is simulated";
const CLIENTS: &str = "one client";
const TIMES: &str = "virtual time; ends after the current flowop of a thread, not at whole seconds";
const CHANCE: &str = "Writepath's own random numbers";

/// All of them.
pub static WORDS: &[Word] = &[
    near(Command, "set", "the value at `run` counts, also for the type of a variable"),
    exact(Command, "define", ""),
    exact(Command, "create", "`files`; `fileset`, `filesets` of older texts too"),
    near(Command, "run", TIMES),
    near(Command, "psrun", "like `run`: one summary at its end"),
    exact(Command, "echo", "shown as a note"),
    exact(Command, "debug", NO_EFFECT),
    exact(Command, "sleep", "virtual time"),
    near(
        Command,
        "system",
        "\"sync\" and \"echo 3 > /proc/sys/vm/drop_caches\"; others are skipped with a note",
    ),
    exact(Command, "eventgen", ""),
    exact(Command, "version", NO_EFFECT),
    no_effect(Command, "usage", "a text of older filebench versions, shown by none"),
    exact(Command, "quit", "ends the text"),
    exact(Command, "list", NO_EFFECT),
    near(Command, "enable", "`lathist`; `multi` is refused"),
    no(Command, "domultisync", CLIENTS),
    // Filesets and files.
    exact(Fileset, "name", ""),
    exact(Fileset, "path", "created if missing, in the simulated file system"),
    exact(Fileset, "entries", ""),
    exact(Fileset, "size", "also `filesize`"),
    near(Fileset, "prealloc", "random for each file, as in filebench; the order is random too"),
    near(Fileset, "paralloc", "32 in parallel; a new one starts when the oldest is done"),
    exact(Fileset, "reuse", ""),
    exact(Fileset, "trusttree", ""),
    exact(Fileset, "readonly", ""),
    near(Fileset, "cached", CACHED),
    near(Fileset, "writeonly", "reads are allowed too"),
    exact(Fileset, "dirwidth", ""),
    exact(Fileset, "dirdepthrv", ""),
    exact(Fileset, "dirgamma", ""),
    exact(Fileset, "leafdirs", ""),
    exact(File, "name", ""),
    exact(File, "path", "created if missing, in the simulated file system"),
    exact(File, "size", "also `filesize`"),
    exact(File, "prealloc", ""),
    exact(File, "paralloc", ""),
    exact(File, "reuse", ""),
    exact(File, "trusttree", ""),
    exact(File, "readonly", ""),
    near(File, "cached", CACHED),
    near(File, "writeonly", "reads are allowed too"),
    // Processes and threads.
    exact(Process, "name", ""),
    exact(Process, "instances", ""),
    exact(Process, "nice", NO_EFFECT),
    exact(Thread, "name", ""),
    exact(Thread, "instances", ""),
    exact(Thread, "memsize", "an `iosize` beyond it is an error, as in filebench"),
    exact(Thread, "useism", NO_EFFECT),
    near(Thread, "ioprio", NO_EFFECT),
    // Flowops.
    exact(Flowop, "write", ""),
    exact(Flowop, "read", ""),
    exact(Flowop, "openfile", ""),
    exact(Flowop, "createfile", ""),
    exact(Flowop, "closefile", ""),
    exact(Flowop, "deletefile", ""),
    exact(Flowop, "statfile", ""),
    exact(Flowop, "fsync", ""),
    exact(Flowop, "fsyncset", ""),
    exact(Flowop, "readwholefile", ""),
    exact(Flowop, "writewholefile", "rounds up to whole calls of `iosize`, as in filebench"),
    exact(Flowop, "appendfile", ""),
    exact(Flowop, "appendfilerand", "from 0 to `iosize` less a byte"),
    exact(Flowop, "makedir", ""),
    exact(Flowop, "removedir", ""),
    exact(Flowop, "listdir", ""),
    near(Flowop, "aiowrite", "sequential for each file, any number of files in parallel"),
    exact(Flowop, "aiowait", "does not wait, as on Linux"),
    exact(Flowop, "block", ""),
    exact(Flowop, "wakeup", ""),
    near(Flowop, "semblock", "no limit of 32767, no time-out of 600 s"),
    near(Flowop, "sempost", "no limit of 32767, no time-out of 600 s"),
    near(Flowop, "hog", "0.465 ns per iteration, without occupying a core"),
    exact(Flowop, "delay", "seconds, virtual"),
    near(Flowop, "eventlimit", "the event generator is never late"),
    near(Flowop, "bwlimit", "the event generator is never late"),
    near(Flowop, "iopslimit", "the event generator is never late"),
    near(Flowop, "opslimit", "the event generator is never late"),
    exact(Flowop, "finishoncount", ""),
    exact(Flowop, "finishonbytes", ""),
    exact(Flowop, "print", "nothing is shown"),
    exact(Flowop, "testrandvar", "nothing is shown"),
    exact(Attribute, "name", ""),
    exact(Attribute, "filename", "also `filesetname`"),
    exact(Attribute, "fd", ""),
    exact(Attribute, "srcfd", ""),
    exact(Attribute, "iosize", ""),
    exact(Attribute, "workingset", ""),
    exact(Attribute, "random", ""),
    exact(Attribute, "iters", ""),
    exact(Attribute, "value", ""),
    exact(Attribute, "target", ""),
    exact(Attribute, "opennext", ""),
    exact(Attribute, "indexed", ""),
    exact(Attribute, "dsync", "opens with O_SYNC, as in filebench"),
    exact(Attribute, "directio", "O_DIRECT"),
    exact(Attribute, "blocking", ""),
    exact(Attribute, "highwater", ""),
    exact(Attribute, "noreadahead", "POSIX_FADV_RANDOM at openfile"),
    exact(Composite, "name", ""),
    near(Composite, "iters", "of the use; by default of the definition"),
    // Variables.
    exact(RandVar, "type", "uniform, gamma, tabular (with a randtable)"),
    exact(RandVar, "seed", "with filebench's own numbers; otherwise the run's seed"),
    exact(RandVar, "gamma", "thousandths"),
    exact(RandVar, "mean", ""),
    exact(RandVar, "min", ""),
    exact(RandVar, "round", ""),
    near(RandVar, "randsrc", "urandom, rand48; urandom repeats with the seed"),
    exact(RandVar, "randtable", ""),
    exact(CVar, "type", ""),
    exact(CVar, "parameters", ""),
    exact(CVar, "min", ""),
    exact(CVar, "max", ""),
    exact(CVar, "round", ""),
    exact(CVarType, "cvar-gamma", ""),
    near(CVarType, "cvar-erlang", CHANCE),
    near(CVarType, "cvar-exponential", CHANCE),
    near(CVarType, "cvar-lognormal", CHANCE),
    near(CVarType, "cvar-normal", CHANCE),
    near(CVarType, "cvar-triangular", CHANCE),
    near(CVarType, "cvar-uniform", CHANCE),
    near(CVarType, "cvar-weibull", CHANCE),
    near(EventGen, "rate", "drawn once"),
    no(Multi, "master", CLIENTS),
    no(Multi, "client", CLIENTS),
    no(Multi, "value", CLIENTS),
];

/// Other spellings that filebench takes for the same.
pub(super) fn canonical(name: &str) -> &str {
    match name {
        "filesize" => "size",
        "filesetname" => "filename",
        other => other,
    }
}

/// The word of a name.
pub(super) fn find(owner: Owner, name: &str) -> Option<&'static Word> {
    let name = canonical(name);
    WORDS.iter().find(|w| w.owner == owner && w.name == name)
}

/// A hint for an unknown word: a similar one, or the owner that has the word.
pub(super) fn way_out(owner: Owner, name: &str) -> String {
    let names = WORDS.iter().filter(|w| w.owner == owner).map(|w| w.name);
    if let Some(near) = crate::fio::nearest_of(names.clone(), name) {
        return format!("did you mean `{near}`?");
    }
    match WORDS.iter().find(|w| w.name == canonical(name) && w.owner != owner) {
        Some(w) => format!("`{name}` is an attribute of: {}", w.owner.word()),
        None => format!("known: {}", names.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::model::Kind;
    use super::*;

    #[test]
    fn no_word_stands_twice_and_what_is_not_exact_says_why() {
        let mut seen = std::collections::BTreeSet::new();
        for w in WORDS {
            assert!(seen.insert((w.owner.word(), w.name)), "{} twice", w.name);
            assert!(w.class == Class::Exact || !w.note.is_empty(), "{}", w.name);
        }
        for kind in Kind::ALL {
            assert!(find(Owner::Flowop, kind.name()).is_some(), "{}", kind.name());
        }
    }

    #[test]
    fn a_mistyped_word_finds_the_right_one() {
        assert!(way_out(Owner::Attribute, "iosiez").contains("`iosize`"));
        assert!(way_out(Owner::Process, "memsize").contains("thread"));
    }
}
