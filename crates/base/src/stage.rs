//! Words for what a file system writes: a table each file system owns, from which views of a run
//! name the stages of a call.
//!
//! A request is named by the classes of its blocks (`inode+node*2`), by the first [`Kind`] that
//! fits; so tables go from the special to the general.

/// What a request is to a call that promises durability.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Purpose {
    /// Contents of files.
    Data,
    /// What leads to the contents after a power cut: nodes, journal blocks, a log.
    Meta,
    /// What makes the above count: a commit record, a super block, the end of a checkpoint.
    Record,
    /// A copy at home of what a log has already: it makes room and promises nothing new.
    Home,
}

/// What requests of some classes are called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// Classes of blocks, as the file system's `BlockMap` has them.
    pub classes: &'static [&'static str],
    /// Must every block of the request be of these? Otherwise one is enough.
    pub all: bool,
    /// Name of the stage.
    pub stage: &'static str,
    /// What it is for.
    pub purpose: Purpose,
}

impl Kind {
    /// Requests all of whose blocks are of these classes.
    pub const fn all(
        classes: &'static [&'static str],
        stage: &'static str,
        purpose: Purpose,
    ) -> Kind {
        Kind { classes, all: true, stage, purpose }
    }

    /// Requests that have a block of one of these classes.
    pub const fn any(
        classes: &'static [&'static str],
        stage: &'static str,
        purpose: Purpose,
    ) -> Kind {
        Kind { classes, all: false, stage, purpose }
    }

    /// Does a request of these classes fit?
    pub fn fits<'a>(&self, classes: impl Iterator<Item = &'a str>) -> bool {
        let mut any = false;
        for class in classes {
            let is_one = self.classes.contains(&class);
            if self.all && !is_one {
                return false;
            }
            any |= is_one;
        }
        any
    }
}

/// A task of the file system's own, by the beginning of its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Server {
    /// The beginning.
    pub name: &'static str,
    /// What it is, in words.
    pub what: &'static str,
}

/// Work that several calls may share, as [`crate::event::Event::Fs`] and
/// [`crate::event::Event::Jbd2`] tell it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// Its name in events; jbd2's commits are `commit`.
    pub work: &'static str,
    /// What one is called, with its number behind it: `transaction`, `checkpoint`.
    pub one: &'static str,
}

/// The words of one file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stages {
    /// Kinds of requests, from the special to the general.
    pub kinds: &'static [Kind],
    /// What a write of blocks of no known class is: with PREFLUSH or FUA, of a jbd2 commit that has
    /// begun to log, with META, and any other.
    pub unclassified: [&'static str; 4],
    /// What data is that a server writes of files that the call is not about; if it is nothing
    /// special, `None`.
    pub others_data: Option<&'static str>,
    /// Its own tasks.
    pub servers: &'static [Server],
    /// Work that calls share.
    pub shared: &'static [Shared],
}

/// What is used where the file system is not known: as it is with a journal.
pub static UNKNOWN: Stages = Stages {
    kinds: &[],
    unclassified: ["commit record", "journal blocks", "metadata", "data"],
    others_data: Some("ordered data of other files"),
    servers: &[Server { name: "jbd2/", what: "the journal thread" }],
    shared: &[Shared { work: "commit", one: "transaction" }],
};

/// Tasks of the kernel that are no file system's, by the beginnings of their names.
pub static KERNEL: [Server; 3] = [
    Server { name: "swapper", what: "interrupt context" },
    Server { name: "flush-", what: "the flusher" },
    Server { name: "kworker/", what: "a kernel worker" },
];

/// Classes in the name of a range: `data:f_0+inode*2` has `data` and `inode`.
pub fn classes(range: &str) -> impl Iterator<Item = &str> {
    range.split('+').map(|part| part.split(['*', ':']).next().unwrap_or(part))
}

impl Stages {
    /// The kind of a range of blocks; `None` for classes that are in no table.
    pub fn kind(&self, range: &str) -> Option<&Kind> {
        self.kinds.iter().find(|k| !range.is_empty() && k.fits(classes(range)))
    }

    /// The file system's own task, or the kernel's, of that name; `None`: a program's.
    pub fn server(&self, task: &str) -> Option<&Server> {
        self.servers.iter().chain(&KERNEL).find(|s| task.starts_with(s.name))
    }

    /// The shared work of that name.
    pub fn shared(&self, work: &str) -> Option<&Shared> {
        self.shared.iter().find(|s| s.work == work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: Stages = Stages {
        kinds: &[
            Kind::all(&["inode", "node"], "node", Purpose::Meta),
            Kind::any(&["root"], "log with a root", Purpose::Record),
            Kind::any(&["summary"], "log", Purpose::Meta),
            Kind::all(&["data"], "data", Purpose::Data),
        ],
        unclassified: ["record", "log", "metadata", "write"],
        others_data: None,
        servers: &[Server { name: "jbd2/", what: "the journal thread" }],
        shared: &[],
    };

    #[test]
    fn a_range_is_named_by_the_first_kind_that_fits_all_or_some_of_it() {
        let stage = |range| STAGES.kind(range).map(|k| k.stage);
        assert_eq!(stage("inode+node*2"), Some("node"));
        assert_eq!(stage("summary+data:f_1+inode"), Some("log"));
        assert_eq!(stage("summary+data*3+root"), Some("log with a root"));
        assert_eq!(stage("data:a+data:b"), Some("data"));
        assert_eq!(stage("data:a+inode"), None);
        assert_eq!(stage(""), None);
    }
}
