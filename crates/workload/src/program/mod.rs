//! Programs: system calls as text, one step a line.
//!
//! ```text
//! case seq0                        what follows belongs to this case
//! align                            wait for the next tick (10 ms) and one millisecond more
//! @open_creat:0 open 0 s_a rw,creat   a timed call: its name and index, then the call
//! pwrite 0 4096 0 1                a call that is not timed: descriptor, bytes, offset, seed
//! aio_write 0 4096 0 1             io_submit of one pwrite; aio_read 0 4096 0: of one pread
//! aio_wait 1                       io_getevents: waits until this number has ended, takes all
//! begin writes 10 … end            times everything between as one
//! nap 20000                        sleep, microseconds
//! think 1500                       what a recorded program did meanwhile, microseconds
//! exit                             the process ends: every descriptor is closed
//! fail write data 2 1              the device fails requests, see [`Fault`], until `heal`
//! slow write data 2 1 50000        it begins requests late, see [`Slow`], until `heal`
//! tear write data 2 1 512 1024     it writes only a part, see [`Tear`], until `heal`
//! expect ENOENT                    the next call must fail with this error
//! power_failure                    power fails; what follows is called after recovery
//! thread 2: fsync 0                thread 2 of the process makes this call, see [`Interleavings`]
//! join                             every call above returns before one below begins
//! in_order                         first line: calls begin in the order of their lines
//! ```
//! The same text is read by `prog.c` in the guest of `wp_parity::vtime`, but for `fail`, `slow`,
//! `tear`, `heal`, `expect`, `power_failure`, `pread`, `drop_caches`, `mark`, `fbarrier`,
//! `fdatabarrier` and threads. [`Player`] does the calls on a mounted file system of ours.

mod advise;
mod call;
mod data;
mod fault;
mod parse;
mod play;
mod pwrite;
mod syntax;
mod threads;
mod words;

use std::fmt;

use wp_base::FsError;

use parse::call;
use words::Words;

pub use advise::Advise;
pub use call::{AIO_MOST, Alloc, Call, Flags, LIMITS};
pub use data::{Data, MAGIC_SEED, contents};
pub use fault::{Asked, Fault, Place, Slow, Tear};
pub use play::{Ended, Player};
pub use syntax::{SYNTAX, Syntax};
pub use threads::{Interleavings, NO_THREADS, THREADS_MAX};

/// What a timed stretch is called: a name, and which of that name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    /// Name.
    pub op: String,
    /// Index.
    pub index: u32,
}

/// Who makes a call, and what it is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct By {
    /// Thread of the process; 0: the main thread.
    pub thread: u32,
    /// The call is timed under this name.
    pub label: Option<Label>,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// What follows belongs to this case.
    Case(String),
    /// Sleep to the next tick and one millisecond more.
    Align,
    /// Sleep, microseconds.
    Nap(u64),
    /// The recorded program did something else for that time, microseconds. Takes no time, unless
    /// [`Program::with_think_times`] makes naps of it.
    Think(u64),
    /// A timed stretch begins.
    Begin(Label),
    /// It ends.
    End,
    /// Every descriptor is closed.
    Exit,
    /// A call, timed if it has a label.
    Call(By, Call),
    /// Every call above returns before one below begins.
    Join,
    /// The program is one interleaving of its threads: calls begin in the order of their lines.
    InOrder,
    /// The device fails requests from here on. A later one is added to it.
    Fail(Fault),
    /// It begins requests late from here on. A later one is added to it.
    Slow(Slow),
    /// It leaves out a part of writes from here on. A later one is added to it.
    Tear(Tear),
    /// It fails none any more, is as quick as it is, and writes all.
    Heal,
    /// The next call must fail with the error of this name, such as `ENOENT`.
    Expect(&'static str),
    /// The calls that follow are made by a task of this name: what views of a run call it.
    Task(String),
    /// Power fails here: what follows is called after a recovery, by a new process.
    PowerFailure,
}

/// As text that is read again; `{:#}` leaves out bytes that were given, for people.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Case(name) => write!(f, "case {name}"),
            Step::Align => f.write_str("align"),
            Step::Nap(us) => write!(f, "nap {us}"),
            Step::Think(us) => write!(f, "think {us}"),
            Step::Begin(l) => write!(f, "begin {} {}", l.op, l.index),
            Step::End => f.write_str("end"),
            Step::Exit => f.write_str("exit"),
            Step::Fail(fault) => fault.fmt(f),
            Step::Slow(slow) => slow.fmt(f),
            Step::Tear(tear) => tear.fmt(f),
            Step::Heal => f.write_str("heal"),
            Step::Expect(errno) => write!(f, "expect {errno}"),
            Step::Task(name) => write!(f, "task {}", words::Word(name)),
            Step::PowerFailure => f.write_str("power_failure"),
            Step::Join => f.write_str("join"),
            Step::InOrder => f.write_str("in_order"),
            Step::Call(by, c) => {
                if by.thread > 0 {
                    write!(f, "thread {}: ", by.thread)?;
                }
                if let Some(l) = &by.label {
                    write!(f, "@{}:{} ", l.op, l.index)?;
                }
                c.fmt(f)
            }
        }
    }
}

