//! The points of an experiment. Each is resolved when it is asked for, so that a sweep of a hundred
//! thousand takes no more memory than one of ten.
//!
//! Laws: a point is the same each time: what it reads are the inputs as they were when the
//!       experiment was read. An input that has changed since is an error, not another point.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wp_base::plain::Shown as _;
use wp_machine::host::text;
use wp_workload::fio::Place;

use super::read::Fields;
use super::resolve::{Files, Setup, resolve};
use super::source::{self, Table};
use super::sweep::Sweep;
use super::vary::Variations;
use super::work;

/// What points are resolved from, for any thread.
#[derive(Clone)]
pub struct Source {
    /// Name of the file.
    pub name: String,
    /// What is in it.
    pub bytes: Arc<[u8]>,
    /// Where its paths begin.
    pub dir: PathBuf,
    /// The files that it reads, by their names in the results.
    pub inputs: Arc<BTreeMap<String, Vec<u8>>>,
    /// Those names by the path that the file has.
    names: Arc<BTreeMap<String, String>>,
    /// Where those are on the host: workloads read them again.
    hosts: Arc<BTreeMap<String, PathBuf>>,
    /// Points that variations change, behind those of the sweep.
    pub varied: Option<Arc<Variations>>,
}

/// Where the first line of a file is.
pub fn top(name: &str, bytes: &[u8]) -> Place {
    Place {
        file: name.into(),
        line: 1,
        column: 1,
        width: 1,
        text: String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().into(),
    }
}

impl Source {
    /// Of an experiment that has read its files.
    pub fn new(name: &str, bytes: &[u8], dir: &Path, files: &Files) -> Source {
        Source {
            name: name.to_owned(),
            bytes: bytes.into(),
            dir: dir.to_owned(),
            inputs: Arc::new(files.inputs.clone()),
            names: Arc::new(files.names.clone()),
            hosts: Arc::new(files.hosts.clone()),
            varied: None,
        }
    }

    /// Its points, for one thread.
    pub fn open(&self) -> Points {
        // It was read without an error before.
        let found = &mut Vec::new();
        let root = source::parse(&self.name, &self.bytes, found);
        let top = top(&self.name, &self.bytes);
        let sweep = Sweep::read(&Fields::new("", (&root, &top), &[], found), found);
        let files = Files::known(&self.dir, &self.inputs, &self.names);
        Points { source: self.clone(), root, top, sweep, files: RefCell::new(files) }
    }

    /// The files that a point's workload reads again when it is run: where, and what is in them.
    fn read_again(&self, setup: &Setup) -> Vec<(&Path, &[u8])> {
        // Programs were read whole, before.
        if matches!(setup.work.kind, work::Kind::Program(_)) {
            return Vec::new();
        }
        setup.inputs.iter().filter_map(|name| self.input(name)).collect()
    }

    fn input(&self, name: &str) -> Option<(&Path, &[u8])> {
        Some((&**self.hosts.get(name)?, &**self.inputs.get(name)?))
    }

    /// Are the files of a run as they were when the experiment was read? Errors: one that is not,
    /// in words.
    pub fn unchanged(&self, setup: &Setup) -> Result<(), String> {
        unchanged(&self.read_again(setup))
    }
}

fn unchanged(files: &[(&Path, &[u8])]) -> Result<(), String> {
    let is_other =
        |(host, bytes): &&(&Path, &[u8])| text::bytes(host).ok().as_deref() != Some(*bytes);
    files.iter().find(is_other).map_or(Ok(()), |(host, _)| {
        let what = "changed while the experiment ran, so the run is not saved";
        Err(format!("{} {what}; start it again", host.shown()))
    })
}

/// The points, for one thread.
pub struct Points {
    /// What they are resolved from.
    pub source: Source,
    root: Table,
    top: Place,
    sweep: Sweep,
    files: RefCell<Files>,
}

impl Points {
    /// How many the sweep has.
    #[expect(clippy::len_without_is_empty, reason = "an experiment has one point at least")]
    pub fn len(&self) -> usize {
        // `RUNS_MAX` was checked when the experiment was read.
        self.sweep.points().map_or(0, |n| n as usize)
    }

    /// A point by its number; behind those of the sweep are those that variations change. Errors:
    /// an input that has changed.
    pub fn at(&self, n: usize) -> Result<Setup, String> {
        match (n.checked_sub(self.len()), &self.source.varied) {
            (Some(n), Some(varied)) => varied.setup(n, self),
            _ => self.of_sweep(n),
        }
    }

    fn of_sweep(&self, n: usize) -> Result<Setup, String> {
        let mut found = Vec::new();
        let file = self.sweep.file(&self.root, n, &mut found);
        let setup = resolve(&file, &self.top, &mut self.files.borrow_mut(), &mut found);
        setup.ok_or_else(|| {
            let all: Vec<(&Path, &[u8])> =
                self.source.hosts.keys().filter_map(|name| self.source.input(name)).collect();
            let other = || found.first().map(|d| d.message.clone()).unwrap_or_default();
            unchanged(&all).err().unwrap_or_else(other)
        })
    }
}
