//! O8: a command of the user judges every recovered tree.
//!
//! Picture:    state -> recovery -> files in a directory -> `sh -c CMD` there -> exit status.
//! Invariants: 1. the command is run once for all that it can see: a tree and what the program had
//!                been told by then, with the device as an image that too. The cache is by
//!                contents, and a command that always answers the same gives the same findings
//!                with any number of threads;
//!             2. what keeps a command from being run is an error of the campaign, not a verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use wp_base::plain::Shown as _;
use wp_base::{FsResult, Sector};
use wp_crash::{Entry, History, Outcome, Rule, Violation, Visit};
use wp_medium::{Overlay, View};
use wp_vfs::{FileType, FsEntry, Options, SurveyedFile};

use super::play::Played;
use super::story::Cut;
use crate::files;
use crate::host::{Group, Scratch};

/// Bytes of a file copied at a time.
const CHUNK: u64 = 256 << 10;

/// Of what a command prints, the part whose first line is told.
const SAID_BYTES: u64 = 64 << 10;

/// Between two looks at whether a command is to end.
const LOOK: Duration = Duration::from_millis(20);

/// What was run, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Runs {
    /// Commands run.
    pub runs: u64,
    /// States of which the command could see nothing else than of one before.
    pub cached: u64,
    /// Of the runs: trees that the command refused.
    pub refused: u64,
    /// Time spent in runs, summed over threads.
    pub spent: Duration,
}

/// A tree and what the program had been told: digest.
type Key = [u8; 32];

/// The command.
pub struct Command {
    line: String,
    scratch: Scratch,
    timeout: Duration,
    image: bool,
    next: AtomicU64,
    /// Runs of programs whose states it was asked about.
    played: AtomicU64,
    verdicts: Mutex<BTreeMap<Key, Option<String>>>,
    runs: Mutex<Runs>,
    error: Mutex<Option<String>>,
    /// The campaign is stopped.
    ended: AtomicBool,
}

impl Command {
    /// The shell's command `line`, with trees in a private directory in `dir`, which must exist; a
    /// run of more than `timeout` counts as failed. What a run has started ends with it. With
    /// `image` the state is there as an image file too, which takes longer.
    ///
    /// The command runs in the recovered tree. Environment: `WRITEPATH_TREE` (that directory),
    /// `WRITEPATH_RETURNED` (file with the calls that had returned, one a line, failed ones with
    /// `# ` before them), `WRITEPATH_CALLED` (file with the calls that may show besides), with
    /// `image` `WRITEPATH_IMAGE` (the device as the cut left it, before recovery).
    ///
    /// Errors: the private directory cannot be made.
    pub fn new(line: &str, dir: &Path, timeout: Duration, image: bool) -> io::Result<Arc<Command>> {
        let scratch = Scratch::within(dir, "writepath-check")?;
        Ok(Arc::new(Command {
            line: line.to_owned(),
            scratch,
            timeout,
            image,
            next: AtomicU64::new(0),
            played: AtomicU64::new(0),
            verdicts: Mutex::default(),
            runs: Mutex::default(),
            error: Mutex::default(),
            ended: AtomicBool::new(false),
        }))
    }