impl Step {
    /// A call of the main thread that is not timed.
    pub fn call(call: Call) -> Step {
        Step::Call(By::default(), call)
    }

    /// A timed call of the main thread.
    pub fn timed(label: Label, call: Call) -> Step {
        Step::Call(By { thread: 0, label: Some(label) }, call)
    }

    /// A call of a thread.
    pub fn of_thread(thread: u32, call: Call) -> Step {
        Step::Call(By { thread, label: None }, call)
    }
}

/// A program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program(pub Vec<Step>);

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|s| writeln!(f, "{s}"))
    }
}

impl Program {
    /// Its calls.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.0.iter().filter_map(|s| match s {
            Step::Call(_, call) => Some(call),
            _ => None,
        })
    }

    /// Was it recorded, or does it acknowledge anything? Then what it has told the world counts,
    /// and not which of its calls had returned.
    pub fn is_recorded(&self) -> bool {
        self.calls().any(|call| match call {
            Call::Ack(_) => true,
            Call::Pwrite { data, .. } => !matches!(data, Data::Seed(_)),
            _ => false,
        })
    }

    /// The same with naps for its think times.
    pub fn with_think_times(self) -> Program {
        let nap = |step| match step {
            Step::Think(us) => Step::Nap(us),
            step => step,
        };
        Program(self.0.into_iter().map(nap).collect())
    }

    /// The same without its think times.
    pub fn without_think_times(self) -> Program {
        let is_kept = |step: &Step| !matches!(step, Step::Think(_));
        Program(self.0.into_iter().filter(is_kept).collect())
    }

    /// The number of the line of `text` on which each step of its program stands, from 1.
    pub fn lines(text: &str) -> Vec<usize> {
        let is_step = |line: &str| !without_comment(line).trim().is_empty();
        text.lines().enumerate().filter(|(_, l)| is_step(l)).map(|(n, _)| n + 1).collect()
    }

    /// Reads a program; `#` starts a comment. Errors: the first wrong line, with its number.
    pub fn parse(text: &str) -> Result<Program, String> {
        let mut steps = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let line = without_comment(line);
            if line.trim().is_empty() {
                continue;
            }
            steps.push(step(line).map_err(|e| format!("line {}: {e}", n + 1))?);
        }
        threads::check(&steps).map_err(|(step, e)| {
            format!("line {}: {e}", Program::lines(text).get(step).unwrap_or(&1))
        })?;
        Ok(Program(steps))
    }
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

/// What is wrong in a line, and how lines of this kind are written.
fn with_form(name: &str, error: String) -> String {
    let known = SYNTAX.iter().find(|s| s.form.split(' ').next() == Some(name));
    known.map_or_else(|| error.clone(), |s| format!("{error}; write `{}`", s.form))
}

