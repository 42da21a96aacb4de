//! What was recorded of the real kernel, as kept in `kernels/linux-6.12`.

use super::run::{TICK_NS, Timed};
use super::timeline::Request;

/// Timed calls of every configuration (see `kernels/linux-6.12/README.md`).
pub const CALLS_TSV: &str = include_str!("../../../../kernels/linux-6.12/calls.tsv");
/// The same of F2FS.
pub const F2FS_CALLS_TSV: &str = include_str!("../../../../kernels/linux-6.12/calls-f2fs.tsv");
/// The same of NILFS2.
pub const NILFS2_CALLS_TSV: &str = include_str!("../../../../kernels/linux-6.12/calls-nilfs2.tsv");
/// The same of btrfs.
pub const BTRFS_CALLS_TSV: &str = include_str!("../../../../kernels/linux-6.12/calls-btrfs.tsv");
/// Requests of the idle case.
pub const IDLE_TSV: &str = include_str!("../../../../kernels/linux-6.12/idle.tsv");
/// Latency of the device in those runs, nanoseconds.
pub const LATENCY_NS: u64 = 15_000;

/// Recorded calls of one configuration, in order. Errors: a table of another form.
pub fn calls(config: &str) -> Result<Vec<Timed>, String> {
    let table = match config {
        "nilfs2" => NILFS2_CALLS_TSV,
        f if f.starts_with("f2fs") => F2FS_CALLS_TSV,
        b if b.starts_with("btrfs") => BTRFS_CALLS_TSV,
        _ => CALLS_TSV,
    };
    let mut lines = table.lines().filter(|l| !l.starts_with('#'));
    let head: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
    let column = head
        .iter()
        .position(|c| *c == config)
        .ok_or_else(|| format!("calls.tsv has no column {config}"))?;
    let mut out = Vec::new();
    for line in lines {
        let wrong = || format!("calls.tsv: `{line}`");
        let cells: Vec<&str> = line.split('\t').collect();
        let cell = cells.get(column).ok_or_else(wrong)?;
        if *cell == "-" {
            continue;
        }
        let (start, ns) = cell.split_once('+').ok_or_else(wrong)?;
        out.push(Timed {
            case: cells[0].to_owned(),
            op: cells[1].to_owned(),
            index: cells[2].parse().map_err(|_| wrong())?,
            start_ns: start.parse().map_err(|_| wrong())?,
            ns: ns.parse().map_err(|_| wrong())?,
            ok: true,
            sent: None,
            answer: None,
        });
    }
    Ok(out)
}

/// Start of the idle case in the traced run, and its requests. Errors: a table of another form.
pub fn idle(config: &str) -> Result<(u64, Vec<Request>), String> {
    let mut start = None;
    let mut out = Vec::new();
    for line in IDLE_TSV.lines().filter(|l| !l.starts_with('#')).skip(1) {
        let wrong = || format!("idle.tsv: `{line}`");
        let cells: Vec<&str> = line.split('\t').collect();
        let [name, ns, rwbs, sectors, class, _comm] = cells[..] else { return Err(wrong()) };
        if name != config {
            continue;
        }
        let ns: u64 = ns.parse().map_err(|_| wrong())?;
        if class == "start" {
            start = Some(ns);
            continue;
        }
        out.push(Request {
            ns,
            rwbs: rwbs.to_owned(),
            sectors: sectors.parse().map_err(|_| wrong())?,
            class: class.to_owned(),
        });
    }
    let start = start.ok_or_else(|| format!("idle.tsv has no start of {config}"))?;
    Ok((start, out))
}

/// When the file system was mounted on which a case began at `start_ns` after `align`: 10 s and
/// less than a tick before the tick that `align` waited for. The middle of that time; its tick is
/// exact.
pub fn mount_before(start_ns: u64) -> u64 {
    let tick = start_ns / TICK_NS;
    ((tick - 1) * TICK_NS + TICK_NS / 2).saturating_sub(10_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_read() {
        let calls = calls("ext4-default").expect("calls");
        assert!(calls.len() > 240, "{}", calls.len());
        assert_eq!(calls[1].waits(LATENCY_NS), 5, "N1.create_a.sync");
        let (start, requests) = idle("ext4-default").expect("idle");
        assert!(start > 0 && requests.len() > 15);
        assert!(super::calls("ext5").is_err() && super::idle("ext5").is_err());
    }

    #[test]
    fn the_mount_is_in_the_tick_before_the_one_that_was_waited_for() {
        // 10.021 s: waited for tick 1002, so it was in tick 1001, and mounted in tick 1.
        assert_eq!(mount_before(10_021_050_368) / TICK_NS, 1);
    }
}