    /// Ends the runs that are under way, and all later ones at once: the campaign is stopped.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Does `work`; ends the command ([`Command::end`]) as soon as `is_over` says so.
    pub fn end_when<T>(&self, is_over: &(dyn Fn() -> bool + Sync), work: impl FnOnce() -> T) -> T {
        /// Also when the work panics: the scope waits for the other thread.
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _done = Done(&done);
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) && !is_over() {
                    std::thread::sleep(LOOK);
                }
                if !done.load(Ordering::Relaxed) {
                    self.end();
                }
            });
            work()
        })
    }

    /// Waits a moment for a run. Errors: it is to wait no more.
    fn pause(&self) -> io::Result<()> {
        if self.ended.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        std::thread::sleep(Duration::from_micros(200));
        Ok(())
    }

    /// Is the device of a state there as a file?
    pub fn sees_images(&self) -> bool {
        self.image
    }

    /// What was done so far.
    pub fn runs(&self) -> Runs {
        *self.runs.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// What kept the command from being run, if anything did.
    pub fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// What an explorer asks about each state of a run.
    pub(super) fn checker(
        self: &Arc<Self>,
        (fs, options): (&'static FsEntry, Options),
        played: Rc<Played>,
        history: Rc<History>,
    ) -> impl FnMut(&Visit<'_>) -> Option<Violation> + 'static {
        let command = self.clone();
        let run = command.played.fetch_add(1, Ordering::SeqCst);
        move |visit| {
            if visit.outcome.refused.is_some() || command.error().is_some() {
                return None;
            }
            let seen = match command.judge(visit, (fs, &options), (&played, run), &history) {
                Ok(seen) => seen?,
                Err(_) if command.ended.load(Ordering::SeqCst) => return None,
                Err(e) => {
                    let mut error = command.error.lock().unwrap_or_else(|e| e.into_inner());
                    error.get_or_insert(e);
                    return None;
                }
            };
            Some(Violation {
                rule: Rule::Application,
                path: String::new(),
                offset: None,
                expected: format!("exit status 0 of `{}`", command.line),
                seen,
            })
        }
    }

    /// What the command has against the state. Errors: it could not be asked.
    fn judge(
        &self,
        visit: &Visit<'_>,
        fs: (&'static FsEntry, &Options),
        (played, run): (&Played, u64),
        history: &History,
    ) -> Result<Option<String>, String> {
        let (returned, called) = told(played, visit.operations);
        let live = history.frames[visit.frame].live.len();
        let lost: Vec<usize> = (0..live).filter(|i| !visit.kept.has(*i)).collect();
        let cut = Cut { fs, played, history, frame: visit.frame, lost: &lost };
        let image = self.image.then(|| image_key(&cut, run));
        let key = key(visit.outcome, &returned, &called, image);
        if let Some(known) = self.verdicts.lock().unwrap_or_else(|e| e.into_inner()).get(&key) {
            self.runs.lock().unwrap_or_else(|e| e.into_inner()).cached += 1;
            return Ok(known.clone());
        }
        #[expect(clippy::disallowed_methods, reason = "what is measured is the host")]
        let start = Instant::now();
        let dir = self.scratch.path().join(self.next.fetch_add(1, Ordering::SeqCst).to_string());
        let verdict = self.ask(&cut, &dir, &returned, &called);
        drop(fs::remove_dir_all(&dir));
        let verdict = verdict.map_err(|e| format!("{}: {e}", dir.shown()))?;
        let mut runs = self.runs.lock().unwrap_or_else(|e| e.into_inner());
        runs.runs += 1;
        runs.refused += u64::from(verdict.is_some());
        runs.spent += start.elapsed();
        self.verdicts.lock().unwrap_or_else(|e| e.into_inner()).insert(key, verdict.clone());
        Ok(verdict)
    }

    fn ask(
        &self,
        cut: &Cut<'_>,
        dir: &Path,
        returned: &str,
        called: &str,
    ) -> io::Result<Option<String>> {
        let tree = dir.join("tree");
        export(cut, &tree)?;
        let (acks, calls, said) = (dir.join("returned"), dir.join("called"), dir.join("said"));
        fs::write(&acks, returned)?;
        fs::write(&calls, called)?;
        let output = File::create(&said)?;
        let mut process = Process::new("sh");
        process.arg("-c").arg(&self.line).current_dir(&tree).stdin(Stdio::null());
        process.stdout(output.try_clone()?).stderr(output);
        process.env("WRITEPATH_TREE", &tree);
        process.env("WRITEPATH_RETURNED", &acks).env("WRITEPATH_CALLED", &calls);
        if self.image {
            let image = dir.join("image");
            let (start, bytes) = cut.played.partition;
            files::save(&cut.medium(), Sector(0), start + bytes, &image)?;
            process.env("WRITEPATH_IMAGE", &image);
        }
        let mut group = Group::spawn(&mut process)?;
        #[expect(clippy::disallowed_methods, reason = "a command of the host takes its time")]
        let start = Instant::now();
        let status = loop {
            if let Some(status) = group.try_wait()? {
                break status;
            }
            if start.elapsed() > self.timeout {
                group.end()?;
                return Ok(Some(format!("no answer in {} s", self.timeout.as_secs())));
            }
            self.pause()?;
        };
        if status.success() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        File::open(&said)?.take(SAID_BYTES).read_to_end(&mut bytes)?;
        let said = String::from_utf8_lossy(&bytes).into_owned();
        let line: String = said.lines().next().unwrap_or("").chars().take(200).collect();
        Ok(Some(if line.is_empty() { status.to_string() } else { format!("{status}: {line}") }))
    }
}

/// Calls that had returned, and calls that had been called besides, one a line.
fn told(played: &Played, (begun, ended): (u32, u32)) -> (String, String) {
    let line = |n: &u32| format!("{}\n", played.ledger.called(*n));
    let answer = |n: &u32| match played.dids.get(*n as usize).map(|d| d.error.is_none()) {
        Some(false) => format!("# {}", line(n)),
        _ => line(n),
    };
    let ends = played.tape.entries.iter().filter_map(|(_, e)| match e {
        Entry::End(n) => Some(*n),
        _ => None,
    });
    let returned: Vec<u32> = ends.take(ended as usize).collect();
    let called = (0..begun).filter(|n| !returned.contains(n));
    (returned.iter().map(answer).collect(), called.map(|n| line(&n)).collect())
}

/// Digest of a state's image: where it is not what the run began with, and what is there. `salt`
/// tells runs apart.
fn image_key(cut: &Cut<'_>, salt: u64) -> Key {
    let mut hash = Sha256::new();
    hash.update(salt.to_le_bytes());
    let medium = cut.medium();
    cut.history.frames[0].base.diff(&medium, &mut |at, sectors| {
        hash.update(at.0.to_le_bytes());
        for slice in medium.read(at, sectors) {
            hash.update(slice.len().to_le_bytes());
            hash.update(slice.id().to_le_bytes());
        }
    });
    hash.finalize().into()
}

fn key(outcome: &Outcome, returned: &str, called: &str, image: Option<Key>) -> Key {
    let mut hash = Sha256::new();
    let mut put = |text: &[u8]| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    put(returned.as_bytes());
    put(called.as_bytes());
    put(image.as_ref().map_or(&[], |key| &key[..]));
    let mut first: BTreeMap<u64, usize> = BTreeMap::new();
    for (n, f) in outcome.files.iter().enumerate() {
        // Which names are links of one another, and not which inode they have.
        let link = *first.entry(f.ino).or_insert(n);
        put(f.path.as_bytes());
        put(format!("{:?} {link} {} {:?}", f.kind, f.size, f.target).as_bytes());
        for (block, id) in &f.blocks {
            put(&block.to_le_bytes());
            put(&id.to_le_bytes());
        }
        put(f.tail.as_deref().unwrap_or_default());
    }
    hash.finalize().into()
}

/// Writes the recovered tree into a new directory.
///
/// Errors: the host's; `InvalidData` where the state cannot be read.
fn export(cut: &Cut<'_>, dir: &Path) -> io::Result<()> {
    let bad = |e: wp_base::FsError| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
    fs::create_dir_all(dir)?;
    let view = cut.device();
    let overlay = Overlay::new(&view);
    let survey = (cut.fs.0.survey)(&overlay, cut.fs.1).map_err(bad)?;
    let mut made: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut links: BTreeSet<PathBuf> = BTreeSet::new();
    let mut list = survey.files;
    // A directory comes before what is in it.
    list.sort_by(|a, b| a.path.cmp(&b.path));
    for file in list {
        // Names that no directory of the host can hold are damage, which O1 is about.
        let odd = file.path.split('/').any(|w| w.is_empty() || w == "." || w == "..");
        // So is a file below a link (two entries of one name): it would go where that leads.
        let beside = Path::new(&file.path).ancestors().skip(1).any(|p| links.contains(p));
        if odd || beside || !seen.insert(file.path.clone()) {
            continue;
        }
        let path = dir.join(&file.path);
        match file.kind {
            FileType::Dir => fs::create_dir_all(&path)?,
            FileType::Symlink => {
                links.insert(PathBuf::from(&file.path));
                std::os::unix::fs::symlink(file.target.as_deref().unwrap_or(""), &path)?;
            }
            FileType::File => match made.get(&file.ino) {
                Some(first) => fs::hard_link(first, &path)?,
                None => {
                    contents(&file, &overlay, &path)?;
                    made.insert(file.ino, path);
                }
            },
            _ => {}
        }
    }
    Ok(())
}

fn contents(file: &SurveyedFile, view: &dyn View, path: &Path) -> io::Result<()> {
    let out = File::create_new(path)?;
    out.set_len(file.size)?;
    for run in &file.map {
        let end = (run.at + run.bytes).min(file.size);
        let mut at = run.at;
        while at < end {
            let mut bytes = vec![0; (end - at).min(CHUNK) as usize];
            let read: FsResult<()> = view.read_at(run.place + (at - run.at), &mut bytes);
            // What cannot be read is a hole here; O1 says that it is damaged.
            if read.is_ok() {
                out.write_all_at(&bytes, at)?;
            }
            at += bytes.len() as u64;
        }
    }
    Ok(())
}
