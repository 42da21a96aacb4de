//! A campaign as the command line that makes it again.

use std::fmt::Write;

use wp_crash::{Profile, Telling};
use wp_workload::program::Program;

use super::campaign::Campaign;
use super::play::Bench;
use super::space::Space;

/// Rules besides POSIX that `--require` takes, by their words.
pub const RULES: [&str; 14] = [
    "names",
    "order",
    "size",
    "tail",
    "cut",
    "version",
    "replace",
    "direct",
    "published",
    "commits",
    "new",
    "reads",
    "reserve",
    "first",
];

/// The word that replaced an old one of [`RULES`].
pub fn renamed(word: &str) -> Option<&'static str> {
    (word == "marks").then_some("published")
}

/// The rule of a profile that a word is, if it is no [`Telling`].
fn rule<'a>(p: &'a mut Profile, word: &str) -> Option<&'a mut bool> {
    Some(match word {
        "names" => &mut p.fsync_keeps_names,
        "order" => &mut p.names_in_order,
        "size" => &mut p.size_with_data,
        "tail" => &mut p.tail_with_data,
        "cut" => &mut p.cut_stays_cut,
        "version" => &mut p.one_version,
        "replace" => &mut p.replaces_whole,
        "direct" => &mut p.direct_is_durable,
        "published" => &mut p.marks_hold,
        "commits" => &mut p.commits_hold,
        "new" => &mut p.new_by_fdatasync,
        "reads" => &mut p.reads_stay,
        "reserve" => &mut p.fallocate_syncs,
        _ => return None,
    })
}

/// Holds to one more rule. Answers whether there is such a word.
pub fn hold(p: &mut Profile, word: &str) -> bool {
    if word == "first" {
        p.errors = Telling::First;
        return true;
    }
    rule(p, word).map(|held| *held = true).is_some()
}

/// The words of a profile.
pub fn held(p: &Profile) -> Vec<&'static str> {
    let mut p = *p;
    let first = p.errors == Telling::First;
    let mut is_held = |word: &&str| match *word {
        "first" => first,
        word => rule(&mut p, word).is_some_and(|held| *held),
    };
    RULES.into_iter().filter(|word| is_held(word)).collect()
}

/// A program as one word of a shell: steps with `;` between.
pub fn quoted(program: &Program) -> String {
    let steps: Vec<String> = program.0.iter().map(ToString::to_string).collect();
    format!("'{}'", steps.join("; ").replace('\'', "'\\''"))
}

const LINE: &str = "a string takes it";

/// The file system of a machine, as `--fs` takes it.
pub fn file_system(bench: &Bench) -> String {
    let mut t = bench.fs.name.to_owned();
    for (key, value) in bench.fs_options.given() {
        match value {
            "true" => write!(t, ",{key}"),
            value => write!(t, ",{key}={value}"),
        }
        .expect(LINE);
    }
    t
}

/// The device of a machine, as `--device` and `--size` take it.
fn device(bench: &Bench) -> String {
    let mut t = String::new();
    let mut device = bench.device.clone();
    let mut size = None;
    for (key, value) in &bench.device_params {
        match key.as_str() {
            "capacity_bytes" => size = Some(*value),
            key => write!(device, ",{key}={value}").expect(LINE),
        }
    }
    for (name, params) in &bench.more {
        write!(device, "+{name}").expect(LINE);
        for (key, value) in params {
            write!(device, ",{key}={value}").expect(LINE);
        }
    }
    if device != "fixed" {
        write!(t, " --device {device}").expect(LINE);
    }
    match size {
        Some(n) if n == 64 << 20 => {}
        Some(n) if n % (1 << 20) == 0 => write!(t, " --size {}M", n >> 20).expect(LINE),
        Some(n) => write!(t, " --size {n}").expect(LINE),
        None => {}
    }
    t
}

/// The options of `writepath crash` that make the machine and the states of a campaign.
pub fn arguments(c: &Campaign) -> String {
    let mut t = format!("--fs {}{}", file_system(&c.bench), device(&c.bench));
    if !c.bench.elevator.is_empty() {
        write!(t, " --elevator {}", c.bench.elevator).expect(LINE);
    }
    if c.seed != 1 {
        write!(t, " --seed {}", c.seed).expect(LINE);
    }
    let breach = match c.space {
        Space::Modelled => Some("modelled"),
        Space::ZoneHoles => Some("zone-holes"),
        Space::Permitted { lying_flush: true, lost_fua: true, .. } => Some("faulty-drive"),
        Space::Permitted { lying_flush: true, .. } => Some("lying-flush"),
        Space::Permitted { lost_fua: true, .. } => Some("lost-fua"),
        Space::Permitted { faulty_plp: true, .. } => Some("faulty-plp"),
        Space::Permitted { .. } => None,
    };
    if let Some(breach) = breach {
        write!(t, " --space {breach}").expect(LINE);
    }
    if let Space::Permitted { atomic: Some(n), .. } = c.space {
        write!(t, " --atomic {n}").expect(LINE);
    }
    let held = held(&c.profile);
    let mounted = Profile::mounted(c.bench.fs, &c.bench.fs_options);
    if !c.profile.image_alone && c.profile != mounted {
        write!(t, " --require {}", held.join("+")).expect(LINE);
    }
    if !c.bench.stale {
        t += " --trimmed";
    }
    if c.bench.company_us > 0 {
        write!(t, " --concurrent-sync-us {}", c.bench.company_us).expect(LINE);
    }
    if c.second_cuts > 0 {
        write!(t, " --second {}", c.second_cuts).expect(LINE);
    }
    if !c.recovery_in_order {
        t += " --recovery-unordered";
    }
    if let Some(site) = c.bench.without {
        write!(t, " --without {}", site.name).expect(LINE);
    }
    t
}

/// The command line that shows one state of a program: its frame, and the units that are lost.
pub fn state(c: &Campaign, program: &str, (frame, lost): (usize, &[usize])) -> String {
    let lost: Vec<String> = lost.iter().map(usize::to_string).collect();
    let lost = if lost.is_empty() { String::new() } else { format!(":{}", lost.join(",")) };
    format!("writepath crash show {program} {frame}{lost} {}", arguments(c))
}