fn step(line: &str) -> Result<Step, String> {
    let mut w = Words(line.split_whitespace());
    let first = w.text()?;
    let step =
        if let Some(label) = first.strip_prefix('@') {
            let (op, index) = label.rsplit_once(':').ok_or("a label is @name:index")?;
            let index = index.parse().map_err(|_| format!("`{index}`: a label is @name:index"))?;
            let name = w.text()?;
            Step::timed(Label { op: op.to_owned(), index }, call(name, &mut w)?)
        } else {
            match first {
                "case" => Step::Case(w.owned()?),
                "align" => Step::Align,
                "nap" => Step::Nap(w.micros()?),
                "think" => Step::Think(w.micros()?),
                "begin" => Step::Begin(Label { op: w.owned()?, index: w.small(u32::MAX)? }),
                "end" => Step::End,
                "exit" => Step::Exit,
                "fail" => Step::Fail(Fault::parse(&mut w)?),
                "slow" => Step::Slow(Slow::parse(&mut w)?),
                "tear" => Step::Tear(Tear::parse(&mut w)?),
                "heal" => Step::Heal,
                "task" => Step::Task(w.owned()?),
                "power_failure" => Step::PowerFailure,
                "join" => Step::Join,
                "in_order" => Step::InOrder,
                "thread" => threads::step(&mut w)?,
                "expect" => {
                    let word = w.text()?;
                    let known = FsError::ERRNOS.iter().find(|e| **e == word);
                    Step::Expect(known.ok_or_else(|| {
                        format!("`{word}`: one of {}", FsError::ERRNOS.join(", "))
                    })?)
                }
                name => Step::call(call(name, &mut w).map_err(|e| with_form(name, e))?),
            }
        };
    match w.0.next() {
        None => Ok(step),
        Some(extra) => Err(format!("`{extra}` is one word too many")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_its_text() {
        let text = "case a\nalign\n@open:0 open 0 f rw,creat,trunc,direct,dsync,sync\n\
                    begin w 3\npwrite 0 3072 1024 7\nend\n@s:1 fsync 0\nfdatasync 0\nsyncfs 0\n\
                    fbarrier 0\nfdatabarrier 0\nsync\n\
                    ftruncate 0 8192\nfallocate 0 keep 0 4096\nrename f g\nlink g h\nunlink h\n\
                    mkdir d\nrmdir d\nsymlink d/f l\nsetxattr f user.a 40 7\n\
                    removexattr f user.a\npread 0 4096 0\n\
                    chattr f append,immutable\nchattr f none\nsubvolume_create s\n\
                    snapshot s d/t\nsnapshot . u readonly\nsubvolume_delete s\n\
                    seek_data 0 4096\nseek_hole 0 7\n\
                    atomic_start 0\natomic_replace 0\natomic_commit 0\natomic_abort 0\n\
                    open 1 . rw,excl,tmpfile\nlinkat 1 t\nrenameat2 a b exchange\n\
                    renameat2 a b noreplace\nrenameat2 a b whiteout\nmknod c char 1 3\n\
                    mknod b block 259 300\nmkfifo p\nchmod f 4755\nchown f 1000 100\n\
                    utimensat f 1.000000001 1000000000.500000000\ntruncate f 100\n\
                    mmap_write 0 100 4000 3\nmsync 0 0 4096\nsync_file_range 0 0 0\n\
                    copy_file_range 0 0 1 4096 100\nreflink 0 0 1 4096 0\n\
                    dedupe 0 0 1 4096 8192\nfallocate 0 collapse 0 4096\n\
                    fallocate 0 insert 0 4096\nopen 2 f rw,append\n\
                    fadvise 0 dontneed\nfadvise 0 random\n\
                    aio_write 0 4096 0 1\naio_read 0 4096 0\naio_wait 2\ndrop_caches\nmark d/f\n\
                    fail write data 2 1\n\
                    fail flush any 0 always\nfail read 2048+8 0 3\nslow write meta 1 2 900\n\
                    tear write journal 0 1 512 1024\nheal\nexpect EBADF\nclose 0\npower_failure\n\
                    nap 20000\nthink 1500\nexit\n";
        let p = Program::parse(text).expect("a program");
        assert_eq!(p.to_string(), text);
    }

    #[test]
    fn every_step_knows_its_line() {
        let text = "# what is here\nmkdir d\n\n  # more\nsync  # and so on\nrmdir d";
        let steps = Program::parse(text).expect("a program").0.len();
        assert_eq!(Program::lines(text), [2, 5, 6]);
        assert_eq!(steps, 3);
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        for bad in [
            "fly 0",
            "fsync",
            "fsync 65536",
            "fsync 0 0",
            "open 0 a w",
            "@x fsync 0",
            "pwrite 0 1048577 0 0",
            "aio_wait 257",
            "fail write dat 0 1",
            "fail write data 0",
            "fail write 8+x 0 1",
            "slow write data 0 1",
            "tear write data 0 1 100 512",
            "expect",
            "expect ENOSUCH",
            "open 0 a rw,tmp",
            "renameat2 a b",
            "renameat2 a b swap",
            "mknod c pipe 1 3",
            "mknod c char 4096 0",
            "snapshot a",
            "snapshot a b writable",
            "subvolume_delete",
            "chattr f +i",
            "chattr f",
            "seek_data 0",
            "chmod f 8",
            "chmod f 10000",
            "utimensat f 1 x",
            "utimensat f 1 0.1234567890",
            "utimensat f 1 -1",
            "fallocate 0 shrink 0 1",
            "copy_file_range 0 0 1 0 9999999999",
            "reflink 0 0 1 0",
            "reflink 0 0 65536 0 4096",
            "dedupe 0 0 1 0 9999999999",
        ] {
            let e = Program::parse(&format!("align\n{bad}")).expect_err(bad);
            assert!(e.starts_with("line 2: "), "{e}");
        }
    }

    #[test]
    fn what_programs_have_not_names_what_to_do_instead() {
        for (text, instead) in [
            ("subvolume d", "subvolume_create"),
            ("quota d", "writepath fsck"),
            ("compression a", "writepath inspect"),
            ("fly a", "writepath list calls"),
        ] {
            let e = Program::parse(text).expect_err(text);
            assert!(e.contains(instead) && !e.contains('\n'), "{text}: {e}");
        }
    }
}
