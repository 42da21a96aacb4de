//! Recorded block events as text: blkparse's default lines, and the listing of the fsync paper.
//!
//! Formats: blkparse's `"%D %2c %8s %5T.%9t %5p %2a %3d "` and what follows it by action; the
//! listing is `blkparse -a issue -f "%T.%9t %a %d %S + %n [%C]\n"`. Source: `blkparse(1)`,
//! `blkparse_fmt.c`.
//! Left out: several CPUs (all is CPU 0), the summary at the end, errors of completions (always 0).

use std::collections::BTreeMap;
use std::fmt::Write;

use wp_base::event::{BlockAction, Event, Record, rwbs};
use wp_base::{Sector, Time};

/// The device in whose name lines are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceDevice {
    /// Major number.
    pub major: u32,
    /// Minor number of the whole device.
    pub minor: u32,
    /// Minor number of the partition that bios are remapped from.
    pub partition_minor: u32,
}

impl Default for TraceDevice {
    /// `sdb`, `sdb1`.
    fn default() -> TraceDevice {
        TraceDevice { major: 8, minor: 16, partition_minor: 17 }
    }
}

/// What the lines of one record are made of.
struct Block<'a> {
    at: Time,
    task: &'a str,
    action: BlockAction,
    rwbs: String,
    sector: Sector,
    sectors: u32,
    extra: u64,
}

fn block(record: &Record) -> Option<Block<'_>> {
    let Event::Block { action, op, flags, at, sectors, extra } = record.event else { return None };
    let rwbs = match action {
        BlockAction::Plug | BlockAction::Unplug => "N".to_string(),
        _ => rwbs(op, flags),
    };
    Some(Block { at: record.at, task: &record.task, action, rwbs, sector: at, sectors, extra })
}

/// blkparse's default text of the block events in `records`, a line each; other events are passed
/// over.
///
/// Process numbers are made up: 0 for `swapper`, else 1001 onwards in the order of appearance.
pub fn blkparse(records: &[Record], device: TraceDevice) -> String {
    let mut out = String::new();
    let mut pids: BTreeMap<&str, u32> = BTreeMap::new();
    pids.insert("swapper", 0);
    for (seq, b) in (1u32..).zip(records.iter().filter_map(block)) {
        let next = 1000 + pids.len() as u32;
        let pid = *pids.entry(b.task).or_insert(next);
        let TraceDevice { major, minor, .. } = device;
        let (secs, nanos) = (b.at.secs(), b.at.subsec_nanos());
        let action = b.action.letter();
        write!(
            out,
            "{major:3},{minor:<3} {:2} {seq:8} {secs:5}.{nanos:09} {pid:5} {action:>2} {:>3} ",
            0, b.rwbs
        )
        .expect("a string takes everything");
        out.push_str(&rest(&b, device));
        out.push('\n');
    }
    out
}

/// What follows the fields that all lines have.
fn rest(b: &Block<'_>, device: TraceDevice) -> String {
    let (sector, sectors, task) = (b.sector.0, b.sectors, b.task);
    match b.action {
        BlockAction::Plug => format!("[{task}]"),
        BlockAction::Unplug => format!("[{task}] {sectors}"),
        BlockAction::Split => format!("{sector} / {} [{task}]", b.extra),
        BlockAction::Remap => {
            let TraceDevice { major, partition_minor, .. } = device;
            format!("{sector} + {sectors} <- ({major},{partition_minor}) {}", b.extra)
        }
        BlockAction::Complete | BlockAction::Requeue if sectors == 0 => format!("{sector} [0]"),
        BlockAction::Complete | BlockAction::Requeue => format!("{sector} + {sectors} [0]"),
        _ if sectors == 0 => format!("[{task}]"),
        _ => format!("{sector} + {sectors} [{task}]"),
    }
}

/// Which issued requests [`issues`] lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Issues {
    /// Those with data, as in the paper's listings.
    WithData,
    /// Cache flushes too, as `0 + 0`.
    All,
}

