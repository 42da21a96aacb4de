//! Lines of a trace, as the recorded files have them and as our runs hand them in.

use std::fmt;

/// Why recorded data is refused; says where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceError(pub String);

impl fmt::Display for ReferenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReferenceError {}

/// One event of a run. Fields as in the recorded files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceLine {
    /// Nanoseconds since the fsync was called; negative inside `write()`.
    pub ns_from_fsync_start: i64,
    /// `Q` `I` `M` `F` `D` `C`, or `J` for an event of the journal.
    pub action: char,
    /// RWBS flags; of a `J` line the name of the event.
    pub rwbs: String,
    /// Absolute 512-byte sector; `None` for a flush and for `J`.
    pub sector: Option<u64>,
    /// 512-byte sectors.
    pub sectors: u32,
    /// What the blocks are, `+` between places, `*n` for n blocks: `data:f_3`, `journal*5`,
    /// `inode_table*2+gdt`, `flush`; of a `J` line its details.
    pub class: String,
    /// The current task.
    pub comm: String,
}

/// A recorded run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// All lines, in file order, which is that of time.
    pub lines: Vec<TraceLine>,
    /// When fsync returned, nanoseconds since it was called.
    pub fsync_end_ns: i64,
}

/// Reads a recorded trace: tab-separated, comments start with `#`.
///
/// Errors: a line that has other than seven fields or a number that is none, with its line number;
/// a file that does not say when fsync ended.
pub fn parse_tsv(text: &str) -> Result<Trace, ReferenceError> {
    let mut lines = Vec::new();
    let mut fsync_end_ns = None;
    for (index, line) in text.split_terminator('\n').enumerate() {
        // All of them, so that what was read is written and read again as the same.
        let line = line.trim_end_matches('\r');
        let wrong = |what: &str| ReferenceError(format!("line {}: {what}: {line}", index + 1));
        if let Some(comment) = line.strip_prefix('#') {
            if let Some(value) = comment.strip_prefix("fsync_end ") {
                let end = nanoseconds(value).ok_or_else(|| wrong("not a time"))?;
                fsync_end_ns = Some(end);
            }
            continue;
        }
        let fields: Vec<&str> = line.split('\t').collect();
        let [time, action, rwbs, sector, sectors, class, comm] = fields[..] else {
            return Err(wrong("not seven fields"));
        };
        let mut actions = action.chars();
        let (Some(action), None) = (actions.next(), actions.next()) else {
            return Err(wrong("not an action"));
        };
        let number = |field: &str| match field {
            "-" => Ok(None),
            field => field.parse::<u64>().map(Some).map_err(|_| wrong("not a number")),
        };
        let count = number(sectors)?.unwrap_or(0);
        lines.push(TraceLine {
            ns_from_fsync_start: nanoseconds(time).ok_or_else(|| wrong("not a time"))?,
            action,
            rwbs: rwbs.to_owned(),
            sector: number(sector)?,
            sectors: u32::try_from(count).map_err(|_| wrong("too many sectors"))?,
            class: class.to_owned(),
            comm: comm.to_owned(),
        });
    }
    let fsync_end_ns =
        fsync_end_ns.ok_or_else(|| ReferenceError("no line `#fsync_end`".to_owned()))?;
    Ok(Trace { lines, fsync_end_ns })
}

/// Decimal seconds with at most nine places, exactly.
fn nanoseconds(text: &str) -> Option<i64> {
    let (sign, digits) = match text.trim().strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.trim()),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let only_digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 9 || !only_digits(whole) || !only_digits(fraction) {
        return None;
    }
    let whole: i64 = whole.parse().ok()?;
    let fraction: i64 = format!("{fraction:0<9}").parse().ok()?;
    whole.checked_mul(1_000_000_000)?.checked_add(fraction)?.checked_mul(sign)
}
