//! Hostile clients of a served drive: what they send is damaged, and they leave at any time.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::World;
use super::judge::{Case, Problem, check_end, wait};
use super::rng::{Rng, damage_text};

/// Clients of one server.
const CLIENTS: usize = 8;

fn connect(path: &Path) -> Option<UnixStream> {
    for _ in 0..200 {
        if let Ok(stream) = UnixStream::connect(path) {
            let limit = Some(Duration::from_millis(40));
            stream.set_read_timeout(limit).ok()?;
            stream.set_write_timeout(limit).ok()?;
            return Some(stream);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

/// Sends in pieces, reads a little, leaves.
fn talk(rng: &mut Rng, mut stream: UnixStream, bytes: &[u8]) {
    let mut answer = [0; 512];
    for part in bytes.chunks(1 + rng.below(200)) {
        // The server may close the connection.
        if stream.write_all(part).is_err() {
            return;
        }
        if rng.once_in(4) {
            let _ = stream.read(&mut answer);
        }
    }
    let _ = stream.read(&mut answer);
}

fn seed(world: &World, rng: &mut Rng, folder: &str) -> Result<Vec<u8>, String> {
    let folder = world.root.join("fuzz/seeds").join(folder);
    let io = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut files: Vec<_> = std::fs::read_dir(&folder).map_err(io)?.flatten().collect();
    files.sort_by_key(std::fs::DirEntry::file_name);
    if files.is_empty() {
        return Err(format!("{}: no seeds", folder.display()));
    }
    std::fs::read(rng.pick(&files).path()).map_err(io)
}

/// A server and its clients, one after the other.
pub fn run(world: &World, rng: &mut Rng) -> Result<Vec<Problem>, String> {
    let kind = *rng.pick(&["nbd", "vhost-user-blk"]);
    let words = ["serve", kind, "--device", "fixed", "--socket", "socket", "--control", "control"];
    let mut case = Case::reading(&words);
    case.outputs = vec!["saved"];
    let mut command = world.command(&case.arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let mut problems = Vec::new();
    let socket = world.file("socket");
    for n in 0..CLIENTS {
        if child.try_wait().map_err(|e| e.to_string())?.is_some() {
            let what = if n == 0 { "does not begin" } else { "a client ends it" };
            problems.push(case.problem(what, b""));
            break;
        }
        if rng.once_in(3) {
            let lines = seed(world, rng, "control")?;
            let lines = damage_text(rng, &lines);
            // The lines that end it come last.
            let lines = String::from_utf8_lossy(&lines).replace("quit", "status").into_bytes();
            connect(&world.file("control")).into_iter().for_each(|s| talk(rng, s, &lines));
            continue;
        }
        let Some(mut stream) = connect(&socket) else { continue };
        // The server may cut either off before its end.
        if kind == "vhost-user-blk" {
            let _ = super::vhost::talk(rng, &stream);
            continue;
        } else if rng.once_in(2) {
            let _ = super::nbd::talk(rng, &mut stream);
            continue;
        }
        // In front stands how the fuzz target cuts it.
        let bytes = seed(world, rng, "nbd")?;
        let bytes = damage_text(rng, bytes.get(1..).unwrap_or(&[]));
        talk(rng, stream, &bytes);
    }
    if let Some(mut stream) = connect(&world.file("control")) {
        // It answers, or has ended.
        let _ = stream.write_all(b"quit\n");
    }
    let number = child.id();
    std::thread::sleep(Duration::from_millis(200));
    super::signals::send("TERM", number);
    let ended = wait(child, super::judge::LIMIT)?;
    check_end(&case, &ended, &mut problems);
    world.requests.set(world.requests.get() + requests(&ended.said[0]));
    if ended.status.and_then(|s| s.code()).is_some_and(|code| code != 0) {
        problems.push(case.problem("a client changes how it ends", &ended.said[1]));
    }
    let saved = world.file("saved");
    let left = ["socket", "control"].map(|n| world.file(n)).into_iter().filter(|p| p.exists());
    for path in left {
        problems.push(case.problem(format!("leaves {}", path.display()), b""));
    }
    if saved.exists() && !saved.is_file() {
        problems.push(case.problem("saved something that is no file", b""));
    }
    Ok(problems)
}

/// Reads and writes that the drive was asked for, as the server tells when it ends.
fn requests(said: &[u8]) -> u64 {
    let said = String::from_utf8_lossy(said);
    let words: Vec<&str> = said.split_whitespace().collect();
    let of = |name: &str| {
        let counted = words.windows(2).filter(|pair| pair[1].trim_end_matches(',') == name);
        counted.filter_map(|pair| pair[0].parse::<u64>().ok()).sum::<u64>()
    };
    of("reads") + of("writes")
}
