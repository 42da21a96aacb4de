//! A program of calls, from a file: one that was recorded, or written by hand.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use wp_base::{FsError, FsResult, Span};
use wp_cache::Fut;
use wp_vfs::{OptionError, OptionSpec, Options, Vfs, When};
use wp_workload::fio::Stat;
use wp_workload::program::{By, Call, NO_THREADS, Player, Program, Step};

use super::{WorkloadEntry, WorkloadReport};
use crate::host::text;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        key: "file",
        when: When::Always,
        default: "",
        help: "the program: its calls (`list calls`), as `crash --record` and `run --record` write them",
    },
    OptionSpec {
        key: "think",
        when: When::Always,
        default: "0",
        help: "1: pauses between the recorded calls (steps `think`) take their time",
    },
];

/// The workload.
pub static ENTRY: WorkloadEntry = WorkloadEntry {
    name: "program",
    about: "a program of calls, such as a recorded one (`run --record`)",
    options: OPTIONS,
    check: |o| read(o).map(drop),
    inputs: |o| read(o).map(|(path, text, _)| vec![(path, text.into_bytes())]),
    room: |_, _| Vec::new(),
    run: |vfs, o| Box::pin(run(vfs, o)) as Fut<'_, WorkloadReport>,
};

/// The file that the options name: its path, its text and the program. Errors: what is wrong there.
fn read(o: &Options) -> Result<(String, String, Program), OptionError> {
    let path = o.get("file", OPTIONS).unwrap_or_default().to_owned();
    let wrong = |why: String| OptionError { key: "file".to_owned(), value: path.clone(), why };
    if path.is_empty() {
        return Err(wrong("a file with a program: program,file=run.txt".to_owned()));
    }
    let text = text::read(Path::new(&path)).map_err(|e| wrong(e.to_string()))?;
    let program = Program::parse(&text).map_err(wrong)?;
    if program.calls().next().is_none() {
        return Err(wrong("a program without calls".to_owned()));
    }
    let program = match o.get("think", OPTIONS).unwrap_or_default() {
        "0" => program,
        "1" => program.with_think_times(),
        other => {
            let (key, value) = ("think".to_owned(), other.to_owned());
            return Err(OptionError { key, value, why: "0 or 1".to_owned() });
        }
    };
    Ok((path, text, program))
}

async fn run(vfs: &Vfs, o: &Options) -> FsResult<WorkloadReport> {
    let (_, _, program) = read(o).map_err(|_| FsError::Invalid("the program's file"))?;
    Ok(play(vfs, &program).await?.report())
}

/// What a program's calls came to.
#[derive(Default)]
pub struct Played {
    /// Calls, and those that did not answer as expected.
    pub calls: u64,
    /// See `calls`.
    pub failed: u64,
    /// Virtual time from the first step to the last, nanoseconds.
    pub elapsed_ns: u64,
    /// Times of calls of one kind, or of stretches of one name, nanoseconds.
    pub took: BTreeMap<String, Stat>,
    /// Times of the calls that make something durable ([`Call::is_sync`]), nanoseconds.
    pub syncs: Stat,
    /// The first calls that failed.
    notes: Vec<String>,
}

impl Played {
    /// Tells of the first calls that failed.
    fn note(&mut self, call: &Call, told: &str) {
        const TOLD: u64 = 5;
        if self.failed <= TOLD {
            self.notes.push(format!("`{call:#}` returned {told}"));
        }
    }

    /// For people, and for programs.
    pub fn report(self) -> WorkloadReport {
        let mut report = WorkloadReport { notes: self.notes, ..WorkloadReport::default() };
        let mut add = |key: &str, n: u64| report.numbers.push((key.to_owned(), n));
        add("calls", self.calls);
        add("failed_calls", self.failed);
        add("elapsed_ns", self.elapsed_ns);
        for (name, t) in self.took {
            add(&format!("{name}.count"), t.count);
            add(&format!("{name}.sum_ns"), t.sum());
            add(&format!("{name}.mean_ns"), t.mean() as u64);
            add(&format!("{name}.p50_ns"), t.percentile(50_000_000));
            add(&format!("{name}.p99_ns"), t.percentile(99_000_000));
            add(&format!("{name}.max_ns"), t.max);
        }
        report
    }
}

