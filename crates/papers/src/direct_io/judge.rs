//! From runs to claims.

use wp_machine::MachineError;
use wp_report::claim::Judged;

use super::{Case, Mechanism, Numbers, Results, SLUG, System};
use crate::claims::{Book, Claims, Measured};

fn config(e: impl std::fmt::Display) -> MachineError {
    MachineError::Config(e.to_string())
}

/// Which BTRFS that is.
const BTRFS: &str = "BTRFS follows the rules of 6.12, on the block layer of 3.13";
/// What decides between F2FS and EXT4 where files grow: without places to look for, in the other
/// reading, it turns round.
const PLACES: &str = "neither reading shows the paper's crossover at 512 KiB: F2FS allocates each block, EXT4 each record, at the same cost";

/// What is left out of NILFS2, and that it does not explain the difference.
fn unexplained(found: &Results, of: fn(&Numbers) -> f64) -> String {
    let of_one = |name: &str| found.varied.iter().find(|(n, _)| n == name).map(|(_, n)| of(n));
    let free = "not explained; checksums of its logs take no time here";
    match (of_one("cpu page_writeback x2"), of_one("cpu, all, x2")) {
        // What costs those 2 us more for each page of a log, and nobody else, is a checksum.
        (Some(sums), Some(all)) => format!(
            "{free}, and at 2 GB/s would give {sums:.3}; with every CPU cost doubled, {all:.3}"
        ),
        _ => free.to_owned(),
    }
}

/// The variations of which that holds, by name.
fn with(found: &Results, holds: impl Fn(&Numbers) -> bool) -> String {
    let names = found.varied.iter().filter(|(_, n)| holds(n)).map(|(name, _)| name.as_str());
    names.collect::<Vec<_>>().join(", ")
}

pub(super) fn judge(found: &Results) -> Result<Vec<Judged>, MachineError> {
    let claims = Claims::fixed();
    let mut book = Book::open(&claims, SLUG).map_err(config)?;
    let mut emit = |id: &str, m: Measured| book.emit(id, m).map(|_| ()).map_err(config);
    let over = |of: fn(&Numbers) -> f64| {
        let ours = of(&found.numbers);
        let all = found.varied.iter().map(|(_, n)| of(n)).chain([ours]);
        let [low, high] =
            all.fold([f64::INFINITY, f64::NEG_INFINITY], |[a, b], v| [a.min(v), b.max(v)]);
        let m = Measured::value(ours);
        if found.varied.is_empty() { m } else { m.interval(low, high) }
    };
    let filled =
        |of: fn(&Numbers) -> f64| format!("overwriting an existing file: {:.3}", of(&found.filled));
    let why = format!("{PLACES}; {}", filled(|n| n.small));
    emit("fig1.f2fs_best_small", over(|n| n.small).why(why))?;
    let is_below = |n: &Numbers| n.large < found.numbers.large;
    let below = match with(found, is_below) {
        names if names.is_empty() => String::new(),
        names => format!("; EXT4 is below F2FS at some size with {names}"),
    };
    let why = format!("{PLACES}; {}{below}", filled(|n| n.large));
    emit("fig1.ext4_best_large", over(|n| n.large).why(why))?;
    let why = format!("{}; {}", unexplained(found, |n| n.nilfs2), filled(|n| n.nilfs2));
    emit("fig1.nilfs2", over(|n| n.nilfs2).why(why))?;
    let turns = |n: &Numbers| n.random_first < found.numbers.random_first;
    let first = over(|n| n.random_first);
    let first = match with(found, turns) {
        turned if turned.is_empty() => first,
        turned => first.why(format!("EXT4 is close, and first at some size with {turned}")),
    };
    emit("fig2.f2fs_best", first)?;
    // Both write in place: a drive alone would make no difference.
    emit("fig2.ext4", over(|n| n.random_ext4).null(1.0))?;
    emit("fig2.nilfs2", over(|n| n.random_nilfs2).why(unexplained(found, |n| n.random_nilfs2)))?;
    let why = format!("{BTRFS}; {}", filled(|n| n.btrfs));
    emit("fig1.btrfs", over(|n| n.btrfs).why(why))?;
    let why = format!("{BTRFS}; {}", filled(|n| n.btrfs_1m));
    emit("fig1.btrfs_1m", over(|n| n.btrfs_1m).why(why))?;
    emit("fig2.btrfs", over(|n| n.random_btrfs).why(BTRFS))?;
    for (id, system) in [
        ("ext4", System::Ext4),
        ("f2fs", System::F2fs),
        ("f2fs_log", System::F2fsLog),
        ("btrfs", System::Btrfs),
        ("nilfs2", System::Nilfs2),
    ] {
        let row = over_4k(found, system)?;
        let moved = row.moved.ok_or_else(|| config("nothing was written over"))?;
        emit(&format!("mechanism.{id}.moved"), Measured::value(moved))?;
    }
    let ext4 = over_4k(found, System::Ext4)?;
    let journal = ext4.writes.of("journal") + ext4.fdatasync.of("journal");
    let times = format!(
        "during {} writes and an fdatasync; an fsync then has {} for the times",
        ext4.case.writes,
        ext4.fsync.of("journal")
    );
    emit("mechanism.ext4.journal_overwrite", Measured::value(journal as f64).why(times))?;
    let nilfs2 = over_4k(found, System::Nilfs2)?;
    let is_told = Measured::answer(!nilfs2.notes.is_empty()).why(nilfs2.notes.join("; "));
    emit("mechanism.nilfs2.buffered", is_told)?;
    book.close().map_err(config)
}

/// The row of 4 KiB over what is there.
fn over_4k(found: &Results, system: System) -> Result<&Mechanism, MachineError> {
    let is_it = |m: &&Mechanism| m.system == system.name() && m.case == Case::OVER;
    found.mechanisms.iter().find(is_it).ok_or_else(|| config("a row of the table is missing"))
}
