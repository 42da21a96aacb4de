//! Disks that are full: outputs onto a small tmpfs. Only root can mount one.

use std::path::Path;
use std::process::{Command, Stdio};

use super::World;
use super::judge::{Case, Problem, check_end, wait};
use super::rng::Rng;

/// Commands that write below `full`, and the files that they are to make.
const COMMANDS: [(&[&str], &[&str]); 7] = [
    (&["mkfs", "ext4", "full/image", "--size", "64M"], &["image"]),
    (&["recover", "image", "--to", "full/copy"], &["copy"]),
    (&["run", "--no-events", "--save-image", "full/image", "--out", "results"], &["image"]),
    (&["run", "--out", "full/results"], &["results"]),
    (&["replay", "log", "--out", "full/image", "--size", "16M"], &["image"]),
    (&["crash", "seq-1", "--count", "3", "--state-file", "full/campaign"], &["campaign"]),
    (&["crash", "show", "seq-1", "2", "--reproducer", "full/made"], &["made"]),
];

/// A tmpfs, until it is dropped.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(at: &'a Path, bytes: u64) -> Option<Small<'a>> {
        std::fs::create_dir_all(at).ok()?;
        let size = format!("size={bytes}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).stderr(Stdio::null());
        mount.status().is_ok_and(|s| s.success()).then_some(Small(at))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        // What is left is seen by who removes the folder.
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// Can a small tmpfs be mounted here?
pub fn is_possible(world: &World) -> bool {
    Small::mount(&world.file("full"), 65536).is_some()
}

/// A command whose output has no room, or just some.
pub fn run(world: &World, rng: &mut Rng) -> Result<Vec<Problem>, String> {
    let (words, outputs) = *rng.pick(&COMMANDS);
    let at = world.file("full");
    let sizes = [4096, 65536, 1 << 20, 8 << 20, 40 << 20, 100 << 20];
    let small = Small::mount(&at, *rng.pick(&sizes)).ok_or("no tmpfs can be mounted any more")?;
    if words.contains(&"image") {
        let base = rng.pick(&world.bases);
        base.write_to(&world.file("image"))?;
    }
    if words.contains(&"log") {
        let log = world.root.join("fuzz/seeds/log_writes/log-4096");
        std::fs::copy(&log, world.file("log")).map_err(|e| e.to_string())?;
    }
    let case = Case::reading(words);
    let mut command = world.command(&case.arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = wait(command.spawn().map_err(|e| e.to_string())?, super::judge::LIMIT)?;
    let mut problems = Vec::new();
    check_end(&case, &ended, &mut problems);
    let code = ended.status.and_then(|s| s.code());
    for name in outputs.iter().filter(|name| code == Some(0) && !at.join(name).exists()) {
        problems.push(case.problem(format!("says yes without its {name}"), &ended.said[1]));
    }
    let failed = !ended.status.is_some_and(|s| matches!(s.code(), Some(0 | 1)));
    for entry in std::fs::read_dir(&at).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_output = outputs.contains(&name.as_str());
        // Results and campaigns that are there so far may be gone on with.
        let may_stay = ["results", "campaign"].contains(&name.as_str());
        if !is_output || (failed && !may_stay) {
            problems.push(case.problem(format!("a full disk: leaves {name}"), &ended.said[1]));
        }
    }
    drop(small);
    Ok(problems)
}