/// Plays a program. What calls answer is counted, and told; damage ends it.
pub async fn play(vfs: &Vfs, program: &Program) -> FsResult<Played> {
    let rt = vfs.rt().clone();
    let player = Rc::new(Player::new(vfs.clone()));
    let mut task: Option<Rc<str>> = None;
    let mut done = Played::default();
    let mut open: Vec<(String, wp_base::Time)> = Vec::new();
    let begun = rt.now();
    let mut expected = None;
    for step in &program.0 {
        match step {
            Step::Case(_) => {}
            Step::Task(name) => task = Some(name.as_str().into()),
            Step::Align => {
                const TICK_NS: u64 = 10_000_000;
                let next = rt.now().0.next_multiple_of(TICK_NS) + TICK_NS / 10;
                rt.sleep_until(wp_base::Time(next)).await;
            }
            Step::Nap(us) => rt.sleep(Span::micros(*us)).await,
            Step::Think(_) => {}
            Step::Exit => player.exit().await?,
            Step::Begin(label) => open.push((label.op.clone(), rt.now())),
            Step::End => {
                if let Some((name, from)) = open.pop() {
                    done.took.entry(name).or_default().add(rt.now().since(from).0);
                }
            }
            Step::Fail(_) | Step::Slow(_) | Step::Tear(_) | Step::Heal => {
                return Err(FsError::Invalid("steps that make the device fail are for [crash]"));
            }
            Step::PowerFailure => {
                return Err(FsError::Invalid("power_failure is a step of `writepath crash`"));
            }
            Step::Join | Step::InOrder => return Err(FsError::Invalid(NO_THREADS)),
            Step::Call(by, _) if by.thread > 0 => return Err(FsError::Invalid(NO_THREADS)),
            Step::Expect(errno) => expected = Some(*errno),
            Step::Call(By { label, .. }, call) => {
                let from = rt.now();
                let answer = match &task {
                    None => answer(&player, call).await,
                    Some(name) => {
                        let (player, call) = (player.clone(), call.clone());
                        let work = async move { answer(&player, &call).await };
                        rt.spawn(name.clone(), work).await
                    }
                };
                let ns = rt.now().since(from).0;
                done.calls += 1;
                let name = label.as_ref().map_or(call.name(), |l| &l.op);
                done.took.entry(name.to_owned()).or_default().add(ns);
                if call.is_sync() {
                    done.syncs.add(ns);
                }
                let told = match (answer, expected.take()) {
                    (Err(e @ (FsError::Unsupported(_) | FsError::Corrupt(_))), _) => return Err(e),
                    (Err(e), Some(errno)) if e.errno() == errno => None,
                    (Err(e), _) => Some(e.to_string()),
                    (Ok(_), Some(errno)) => Some(format!("success, expected {errno}")),
                    (Ok(short), None) => short,
                };
                if let Some(told) = told {
                    done.failed += 1;
                    done.note(call, &told);
                }
            }
        }
    }
    done.elapsed_ns = rt.now().since(begun).0;
    Ok(done)
}

/// Does a call. Answers what it did if it wrote only a part. Errors: what the call answers.
async fn answer(player: &Player, call: &Call) -> FsResult<Option<String>> {
    let Call::Pwrite { fd, len, at, data, atomic } = call else {
        return player.call(call).await.map(|()| None);
    };
    let wrote = player.write(*fd, *at, &data.slices(*at, *len), *atomic).await?;
    Ok((wrote < u64::from(*len)).then(|| format!("{wrote} of {len} bytes written")))
}
