//! Directories in which trees are checked, and the processes that check them.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command as Process, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::queue::Job;
use super::{Asking, Command, LOOK};
use crate::export::Tree;
use wp_machine::host::Group;

/// Of what a command prints, the part whose first line is told.
const SAID_BYTES: u64 = 64 << 10;

impl Command {
    /// Waits a moment for a run. Errors: it is to wait no more.
    fn pause(&self) -> io::Result<()> {
        if self.is_ended() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        std::thread::sleep(Duration::from_micros(200));
        Ok(())
    }

    /// What the command has against a tree. Errors: it could not be asked.
    pub(super) fn ask(&self, place: &mut Place, job: &Job) -> io::Result<Option<String>> {
        place.tree.lay(&job.layout).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => {
                let what = "something writes into the tree; what a check starts must end with it";
                io::Error::new(e.kind(), format!("{what}: {e}"))
            }
            _ => e,
        })?;
        let mut files = Vec::new();
        for (name, text) in job.told.files() {
            let path = place.dir.join(name);
            fs::write(&path, text)?;
            files.push((name, path));
        }
        let image = job.image.as_deref();
        match self.asking {
            Asking::Run => self.run(place, &files, image),
            Asking::Stays => self.ask_the_one_that_stays(place, &files[0].1, image),
        }
    }

    /// What the checker that stays up answers. Errors: it is no answer, or the checker has ended
    /// and a new one answers: its end says nothing about the tree.
    fn ask_the_one_that_stays(
        &self,
        place: &mut Place,
        told: &Path,
        image: Option<&Path>,
    ) -> io::Result<Option<String>> {
        let status = match self.ask_once(place, told, image)? {
            Answered::Verdict(seen) => return Ok(seen),
            Answered::Ended(status) => status,
        };
        match self.ask_once(place, told, image)? {
            Answered::Ended(status) => Ok(Some(format!("the checker ended: {status}"))),
            Answered::Verdict(_) => {
                let what = "the checker ended, and a new one answers for the same tree";
                Err(io::Error::other(format!("{what}: {status}")))
            }
        }
    }

    /// What a process that stays up answers, which is started if there is none. It stays if it can
    /// be asked again.
    fn ask_once(
        &self,
        place: &mut Place,
        told: &Path,
        image: Option<&Path>,
    ) -> io::Result<Answered> {
        let mut checker = match place.stays.take() {
            Some(checker) => checker,
            None => Checker::start(&self.line, &place.dir)?,
        };
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
                if self.is_ended() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                if start.elapsed() > self.timeout {
                    let late = format!("no answer in {} s", self.timeout.as_secs());
                    return Ok(Answered::Verdict(Some(late)));
                }
            },
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Answer::Ended,
            Err(e) => return Err(e),
        };
        match answer {
            Answer::Line(text) => {
                let seen = match text.strip_prefix("bad") {
                    _ if text == "ok" => None,
                    Some(why) => Some(why.trim().chars().take(200).collect()),
                    None => {
                        let what =
                            format!("the checker answered `{text}`, neither `ok` nor `bad REASON`");
                        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                    }
                };
                place.stays = Some(checker);
                Ok(Answered::Verdict(seen))
            }
            Answer::Ended => Ok(Answered::Ended(checker.group.end()?)),
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
pub(super) struct Place {
    dir: PathBuf,
    tree: Tree,
    stays: Option<Checker>,
}

impl Place {
    /// An empty one in a new directory. Errors: the host's.
    pub(super) fn new(dir: PathBuf) -> io::Result<Place> {
        let tree = Tree::new(dir.join("tree"))?;
        Ok(Place { dir, tree, stays: None })
    }

    /// Its directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
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

/// What came of one question to a check that stays up.
enum Answered {
    /// What is wrong with the tree, if anything is.
    Verdict(Option<String>),
    /// It has ended without an answer.
    Ended(ExitStatus),
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
