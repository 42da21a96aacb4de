//! Several papers: each in a process of its own, some beside each other, those that are kept not
//! at all; then one table of all claims.
//!
//! Invariant: what is printed to stdout is in the order of the list, whatever ran first; the
//!            papers' tables are in files.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::json;
use wp_base::plain::Shown as _;
use wp_base::table::Layout;
use wp_machine::host::{Group, program};
use wp_report::page::Reproduced as _;

use super::kept::{self, Kept};
use super::{Args, Beside, Paper, counts, page, progress};
use crate::output::{Exit, Out, stderr};
use crate::progress::{EVERY, Table, now, time};

/// How long to wait for a process that was interrupted to write what it has.
const PATIENCE: Duration = Duration::from_millis(1500);

/// A paper of this run.
struct Work {
    paper: &'static Paper,
    /// Seconds of the whole, as far as known.
    seconds: f64,
    /// The share that is done.
    share: f64,
    /// What it does now.
    step: String,
    /// What it said that is no progress.
    last: String,
    state: State,
}

enum State {
    Waiting,
    Running(Group, Instant),
    Done(Box<Kept>),
    /// It ended without an answer, with these lines.
    Failed(u8, Vec<String>),
}

/// What a process says: which, and a line; `None`: it says nothing any more.
type Said = (usize, Option<String>);

/// Runs papers, and prints what each found.
pub fn run(a: &Args, out: &Out, papers: &[&'static Paper], stop: &AtomicBool) -> ExitCode {
    let program = match kept::program() {
        Ok(program) => program,
        Err(e) => return out.host_error(std::path::Path::new("this program"), &e),
    };
    let find = |p: &Paper| kept::find(&a.out, p.slug, &p.resolved(a), &program);
    let mut works: Vec<Work> = papers
        .iter()
        .map(|paper| {
            let (quick, whole) = paper.seconds;
            let known = if a.again { None } else { find(paper) };
            let state = known.map_or(State::Waiting, |kept| State::Done(Box::new(kept)));
            let seconds = if a.quick { quick } else { whole };
            Work { paper, seconds, share: 0.0, step: String::new(), last: String::new(), state }
        })
        .collect();
    let jobs = a.jobs.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        std::num::NonZeroUsize::get,
    );
    let (say, hear) = channel();
    let mut screen = Screen::new(&works);
    while !works.iter().all(|w| matches!(w.state, State::Done(_) | State::Failed(..))) {
        if stop.load(Ordering::SeqCst) {
            drop(screen);
            return interrupted(out, &mut works, &hear);
        }
        start(a, &mut works, jobs, &say);
        match hear.recv_timeout(Duration::from_millis(200)) {
            Ok((which, Some(line))) => note(&mut works[which], &line, &screen),
            Ok((which, None)) => ended(&mut works[which], &find, &screen),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        screen.show(&works, jobs);
    }
    drop(screen);
    match page::write(a) {
        Ok(report) => answer(a, out, &works, &report),
        Err(refusal) => refusal.tell(out),
    }
}

/// Starts what there is room for, the longest first.
fn start(a: &Args, works: &mut [Work], jobs: usize, say: &Sender<Said>) {
    loop {
        let running = works.iter().filter(|w| matches!(w.state, State::Running(..))).count();
        let waiting = works.iter().enumerate().filter(|(_, w)| matches!(w.state, State::Waiting));
        let next = waiting.max_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds)).map(|(n, _)| n);
        let Some(next) = next.filter(|_| running < jobs) else { return };
        works[next].state = match spawn(a, works[next].paper, next, say) {
            Ok(child) => State::Running(child, now()),
            Err(e) => State::Failed(Exit::HostIo as u8, vec![format!("error: {e}")]),
        };
    }
}

/// This program, for one paper; a thread passes on what it says.
fn spawn(a: &Args, paper: &Paper, which: usize, say: &Sender<Said>) -> std::io::Result<Group> {
    let mut command = program::command();
    command.args(["reproduce", paper.slug, "--seed", &a.seed.to_string(), "--again", "--out"]);
    command.arg(&a.out).env(progress::LINES, std::process::id().to_string());
    if a.quick {
        command.arg("--quick");
    }
    if let Some(cuts) = a.crash {
        command.arg("--crash").args(cuts.map(|n| n.to_string()));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = Group::spawn(&mut command)?;
    if let Some(stderr) = child.stderr() {
        let say = say.clone();
        let read = move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // Who listened has ended.
                drop(say.send((which, Some(line))));
            }
            drop(say.send((which, None)));
        };
        #[expect(clippy::disallowed_methods, reason = "it reads what another process says")]
        std::thread::spawn(read);
    }
    Ok(child)
}

