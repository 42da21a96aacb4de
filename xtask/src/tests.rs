//! `cargo xtask test`: all tests, as many programs of them at once as there are processors.
//!
//! cargo runs one program after the other, and many have one test that takes long and leaves the
//! other processors idle. What each has printed appears whole, when it has ended.
//!
//! Steps: build -> programs and the examples in comments, in order of how long each took last time
//! -> workers.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::Value;

use crate::repo;

/// The crate whose comments have examples; tidy refuses them in the others.
const WITH_EXAMPLES: &str = "wp-base";

/// What is run: a name, how, and how many seconds it took last time, if that is known.
struct Job {
    name: String,
    command: Command,
    seconds: Option<u64>,
}

/// How one ended.
struct Done {
    name: String,
    output: String,
    passed: bool,
    seconds: u64,
    /// What it and all that it started worked, in seconds.
    cpu: f64,
}

/// Builds and runs all; `selection` goes to cargo (`--lib --bins`, `-p CRATE`, `--locked`).
///
/// Errors: what does not build or cannot be started.
pub fn run(selection: &[&str]) -> Result<bool, String> {
    let root = repo::root()?;
    let record = repo::target(&root).join("test-seconds.json");
    let before: BTreeMap<String, u64> = std::fs::read(&record)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let mut jobs = programs(&root, selection, &before)?;
    // A selection of kinds of targets leaves out the examples in comments.
    let parts = ["--lib", "--bins", "--test", "--tests", "-p", "--package"];
    if !selection.iter().any(|s| parts.contains(s)) {
        let mut command = cargo();
        command.args(["test", "--doc", "--no-fail-fast", "--package", WITH_EXAMPLES]);
        command.args(selection.iter().filter(|s| **s == "--locked"));
        let name = "Doc-tests".to_owned();
        let seconds = before.get(&name).copied();
        jobs.push(Job { name, command, seconds });
    }
    // What takes long begins first, and so does what nobody has timed.
    jobs.sort_by_key(|j| std::cmp::Reverse(j.seconds.unwrap_or(u64::MAX)));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let total = jobs.len();
    let mut times = before;
    let mut failed = Vec::new();
    let queue = Mutex::new(jobs.into_iter());
    let (tell, told): (Sender<Done>, Receiver<Done>) = channel();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let (queue, tell) = (&queue, tell.clone());
            scope.spawn(move || {
                loop {
                    let next = queue.lock().ok().and_then(|mut q| q.next());
                    let Some(job) = next else { break };
                    if tell.send(one(job)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(tell);
        for (n, done) in told.iter().enumerate() {
            let Done { name, seconds, cpu, .. } = &done;
            println!("     Running {name} ({} of {total}, {seconds} s, CPU {cpu:.1} s)", n + 1);
            print!("{}", done.output);
            if !done.passed {
                failed.push(done.name.clone());
            }
            times.insert(done.name, done.seconds);
        }
    });
    let text = serde_json::to_string_pretty(&times).map_err(|e| e.to_string())?;
    std::fs::write(&record, text).map_err(|e| format!("{}: {e}", record.display()))?;
    for name in &failed {
        println!("failed: {name}");
    }
    Ok(failed.is_empty())
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// All crates, unless some were named.
fn scope(selection: &[&str]) -> &'static [&'static str] {
    let named = selection.iter().any(|s| matches!(*s, "-p" | "--package"));
    if named { &[] } else { &["--workspace"] }
}

/// Builds the programs, and says how each is run: in its crate's folder, as cargo does.
fn programs(
    root: &Path,
    selection: &[&str],
    before: &BTreeMap<String, u64>,
) -> Result<Vec<Job>, String> {
    let built = cargo()
        .args(["test", "--no-run", "--message-format=json-render-diagnostics"])
        .args(scope(selection))
        .args(selection)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if !built.status.success() {
        return Err("the tests do not build".to_owned());
    }
    let mut jobs = Vec::new();
    for line in String::from_utf8_lossy(&built.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let is_test = message["profile"]["test"].as_bool() == Some(true);
        let (Some(program), Some(manifest)) =
            (message["executable"].as_str(), message["manifest_path"].as_str())
        else {
            continue;
        };
        let Some(folder) = Path::new(manifest).parent().filter(|_| is_test) else { continue };
        let short = folder.strip_prefix(root).unwrap_or(folder);
        let source = message["target"]["src_path"].as_str().map_or(Path::new(""), Path::new);
        let source = source.strip_prefix(folder).unwrap_or(source);
        let name = short.join(source).display().to_string();
        let mut command = Command::new(program);
        command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
        let seconds = before.get(&name).copied();
        jobs.push(Job { name, command, seconds });
    }
    if jobs.is_empty() { Err("there are no tests".to_owned()) } else { Ok(jobs) }
}

/// Runs one to its end.
#[expect(clippy::disallowed_methods, reason = "which test takes how long is no result of a run")]
fn one(mut job: Job) -> Done {
    let start = std::time::Instant::now();
    let ended = to_its_end(&mut job.command);
    let seconds = start.elapsed().as_secs();
    let (output, passed, cpu) = match ended {
        Ok((o, cpu)) => {
            let text = [&o.stdout[..], &o.stderr[..]].map(String::from_utf8_lossy).concat();
            (text, o.status.success(), cpu)
        }
        Err(e) => (format!("{e}\n"), false, 0.0),
    };
    Done { name: job.name, output, passed, seconds, cpu }
}

/// What it printed, and how many seconds processors worked for it and for all that it waited for.
fn to_its_end(command: &mut Command) -> std::io::Result<(Output, f64)> {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (out, err) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        scope.spawn(|| err.map(|mut pipe| pipe.read_to_end(&mut stderr)));
        out.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut stdout))
    })?;
    // Ended, but waited for by nobody: /proc still has its times, in hundredths of a second.
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    }
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u32 = fields.skip(11).take(4).filter_map(|f| f.parse::<u32>().ok()).sum();
    Ok((Output { status: child.wait()?, stdout, stderr }, f64::from(ticks) / 100.0))
}
