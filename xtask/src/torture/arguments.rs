//! Failing invocations: every verb with values at which programs go wrong, files that are none,
//! outputs that cannot be written.

use super::World;
use super::judge::{Case, Problem, run as judge};
use super::rng::{NUMBERS, Rng, WORDS, damage_text};

/// Commands; `{}` is replaced by something hostile, `FILE` by a file of a hostile sort.
const COMMANDS: [&[&str]; 30] = [
    &["run", "--fs", "ext4,era={}", "--no-events", "--out", "results"],
    &["run", "--device", "fixed,{}={}", "--no-events", "--out", "results"],
    &["run", "--device", "{}", "--no-events", "--out", "results"],
    &["run", "--workload", "fsync-last,n={}", "--no-events", "--out", "results"],
    &["run", "--seed", "{}", "--no-events", "--out", "results"],
    &["run", "--partition-size", "{}", "--no-events", "--out", "results"],
    &["run", "--partition-start", "{}", "--no-events", "--out", "results"],
    &["run", "--elevator", "{}", "--no-events", "--out", "results"],
    &["run", "--cpu", "{}", "--no-events", "--out", "results"],
    &["run", "--shard", "{}/{}", "FILE", "--out", "results"],
    &["run", "FILE", "--out", "results"],
    &["crash", "seq-1", "--count", "{}", "--budget", "1s"],
    &["crash", "seq-1", "--count", "1", "--budget", "{}s"],
    &["crash", "wild", "--count", "1", "--seed", "{}", "--budget", "1s"],
    &["crash", "seq-1", "--count", "1", "--samples", "{}", "--budget", "1s"],
    &["crash", "seq-1", "--count", "1", "--size", "{}", "--budget", "1s"],
    &["crash", "show", "seq-1", "{}"],
    &["crash", "FILE", "--budget", "1s"],
    &["mkfs", "{}", "image", "--size", "64M"],
    &["mkfs", "ext4", "image", "--size", "{}"],
    &["mkfs", "ext4", "FILE", "--size", "64M"],
    &["inspect", "FILE"],
    &["fsck", "FILE", "--json"],
    &["recover", "FILE", "--to", "image"],
    &["replay", "FILE", "--out", "image", "--size", "{}"],
    &["replay", "FILE", "--on", "fixed", "--depth", "{}"],
    &["trace", "FILE", "--json"],
    &["explain", "FILE", "--op", "{}"],
    &["diff", "FILE", "FILE"],
    &["list", "{}"],
];

/// A file that is none, or none of what is looked for.
fn file(world: &World, rng: &mut Rng) -> Result<&'static str, String> {
    let io = |e: std::io::Error| e.to_string();
    Ok(match rng.below(8) {
        0 => "missing",
        1 => "/dev/null",
        2 => {
            std::fs::create_dir_all(world.file("folder")).map_err(io)?;
            "folder"
        }
        3 => {
            std::fs::write(world.file("empty"), b"").map_err(io)?;
            "empty"
        }
        4 => {
            let bytes: Vec<u8> = (0..4096).map(|_| rng.next() as u8).collect();
            std::fs::write(world.file("noise"), bytes).map_err(io)?;
            "noise"
        }
        5 => {
            let file = std::fs::File::create(world.file("zeroes")).map_err(io)?;
            file.set_len(1 << 40).map_err(io)?;
            "zeroes"
        }
        6 => {
            let _ = std::os::unix::fs::symlink("loop", world.file("loop"));
            "loop"
        }
        _ => "missing/below",
    })
}

/// A failing invocation, as text or as JSON.
pub fn run(world: &World, rng: &mut Rng) -> Result<Vec<Problem>, String> {
    let mut words = Vec::new();
    let mut outputs = vec!["results", "image"];
    for word in *rng.pick(&COMMANDS) {
        let mut text = match *word {
            "FILE" => {
                let name = file(world, rng)?;
                // mkfs may well make what is not there.
                if name == "missing" && words.first().is_some_and(|verb| verb == "mkfs") {
                    outputs.push(name);
                }
                name.to_owned()
            }
            word => word.to_owned(),
        };
        while text.contains("{}") {
            let value = match rng.below(3) {
                0 => (*rng.pick(&NUMBERS)).to_owned(),
                1 => (*rng.pick(&WORDS)).to_owned(),
                _ => String::from_utf8_lossy(&damage_text(rng, b"ssd-128,queue_depth=1"))
                    .chars()
                    .take(200)
                    .collect(),
            };
            text = text.replacen("{}", &value.replace("{}", ""), 1);
        }
        // An argument ends at its first NUL.
        words.push(text.replace('\0', ""));
    }
    if rng.once_in(3) && !words.iter().any(|w| w == "--json") {
        words.push("--json".to_owned());
    }
    let mut case = Case::reading(&[]);
    case.twice = rng.once_in(4) && words[0] != "crash";
    case.arguments = words;
    case.outputs = outputs;
    judge(world, &case)
}