fn note(work: &mut Work, line: &str, screen: &Screen) {
    match progress::parse(line) {
        Some((done, all, step)) => {
            step.clone_into(&mut work.step);
            // Of parts that each count from nothing the share never goes back.
            let share = done as f64 / all.max(1) as f64;
            work.share = work.share.max(share.min(0.99));
        }
        None => {
            if !line.starts_with("results: ") {
                screen.line(&format!("{}: {line}", work.paper.slug));
            }
            work.last.push_str(line);
            work.last.push('\n');
        }
    }
}

/// Its process has said all.
fn ended(work: &mut Work, find: &dyn Fn(&Paper) -> Option<Kept>, screen: &Screen) {
    let State::Running(child, began) = &mut work.state else { return };
    let code = child.wait().ok().and_then(|s| s.code());
    let seconds = began.elapsed().as_secs_f64();
    let found = find(work.paper).filter(|_| matches!(code, Some(0 | 1)));
    screen.line(&format!("{}: {seconds:.0} s", work.paper.slug));
    work.state = match found {
        Some(kept) => State::Done(Box::new(kept)),
        None => {
            let said = work.last.lines().map(str::to_owned).collect();
            let code = code.and_then(|c| u8::try_from(c).ok()).unwrap_or(Exit::Bug as u8);
            State::Failed(code, said)
        }
    };
}

/// A table of papers on a terminal; elsewhere a line every ten seconds, and one for each paper that
/// is done.
struct Screen {
    table: Option<Table>,
    began: Instant,
    shown: Instant,
}

impl Screen {
    fn new(works: &[Work]) -> Screen {
        let names: Vec<&str> = works.iter().map(|w| w.paper.slug).chain(["all"]).collect();
        let began = now();
        Screen { table: Table::new(&names), began, shown: began }
    }

    /// A line that stays.
    fn line(&self, text: &str) {
        match &self.table {
            Some(table) => table.line(text),
            None => stderr(format_args!("{text}\n")),
        }
    }

    fn show(&mut self, works: &[Work], jobs: usize) {
        let every = if self.table.is_some() { Duration::from_millis(150) } else { EVERY };
        if self.shown.elapsed() < every {
            return;
        }
        self.shown = now();
        let elapsed = self.began.elapsed().as_secs_f64();
        let left = time(left(works, jobs, elapsed));
        let claims = sums(works);
        let all = format!("{} so far, about {left} left; {}", time(elapsed), claims_text(claims));
        let Some(table) = &self.table else {
            let running = works.iter().filter(|w| matches!(w.state, State::Running(..)));
            let running = running.map(|w| format!("{} {:.0} %", w.paper.slug, 100.0 * w.share));
            let running: Vec<String> = running.collect();
            return stderr(format_args!("reproduce: {all}; {}\n", running.join(", ")));
        };
        let weight: f64 = works.iter().map(|w| w.seconds).sum();
        let mut done = 0.0;
        for (n, w) in works.iter().enumerate() {
            let (share, text) = match &w.state {
                State::Waiting => (0.0, "waiting".to_owned()),
                State::Running(_, began) => {
                    let seconds = time(began.elapsed().as_secs_f64());
                    (w.share, format!("{:>3.0} %  {seconds}  {}", 100.0 * w.share, w.step))
                }
                State::Done(kept) => {
                    (1.0, format!("done   {}", claims_text(counts(kept.results.claims()))))
                }
                State::Failed(code, _) => (1.0, format!("failed with exit code {code}")),
            };
            done += share * w.seconds;
            table.set(n, (100.0 * share) as u64, &text);
        }
        table.set(works.len(), (100.0 * done / weight.max(1.0)) as u64, &all);
    }
}

/// Verdicts so far, of all papers that are done.
fn sums(works: &[Work]) -> [usize; 5] {
    let mut sum = [0; 5];
    for w in works {
        if let State::Done(kept) = &w.state {
            let n = counts(kept.results.claims());
            sum = std::array::from_fn(|i| sum[i] + n[i]);
        }
    }
    sum
}

fn claims_text([matches, differ, follow, inconsistent, not_modelled]: [usize; 5]) -> String {
    let all = matches + differ + follow + inconsistent + not_modelled;
    format!("{all} claims: {matches} match, {differ} differ")
}

