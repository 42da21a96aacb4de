//! O8: a command of the user judges every recovered tree.
//!
//! Picture:    state -> recovery -> files in a directory -> `sh -c CMD` there -> exit status.
//! Invariants: 1. the command is run once for all that it can see: a tree and what the program had
//!                been told by then, with the device as an image that too. The cache is by
//!                contents, and a command that always answers the same gives the same findings
//!                with any number of threads;
//!             2. what keeps a command from being run is an error of the campaign, not a verdict.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command as Process, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sha2::{Digest, Sha256};
use wp_base::Sector;
use wp_base::plain::Shown as _;
use wp_crash::{Entry, History, Outcome, Rule, Violation, Visit};
use wp_machine::files;
use wp_machine::host::{Group, Scratch};
use wp_vfs::{FsEntry, Options};
use wp_workload::program::{Call, Data};

use super::export::Tree;
use super::play::Played;
use super::story::Cut;

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

/// How a check is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asking {
    /// The command is run in each tree, and its exit status says what it thinks.
    Run,
    /// It is started once, is told of trees on its standard input, and answers on its standard
    /// output: `ok`, or `bad` and why.
    Stays,
}

/// The command.
pub struct Command {
    line: String,
    asking: Asking,
    /// Is it given acknowledgements, and not calls?
    acked: bool,
    places: Mutex<Vec<Place>>,
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
    /// `image` `WRITEPATH_IMAGE` (the device as the cut left it, before recovery). With `acked`
    /// ([`wp_workload::program::Program::is_recorded`]) not the calls but `WRITEPATH_ACKED`: a file
    /// with the lines that the program had acknowledged.
    ///
    /// One that stays up reads a line for each tree: the directory, a tab, the file of
    /// `WRITEPATH_ACKED` or `WRITEPATH_RETURNED`, and with `image` a tab and the image.
    ///
    /// Errors: the private directory cannot be made.
    pub fn new(
        (line, asking, acked): (&str, Asking, bool),
        dir: &Path,
        timeout: Duration,
        image: bool,
    ) -> io::Result<Arc<Command>> {
        let scratch = Scratch::within(dir, "writepath-check")?;
        Ok(Arc::new(Command {
            line: line.to_owned(),
            asking,
            acked,
            places: Mutex::default(),
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

    /// Is it given acknowledgements, and not calls?
    pub(super) fn is_acked(&self) -> bool {
        self.acked
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
        let acks = command.acked.then(|| Acks::of(&played));
        move |visit| {
            if visit.outcome.refused.is_some() || command.error().is_some() {
                return None;
            }
            let seen =
                match command.judge(visit, (fs, &options), (&played, acks.as_ref(), run), &history)
                {
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
                expected: match command.asking {
                    Asking::Run => format!("exit status 0 of `{}`", command.line),
                    Asking::Stays => format!("`ok` of `{}`", command.line),
                },
                seen,
            })
        }
    }

    /// What the command has against the state. Errors: it could not be asked.
    fn judge(
        &self,
        visit: &Visit<'_>,
        fs: (&'static FsEntry, &Options),
        (played, acks, run): (&Played, Option<&Acks>, u64),
        history: &History,
    ) -> Result<Option<String>, String> {
        let told = told(played, acks, visit.operations);
        let live = history.frames[visit.frame].live.len();
        let lost: Vec<usize> = (0..live).filter(|i| !visit.kept.has(*i)).collect();
        let cut = Cut { fs, played, history, frame: visit.frame, lost: &lost };
        let image = self.image.then(|| image_key(&cut, run));
        let key = key(visit.outcome, &told, image);
        if let Some(known) = self.verdicts.lock().unwrap_or_else(|e| e.into_inner()).get(&key) {
            self.runs.lock().unwrap_or_else(|e| e.into_inner()).cached += 1;
            return Ok(known.clone());
        }
        #[expect(clippy::disallowed_methods, reason = "what is measured is the host")]
        let start = Instant::now();
        let free = self.places.lock().unwrap_or_else(|e| e.into_inner()).pop();
        let mut place = match free {
            Some(place) => place,
            None => {
                let number = self.next.fetch_add(1, Ordering::SeqCst);
                let dir = self.scratch.path().join(number.to_string());
                Place::new(dir.clone()).map_err(|e| format!("{}: {e}", dir.shown()))?
            }
        };
        let verdict = self.ask(&mut place, visit.outcome, &cut, &told);
        let verdict = verdict.map_err(|e| format!("{}: {e}", place.dir.shown()))?;
        self.places.lock().unwrap_or_else(|e| e.into_inner()).push(place);
        let mut runs = self.runs.lock().unwrap_or_else(|e| e.into_inner());
        runs.runs += 1;
        runs.refused += u64::from(verdict.is_some());
        runs.spent += start.elapsed();
        self.verdicts.lock().unwrap_or_else(|e| e.into_inner()).insert(key, verdict.clone());
        Ok(verdict)
    }

    fn ask(
        &self,
        place: &mut Place,
        outcome: &Outcome,
        cut: &Cut<'_>,
        told: &Told,
    ) -> io::Result<Option<String>> {
        place.tree.lay(outcome, cut)?;
        let mut files = Vec::new();
        for (name, text) in told.files() {
            let path = place.dir.join(name);
            fs::write(&path, text)?;
            files.push((name, path));
        }
        let image = self.image.then(|| place.dir.join("image"));
        if let Some(image) = &image {
            let (start, bytes) = cut.played.partition;
            match fs::remove_file(image) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            files::save(&cut.medium(), Sector(0), start + bytes, image)?;
        }
        match self.asking {
            Asking::Run => self.run(place, &files, image.as_deref()),
            Asking::Stays => {
                let (first, image) = (&files[0].1, image.as_deref());
                let asked = self.ask_the_one_that_stays(place, first, image);
                if !matches!(asked, Ok((_, true))) {
                    // The next tree has a new one.
                    place.stays = None;
                }
                asked.map(|(verdict, _)| verdict)
            }
        }
    }

    /// What a process that stays up answers, and whether it can be asked again.
    fn ask_the_one_that_stays(
        &self,
        place: &mut Place,
        told: &Path,
        image: Option<&Path>,
    ) -> io::Result<(Option<String>, bool)> {
        if place.stays.is_none() {
            place.stays = Some(Checker::start(&self.line, &place.dir)?);
        }
        let Some(checker) = &mut place.stays else { return Ok((None, false)) };
        let mut line = place.tree.root().as_os_str().as_bytes().to_vec();
        for path in [Some(told), image].into_iter().flatten() {
            line.push(b'\t');
            line.extend(path.as_os_str().as_bytes());
        }
        line.push(b'\n');
        let asked = checker.input.write_all(&line).and_then(|()| checker.input.flush());
        #[expect(clippy::disallowed_methods, reason = "a command of the host takes its time")]
        let start = Instant::now();
        let answer = match asked {
            Ok(()) => loop {
                if let Some(answer) = checker.answer(LOOK)? {
                    break answer;
                }
                if self.ended.load(Ordering::SeqCst) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                if start.elapsed() > self.timeout {
                    let late = format!("no answer in {} s", self.timeout.as_secs());
                    return Ok((Some(late), false));
                }
            },
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Answer::Ended,
            Err(e) => return Err(e),
        };
        match answer {
            Answer::Line(text) if text == "ok" => Ok((None, true)),
            Answer::Line(text) => match text.strip_prefix("bad") {
                Some(why) => Ok((Some(why.trim().chars().take(200).collect()), true)),
                None => {
                    let what =
                        format!("the checker answered `{text}`, neither `ok` nor `bad REASON`");
                    Err(io::Error::new(io::ErrorKind::InvalidData, what))
                }
            },
            Answer::Ended => {
                let status = checker.group.end()?;
                Ok((Some(format!("the checker ended: {status}")), false))
            }
        }
    }

    /// What the exit status of a run says.
    fn run(
        &self,
        place: &Place,
        files: &[(&'static str, PathBuf)],
        image: Option<&Path>,
    ) -> io::Result<Option<String>> {
        let said = place.dir.join("said");
        let output = File::create(&said)?;
        let tree = place.tree.root();
        let mut process = Process::new("sh");
        process.arg("-c").arg(&self.line).current_dir(tree).stdin(Stdio::null());
        process.stdout(output.try_clone()?).stderr(output);
        process.env("WRITEPATH_TREE", tree);
        for (name, path) in files {
            process.env(format!("WRITEPATH_{}", name.to_ascii_uppercase()), path);
        }
        if let Some(image) = image {
            process.env("WRITEPATH_IMAGE", image);
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

/// Where trees are checked, one after the other.
struct Place {
    dir: PathBuf,
    tree: Tree,
    stays: Option<Checker>,
}

impl Place {
    fn new(dir: PathBuf) -> io::Result<Place> {
        let tree = Tree::new(dir.join("tree"))?;
        Ok(Place { dir, tree, stays: None })
    }
}

/// A check that stays up.
struct Checker {
    group: Group,
    input: ChildStdin,
    output: ChildStdout,
    /// What has come of the next answer.
    line: Vec<u8>,
}

/// What a check that stays up has said.
enum Answer {
    Line(String),
    Ended,
}

impl Checker {
    fn start(line: &str, dir: &Path) -> io::Result<Checker> {
        let mut process = Process::new("sh");
        process.arg("-c").arg(line).current_dir(dir);
        process.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut group = Group::spawn(&mut process)?;
        let pipes = group.pipes().ok_or_else(|| io::Error::other("no pipes to the checker"))?;
        Ok(Checker { group, input: pipes.0, output: pipes.1, line: Vec::new() })
    }

    /// The next line, if it comes within `patience`.
    fn answer(&mut self, patience: Duration) -> io::Result<Option<Answer>> {
        let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(patience.subsec_nanos()) };
        let mut polled = [PollFd::new(&self.output, PollFlags::IN)];
        match poll(&mut polled, Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            other => other?,
        };
        let mut bytes = [0; 4096];
        let n = self.output.read(&mut bytes)?;
        if n == 0 {
            return Ok(Some(Answer::Ended));
        }
        self.line.extend_from_slice(&bytes[..n]);
        if self.line.len() as u64 > SAID_BYTES {
            let what = "the checker's answer has no end";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let Some(end) = self.line.iter().position(|b| *b == b'\n') else { return Ok(None) };
        let line: Vec<u8> = self.line.drain(..=end).collect();
        Ok(Some(Answer::Line(String::from_utf8_lossy(&line).trim().to_owned())))
    }
}

/// What a check is told of the time of the failure.
enum Told {
    /// Calls that had returned, and calls that had been called besides, one a line.
    Calls(String, String),
    /// Lines that had been acknowledged.
    Acked(Vec<u8>),
}

impl Told {
    /// Files by their names, with what is in them.
    fn files(&self) -> Vec<(&'static str, &[u8])> {
        match self {
            Told::Calls(returned, called) => {
                vec![("returned", returned.as_bytes()), ("called", called.as_bytes())]
            }
            Told::Acked(lines) => vec![("acked", lines)],
        }
    }
}

fn told(played: &Played, acks: Option<&Acks>, (begun, ended): (u32, u32)) -> Told {
    if let Some(acks) = acks {
        return Told::Acked(acks.by(ended).to_vec());
    }
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
    Told::Calls(returned.iter().map(answer).collect(), called.map(|n| line(&n)).collect())
}

/// Lines that a program has acknowledged, in their order.
struct Acks {
    /// All of them, each with its line feed.
    lines: Vec<u8>,
    /// How many operations had returned with each, and where its line ends.
    ends: Vec<(u32, usize)>,
}

impl Acks {
    fn of(played: &Played) -> Acks {
        let ended = played.tape.entries.iter().filter_map(|(_, e)| match e {
            Entry::End(n) => Some(*n),
            _ => None,
        });
        let mut acks = Acks { lines: Vec::new(), ends: Vec::new() };
        for (n, count) in ended.zip(1..) {
            let call = played.dids.get(n as usize).map(|did| &did.call);
            if let Some(Call::Ack(Data::Given(line))) = call {
                acks.lines.extend_from_slice(line);
                acks.lines.push(b'\n');
                acks.ends.push((count, acks.lines.len()));
            }
        }
        acks
    }

    /// Those of the first `ended` operations that returned.
    fn by(&self, ended: u32) -> &[u8] {
        let count = self.ends.partition_point(|(n, _)| *n <= ended);
        let end = count.checked_sub(1).map_or(0, |last| self.ends[last].1);
        &self.lines[..end]
    }
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

fn key(outcome: &Outcome, told: &Told, image: Option<Key>) -> Key {
    let mut hash = Sha256::new();
    let mut put = |text: &[u8]| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    told.files().into_iter().for_each(|(_, text)| put(text));
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