/// The listing of the fsync paper: `D` events as `seconds.nanoseconds D RWBS sector + sectors
/// [task]`.
pub fn issues(records: &[Record], which: Issues) -> String {
    let mut out = String::new();
    for b in records.iter().filter_map(block) {
        if b.action != BlockAction::Issue || (which == Issues::WithData && b.sectors == 0) {
            continue;
        }
        let (secs, nanos) = (b.at.secs(), b.at.subsec_nanos());
        writeln!(out, "{secs}.{nanos:09} D {} {} + {} [{}]", b.rwbs, b.sector.0, b.sectors, b.task)
            .expect("a string takes everything");
    }
    out
}

/// Short lines `ACTION RWBS sector sectors task` of the given actions (all if `actions` is empty),
/// without times: what tests compare and reviewers read. The columns are those of the reference
/// traces.
pub fn shape(records: &[Record], actions: &str) -> String {
    let mut out = String::new();
    for b in records.iter().filter_map(block) {
        let letter = b.action.letter();
        if actions.is_empty() || actions.contains(letter) {
            writeln!(out, "{letter} {} {} {} {}", b.rwbs, b.sector.0, b.sectors, b.task)
                .expect("a string takes everything");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use wp_base::event::{Flags, Op};

    fn record(
        ns: u64,
        task: &str,
        action: BlockAction,
        flags: Flags,
        at: u64,
        n: u32,
        extra: u64,
    ) -> Record {
        let event =
            Event::Block { action, op: Op::Write, flags, at: Sector(at), sectors: n, extra };
        Record { at: Time(ns), task: task.into(), event }
    }

    fn sample() -> Vec<Record> {
        let (sync, none) = (Flags::SYNC, Flags::NONE);
        let commit = Flags::SYNC | Flags::PREFLUSH | Flags::FUA;
        let flush = Flags::SYNC | Flags::PREFLUSH;
        vec![
            record(1_000, "w2", BlockAction::Remap, sync, 187_310_080, 8, 274_432),
            record(2_000, "w2", BlockAction::Queue, sync, 187_310_080, 8, 0),
            record(3_000, "w2", BlockAction::Plug, none, 0, 0, 0),
            record(4_000, "w2", BlockAction::Unplug, none, 0, 1, 0),
            record(11_188, "w2", BlockAction::Issue, sync, 187_310_080, 8, 0),
            record(900_000, "swapper", BlockAction::Complete, sync, 187_310_080, 8, 898_000),
            record(1_000_000_001, "jbd2/sdb1-8", BlockAction::Queue, commit, 216_658_048, 8, 0),
            record(1_000_000_002, "jbd2/sdb1-8", BlockAction::Issue, flush, 0, 0, 0),
            record(1_000_000_003, "swapper", BlockAction::Complete, sync, 216_658_056, 0, 0),
            record(35_195_248_762, "jbd2/sdb1-8", BlockAction::Split, sync, 100, 8, 108),
        ]
    }

    /// Checked once against the real `blkparse` 1.2.0 on a synthetic binary trace.
    #[test]
    fn blkparse_default_text() {
        let expected =
            "  8,16   0        1     0.000001000  1001  A  WS 187310080 + 8 <- (8,17) 274432
  8,16   0        2     0.000002000  1001  Q  WS 187310080 + 8 [w2]
  8,16   0        3     0.000003000  1001  P   N [w2]
  8,16   0        4     0.000004000  1001  U   N [w2] 1
  8,16   0        5     0.000011188  1001  D  WS 187310080 + 8 [w2]
  8,16   0        6     0.000900000     0  C  WS 187310080 + 8 [0]
  8,16   0        7     1.000000001  1002  Q FWFS 216658048 + 8 [jbd2/sdb1-8]
  8,16   0        8     1.000000002  1002  D FWS [jbd2/sdb1-8]
  8,16   0        9     1.000000003     0  C  WS 216658056 [0]
  8,16   0       10    35.195248762  1002  X  WS 100 / 108 [jbd2/sdb1-8]
";
        assert_eq!(blkparse(&sample(), TraceDevice::default()), expected);
    }

    #[test]
    fn the_papers_listing() {
        assert_eq!(issues(&sample(), Issues::WithData), "0.000011188 D WS 187310080 + 8 [w2]\n");
        let all = "0.000011188 D WS 187310080 + 8 [w2]\n1.000000002 D FWS 0 + 0 [jbd2/sdb1-8]\n";
        assert_eq!(issues(&sample(), Issues::All), all);
    }
}