/// Estimated seconds that are left: the remaining work at the pace so far on `jobs` cores, and at
/// least the remaining time of the longest work.
fn left(works: &[Work], jobs: usize, elapsed: f64) -> f64 {
    let share = |w: &Work| match &w.state {
        State::Done(_) | State::Failed(..) => 1.0,
        State::Waiting => 0.0,
        // A part that takes long says nothing meanwhile.
        State::Running(_, began) => {
            w.share.max((began.elapsed().as_secs_f64() / w.seconds).min(0.9))
        }
    };
    let ran = |w: &&Work| matches!(&w.state, State::Running(..));
    let done: f64 = works.iter().filter(ran).map(|w| w.seconds * share(w)).sum();
    let cores = jobs.min(works.iter().filter(ran).count()).max(1) as f64;
    // A machine that is seen to be slower than the one of the table.
    let pace = if done > 1.0 { (elapsed * cores / done).clamp(0.2, 20.0) } else { 1.0 };
    let rest = works.iter().map(|w| w.seconds * (1.0 - share(w)));
    let longest = rest.clone().fold(0.0, f64::max);
    pace.max(0.5) * (rest.sum::<f64>() / jobs.max(1) as f64).max(longest)
}

/// The processes are told: no signal of a terminal reaches them; what is done stays.
fn interrupted(out: &Out, works: &mut [Work], hear: &Receiver<Said>) -> ExitCode {
    for w in works.iter() {
        if let State::Running(child, _) = &w.state {
            child.interrupt();
        }
    }
    let began = now();
    let is_running = |w: &mut Work| match &mut w.state {
        State::Running(child, _) => matches!(child.try_wait(), Ok(None)),
        _ => false,
    };
    while works.iter_mut().any(is_running) && began.elapsed() < PATIENCE {
        // What they say is nothing that anybody waits for.
        drop(hear.recv_timeout(Duration::from_millis(100)));
    }
    for w in works.iter_mut() {
        if let State::Running(child, _) = &mut w.state {
            drop(child.end());
        }
    }
    let done: Vec<&str> =
        works.iter().filter(|w| matches!(w.state, State::Done(_))).map(|w| w.paper.slug).collect();
    let kept = if done.is_empty() { "none yet".to_owned() } else { done.join(", ") };
    out.fail(
        Exit::Interrupted,
        "interrupted",
        &format!("interrupted; finished and kept: {kept}"),
        "run the same command to continue",
    )
}

/// A row a paper: its claims, and how many have each verdict.
const LAYOUT: Layout = Layout("<18 >7 >7 >7 >8 >13 >13 >8");

/// The summary: a row a paper, verdicts beside the pinned ones, and where everything else is.
fn answer(a: &Args, out: &Out, works: &[Work], report: &str) -> ExitCode {
    const LINE: &str = "a string takes it";
    let mut table = String::new();
    let mut files = String::new();
    let mut beside = Beside::default();
    table += &LAYOUT.line(&[
        &"paper",
        &"claims",
        &"match",
        &"differ",
        &"follow",
        &"inconsistent",
        &"not modelled",
        &"seconds",
    ]);
    let mut documents = Vec::new();
    let mut exit = Exit::Ok;
    let sum = sums(works);
    for w in works {
        match &w.state {
            State::Done(kept) => {
                let n = counts(kept.results.claims());
                row(&mut table, w.paper.slug, n, &format!("{:.0}", kept.seconds));
                writeln!(files, "tables: {}", kept.folder.join("tables.txt").shown()).expect(LINE);
                documents.push(json!(kept.results));
                let (of_paper, code) =
                    a.beside(w.paper.slug, kept.results.claims(), kept.is_unlisted);
                beside.add(of_paper);
                if exit == Exit::Ok {
                    exit = code;
                }
            }
            State::Failed(code, said) => {
                writeln!(table, "{:<18} failed with exit code {code}", w.paper.slug).expect(LINE);
                documents.push(json!({ "papers": [w.paper.slug], "failed": code, "said": said }));
                exit = Exit::of(*code);
            }
            State::Waiting | State::Running(..) => {}
        }
    }
    row(&mut table, "all", sum, "");
    let text = format!("{table}\n{}{files}{report}\n", beside.text());
    let summary = json!({
        "match": sum[0], "differs": sum[1], "follows-from-inputs": sum[2],
        "paper-inconsistent": sum[3], "not-modelled": sum[4],
    });
    let document = json!({
        "schema": "writepath.reproduce-all/1", "seed": a.seed, "quick": a.quick,
        "papers": documents, "claims": summary, "changed": beside.changed,
    });
    out.answer(exit, &document, &text)
}

fn row(table: &mut String, name: &str, n: [usize; 5], seconds: &str) {
    let all: usize = n.iter().sum();
    let [m, d, f, i, x] = n;
    *table += &LAYOUT.line(&[&name, &all, &m, &d, &f, &i, &x, &seconds]);
}
