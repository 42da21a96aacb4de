//! `write_iolog`: what a job did, in fio's own format of version 3.
//!
//! Source: fio's manual, "Trace file format v3"; logs of the installed fio.

use std::fmt::Write;

use super::job::Job;
use super::sequence::Direction;

/// The log of one job.
#[derive(Clone, Debug)]
pub struct IoLog {
    text: String,
    names: Vec<String>,
}

impl IoLog {
    /// Of a job that begins; `None`: it writes none.
    pub fn new(job: &Job) -> Option<IoLog> {
        job.iolog.as_ref()?;
        let mut log =
            IoLog { text: "fio version 3 iolog\n".to_owned(), names: job.written_paths() };
        for file in 0..log.names.len() {
            log.event(0, file, "add");
        }
        Some(log)
    }

    /// A file is added, opened or closed, `at_ns` after the job's beginning.
    pub fn event(&mut self, at_ns: u64, file: usize, word: &str) {
        self.line(at_ns, file, word);
    }

    /// A file is synced. fio logs the offset that the same `io_u` had before, and no bytes.
    pub fn sync(&mut self, at_ns: u64, file: usize, word: &str, offset: u64) {
        self.line(at_ns, file, &format!("{word} {offset} 0"));
    }

    /// An operation is issued.
    pub fn operation(
        &mut self,
        at_ns: u64,
        file: usize,
        direction: Direction,
        (offset, length): (u64, u64),
    ) {
        let word = ["read", "write", "trim"][direction.index()];
        self.line(at_ns, file, &format!("{word} {offset} {length}"));
    }

    fn line(&mut self, at_ns: u64, file: usize, what: &str) {
        let name = self.names.get(file).map_or("", String::as_str);
        // Version 3 has microseconds, whatever the manual's example says.
        writeln!(self.text, "{} {name} {what}", at_ns / 1_000).expect("a string takes everything");
    }

    /// The file of a job's log: its name, and what is in it.
    pub fn file(self, job: &Job) -> Option<(String, String)> {
        Some((job.iolog.clone()?, self.text))
    }
}
