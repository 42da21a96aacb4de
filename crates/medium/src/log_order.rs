//! Marks with which a log of writes says more than dm-log-writes can: when each request was
//! submitted, and which part of the log is meant.
//!
//! Picture:    `writepath submit 7` where request 7 was submitted; `writepath complete 7` directly
//!             before the entry of what it wrote, which stands where it completed.
//! Invariants: 1. to whoever does not know them they are marks, and a replay is the same;
//!             2. a request without an entry (it failed, or was in flight at the end) has no
//!                `complete`.

use crate::write_log::{LogEntry, LogFlags};

/// What all of them begin with: no program's own mark.
const RESERVED: &str = "writepath ";

/// Exploration begins here: a file system was made, and is as its user wants it.
pub const BEGIN: &str = "writepath begin";
/// Exploration ends here.
pub const END: &str = "writepath end";

/// Is a mark with this text none of a program?
pub fn is_reserved(mark: &str) -> bool {
    mark.starts_with(RESERVED)
}

/// Where requests were submitted and completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogOrder {
    /// The request of this number was submitted.
    Submit(u64),
    /// The entry behind this one is what the request of this number wrote; it has completed.
    Complete(u64),
}

impl LogOrder {
    /// As an entry of a log.
    pub fn entry(self) -> LogEntry {
        LogEntry::mark(&match self {
            LogOrder::Submit(n) => format!("{RESERVED}submit {n}"),
            LogOrder::Complete(n) => format!("{RESERVED}complete {n}"),
        })
    }

    /// What an entry says of the order; `None`: nothing.
    pub fn of(entry: &LogEntry) -> Option<LogOrder> {
        if !entry.flags.has(LogFlags::MARK) {
            return None;
        }
        let (what, number) = entry.mark.strip_prefix(RESERVED)?.split_once(' ')?;
        let number = number.parse().ok()?;
        match what {
            "submit" => Some(LogOrder::Submit(number)),
            "complete" => Some(LogOrder::Complete(number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_reads_back_and_no_other_mark_is_one() {
        for order in [LogOrder::Submit(0), LogOrder::Complete(u64::MAX)] {
            assert_eq!(LogOrder::of(&order.entry()), Some(order));
            assert!(is_reserved(&order.entry().mark));
        }
        for other in [BEGIN, END, "submit 1", "writepath submit", "writepath submit x", ""] {
            assert_eq!(LogOrder::of(&LogEntry::mark(other)), None, "{other}");
        }
        assert_eq!(LogOrder::of(&LogEntry::discard(wp_base::Sector(0), 8)), None);
        assert!(!is_reserved("setup"));
    }
}
