//! O8: a command of the user judges every recovered tree.
//!
//! Picture:    state -> recovery -> files in a directory -> `sh -c CMD` there -> exit status. With
//!             [`Command::serve_while`] trees wait in a queue for threads that check them, each in
//!             a directory of its own, and the explorer goes on ([`Opinion::Later`]).
//! Invariants: 1. the command is run once for all that it can see: a tree and what the program had
//!                been told by then, with the device as an image that too. The cache is by
//!                contents, and a command that always answers the same gives the same findings
//!                with any number of threads;
//!             2. what keeps a command from being run is an error of the campaign, not a verdict;
//!             3. trees that wait take a bounded amount of memory.

mod place;
mod queue;
mod told;

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use wp_base::Sector;
use wp_base::plain::Shown as _;
use wp_crash::{Explorer, History, Opinion, Rule, Violation, Visit};
use wp_vfs::{FsEntry, Options};

use self::place::Place;
use self::queue::{Job, Shared};
pub(super) use self::told::Acks;
use self::told::{image_key, key, told};
use super::export::Contents;
use super::play::Played;
use super::story::Cut;
use wp_machine::files;
use wp_machine::host::Scratch;

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
    /// Trees that wait to be checked.
    pub waiting: u64,
    /// Time spent in runs, summed over threads.
    pub spent: Duration,
}

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
    scratch: Scratch,
    timeout: Duration,
    image: bool,
    places: Mutex<Vec<Place>>,
    contents: Mutex<Vec<Contents>>,
    /// Numbers of directories and images.
    next: AtomicU64,
    /// Runs of programs whose states it was asked about.
    played: AtomicU64,
    shared: Mutex<Shared>,
    /// Something of `shared` has changed.
    changed: Condvar,
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
            scratch,
            timeout,
            image,
            places: Mutex::default(),
            contents: Mutex::default(),
            next: AtomicU64::new(0),
            played: AtomicU64::new(0),
            shared: Mutex::default(),
            changed: Condvar::new(),
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
        self.shared().runs
    }

    /// What kept the command from being run, if anything did.
    pub fn error(&self) -> Option<String> {
        self.shared().error.clone()
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Nothing is asked any more: this keeps the command from being run.
    fn fail(&self, error: String) {
        self.shared().error.get_or_insert(error);
        self.changed.notify_all();
    }

    /// What an explorer asks about each state of a run.
    pub(super) fn checker(
        self: &Arc<Self>,
        (fs, options): (&'static FsEntry, Options),
        played: Rc<Played>,
        history: Rc<History>,
    ) -> impl FnMut(&Visit<'_>) -> Opinion + 'static {
        let command = self.clone();
        let run = command.played.fetch_add(1, Ordering::SeqCst);
        let acks = command.acked.then(|| Acks::of(&played));
        move |visit| {
            if visit.outcome.refused.is_some() || command.error().is_some() {
                return Opinion::Fine;
            }
            let of = (&*played, acks.as_ref(), run);
            match command.judge(visit, (fs, &options), of, &history) {
                Ok(opinion) => opinion,
                Err(_) if command.ended.load(Ordering::SeqCst) => Opinion::Fine,
                Err(e) => {
                    command.fail(e);
                    Opinion::Fine
                }
            }
        }
    }

    /// Asks for the verdicts that the explorer has not got yet. `go_on` is asked meanwhile; returns
    /// whether all have come.
    pub(super) fn settle(
        &self,
        explorer: &mut Explorer<'_>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> bool {
        let mut whole = true;
        explorer.settle(&mut |number| match self.answer(number, go_on) {
            Some(seen) => self.violation(seen),
            None => {
                whole = false;
                None
            }
        });
        whole
    }

    /// The broken rule, if there is something wrong.
    fn violation(&self, seen: Option<String>) -> Option<Violation> {
        Some(Violation {
            rule: Rule::Application,
            path: String::new(),
            offset: None,
            expected: match self.asking {
                Asking::Run => format!("exit status 0 of `{}`", self.line),
                Asking::Stays => format!("`ok` of `{}`", self.line),
            },
            seen: seen?,
        })
    }

    /// What the command has against the state. Errors: it could not be asked.
    fn judge(
        &self,
        visit: &Visit<'_>,
        fs: (&'static FsEntry, &Options),
        (played, acks, run): (&Played, Option<&Acks>, u64),
        history: &History,
    ) -> Result<Opinion, String> {
        let told = told(played, acks, visit.operations);
        let live = history.frames[visit.frame].live.len();
        let lost: Vec<usize> = (0..live).filter(|i| !visit.kept.has(*i)).collect();
        let cut = Cut { fs, played, history, frame: visit.frame, lost: &lost };
        let image = self.image.then(|| image_key(&cut, run));
        let key = key(visit.outcome, &told, image);
        let (number, is_new, is_served) = self.number(key);
        if !is_new && is_served {
            return Ok(Opinion::Later(number));
        }
        if !is_new {
            let seen = self.answer(number, &mut || true);
            return Ok(self.violation(seen.flatten()).into());
        }
        let made = self.job((number, key), visit, &cut, told);
        let job = made.map_err(|e| format!("{}: {e}", self.scratch.path().shown()))?;
        if is_served {
            self.submit(job);
            return Ok(Opinion::Later(number));
        }
        let mut place = self.place()?;
        let seen = self.check(&mut place, &job)?;
        self.places.lock().unwrap_or_else(|e| e.into_inner()).push(place);
        Ok(self.violation(seen).into())
    }

    /// A tree to check, which needs nothing of the run any more.
    fn job(
        &self,
        (number, key): (u64, told::Key),
        visit: &Visit<'_>,
        cut: &Cut<'_>,
        told: told::Told,
    ) -> io::Result<Job> {
        let free = self.contents.lock().unwrap_or_else(|e| e.into_inner()).pop();
        let mut contents = free.unwrap_or_default();
        let layout = contents.layout(visit.outcome, cut)?;
        self.contents.lock().unwrap_or_else(|e| e.into_inner()).push(contents);
        let image = match self.image {
            true => {
                let n = self.next.fetch_add(1, Ordering::SeqCst);
                let path = self.scratch.path().join(format!("image-{n}"));
                let (start, bytes) = cut.played.partition;
                files::save(&cut.medium(), Sector(0), start + bytes, &path)?;
                Some(path)
            }
            false => None,
        };
        Ok(Job { number, key, layout, told, image })
    }

    /// A directory to check trees in. Errors: the host's, with its name.
    fn place(&self) -> Result<Place, String> {
        if let Some(place) = self.places.lock().unwrap_or_else(|e| e.into_inner()).pop() {
            return Ok(place);
        }
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let dir = self.scratch.path().join(number.to_string());
        Place::new(dir.clone()).map_err(|e| format!("{}: {e}", dir.shown()))
    }

    /// Checks a tree, and notes the verdict. Errors: it could not be asked.
    fn check(&self, place: &mut Place, job: &Job) -> Result<Option<String>, String> {
        #[expect(clippy::disallowed_methods, reason = "what is measured is the host")]
        let start = Instant::now();
        let seen = self.ask(place, job).map_err(|e| format!("{}: {e}", place.dir().shown()))?;
        if let Some(image) = &job.image {
            std::fs::remove_file(image).map_err(|e| format!("{}: {e}", image.shown()))?;
        }
        self.answered(job.number, seen.clone(), start.elapsed());
        Ok(seen)
    }
}
