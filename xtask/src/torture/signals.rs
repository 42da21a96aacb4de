//! Signals at random instants to commands that take long, and what is left of them.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::World;
use super::judge::{Case, Ended, Problem, check_end, wait};
use super::rng::Rng;

/// Time that a command has to end after a signal: 2 s on an idle machine.
const END: Duration = Duration::from_secs(15);

/// Commands that take long, and what each may leave when it was interrupted.
const COMMANDS: [(&[&str], &[&str]); 7] = [
    (&["crash", "wild", "--count", "500"], &[]),
    (&["crash", "wild", "--count", "500", "--state-file", "campaign"], &["campaign"]),
    (&["crash", "seq-1", "--check", "sleep 3", "--count", "20"], &[]),
    (&["run", "experiment", "--out", "results"], &["results"]),
    (&["recover", "image", "--to", "copy"], &[]),
    (&["mkfs", "ext4", "made", "--size", "8G"], &[]),
    (&["serve", "nbd", "--device", "fixed", "--socket", "socket", "--save", "saved"], &["saved"]),
];

/// Processes of this case that are still there: they have its folder for temporary files.
pub fn left(world: &World) -> Vec<String> {
    let mark = format!("TMPDIR={}", world.scratch.join("tmp").display());
    let mut out = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let is_ours = environment.split(|b| *b == 0).any(|v| v == mark.as_bytes());
        if is_ours {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let number = entry.file_name().to_string_lossy().into_owned();
            out.push(format!("{number} {}", String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    out
}

/// Waits until a process has said what a signal is to do; no if it does not.
fn is_ready(process: u32, signal: &str) -> bool {
    let bit = match signal {
        "HUP" => 1,
        "INT" => 1 << 1,
        _ => 1u64 << 14,
    };
    (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask & bit != 0)
    })
}

/// Sends a signal to a process that the case began, by its number.
pub fn send(signal: &str, number: u32) {
    // It may have ended by itself.
    let _ = Command::new("kill")
        .args([&format!("-{signal}"), &number.to_string()])
        .stderr(Stdio::null())
        .status();
}

/// A command, a signal after a while, perhaps another.
pub fn run(world: &World, rng: &mut Rng) -> Result<Vec<Problem>, String> {
    let (words, outputs) = *rng.pick(&COMMANDS);
    let signal = *rng.pick(&["INT", "TERM", "HUP"]);
    let io = |e: std::io::Error| e.to_string();
    if words.contains(&"image") {
        std::fs::File::create(world.file("image")).and_then(|f| f.set_len(1 << 30)).map_err(io)?;
        let size = ["mkfs", "ext4", "image", "--size", "1G", "--force"].map(str::to_owned);
        let made = world.command(&size).stdout(Stdio::null()).stderr(Stdio::null()).status();
        made.map_err(io)?;
    }
    if words.contains(&"experiment") {
        let text = world.root.join("examples/fsync-eras.toml");
        std::fs::copy(&text, world.file("experiment")).map_err(io)?;
    }
    let before: Vec<_> = names(world);
    let mut case = Case::reading(words);
    case.outputs = outputs.to_vec();
    let mut command = world.command(&case.arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(io)?;
    let number = child.id();
    // Before it has begun a signal ends it, and nothing is left.
    is_ready(number, signal);
    std::thread::sleep(Duration::from_millis(rng.next() % 800));
    send(signal, number);
    let twice = rng.once_in(4);
    if twice {
        std::thread::sleep(Duration::from_millis(rng.next() % 50));
        send(signal, number);
    }
    let ended = wait(child, END)?;
    let mut problems = Vec::new();
    judge(&case, signal, &ended, &mut problems);
    let more: Vec<String> = names(world).into_iter().filter(|n| !before.contains(n)).collect();
    let finished = ended.status.is_some_and(|s| s.success());
    let may_stay = |n: &String| outputs.contains(&n.as_str()) || finished;
    if let Some(name) = more.iter().find(|n| !may_stay(n)) {
        problems.push(case.problem(format!("SIG{signal} leaves {name}"), b""));
    }
    // It says on stderr when it has got as far as its socket. A second signal ends it at once.
    let is_serving =
        String::from_utf8_lossy(&ended.said[1]).lines().any(|l| l.starts_with("NBD: "));
    if words[0] == "serve" && is_serving && !twice && !(finished && world.file("saved").exists()) {
        problems.push(case.problem(format!("SIG{signal}: nothing is saved"), &ended.said[1]));
    }
    let temporary = std::fs::read_dir(world.scratch.join("tmp")).map_err(io)?.count();
    if temporary > 0 {
        problems.push(case.problem(format!("SIG{signal} leaves temporary files"), b""));
    }
    // Children need a moment to notice.
    std::thread::sleep(Duration::from_millis(50));
    for process in left(world) {
        problems.push(case.problem(format!("SIG{signal} leaves a process"), process.as_bytes()));
        let number = process.split(' ').next().and_then(|n| n.parse().ok());
        number.into_iter().for_each(|n| send("KILL", n));
    }
    Ok(problems)
}

fn names(world: &World) -> Vec<String> {
    let entries = std::fs::read_dir(world.scratch.join("work")).into_iter().flatten().flatten();
    entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}

fn judge(case: &Case, signal: &str, ended: &Ended, problems: &mut Vec<Problem>) {
    match ended.status {
        None => problems.push(case.problem(format!("SIG{signal} does not end it"), b"")),
        Some(status) if status.signal().is_some() => {
            problems.push(case.problem(format!("dies of SIG{signal}"), &ended.said[1]));
        }
        Some(_) => check_end(case, ended, problems),
    }
}
