//! The same program on two kernels: what each has sent its drive, request by request.

use std::collections::BTreeMap;

use serde::Serialize;
use wp_medium::log_order::LogOrder;
use wp_medium::write_log::{LogEntry, LogFlags};

use super::Ran;

/// What two runs have in common.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Compared {
    /// Requests that changed something, and FLUSHes, of each.
    pub requests: [usize; 2],
    /// Writes of each.
    pub writes: [usize; 2],
    /// FLUSHes of each.
    pub flushes: [usize; 2],
    /// Bytes that each has written.
    pub bytes: [u64; 2],
    /// Requests from the first on that are the same: kind, flags, place, length.
    pub same: usize,
    /// Of those, writes whose contents differ.
    pub other_contents: usize,
    /// The first request that is another one; `None` on the side that has sent no more.
    pub first: Option<[Option<String>; 2]>,
}

impl Compared {
    /// Compares what two runs of a program have sent, in the order of submission.
    pub fn of(runs: [&Ran; 2]) -> Compared {
        let sent = runs.map(|ran| submitted(ran.recorded()));
        let of = |what: &dyn Fn(&LogEntry) -> u64| {
            [0, 1].map(|n| sent[n].iter().map(|e| what(e)).sum::<u64>())
        };
        let writes = of(&|e| u64::from(!e.data.is_empty())).map(|n| n as usize);
        let flushes = of(&|e| u64::from(e.flags.has(LogFlags::FLUSH))).map(|n| n as usize);
        let bytes = of(&|e| e.data.iter().map(|s| u64::from(s.len())).sum());
        let [a, b] = &sent;
        let is_same = |(a, b): &(&&LogEntry, &&LogEntry)| {
            (a.flags, a.at, a.sectors) == (b.flags, b.at, b.sectors)
        };
        let same = a.iter().zip(b).take_while(is_same).count();
        let ids = |e: &LogEntry| e.data.iter().map(wp_medium::Slice::id).collect::<Vec<_>>();
        let other = a.iter().zip(b).take(same).filter(|(a, b)| ids(a) != ids(b)).count();
        let differ = same < a.len().max(b.len());
        let word = |sent: &[&LogEntry]| sent.get(same).map(|e| words(e));
        Compared {
            requests: [a.len(), b.len()],
            writes,
            flushes,
            bytes,
            same,
            other_contents: other,
            first: differ.then(|| [word(a), word(b)]),
        }
    }

    /// Have both sent the same?
    pub fn is_same(&self) -> bool {
        self.first.is_none() && self.other_contents == 0
    }
}

/// A request for people.
fn words(e: &LogEntry) -> String {
    if e.flags.has(LogFlags::FLUSH) && e.sectors == 0 {
        return "FLUSH".to_owned();
    }
    let what = if e.flags.has(LogFlags::DISCARD) { "discard" } else { "write" };
    let forced = if e.flags.has(LogFlags::FUA) { " FUA" } else { "" };
    format!("{what}{forced} {} +{}", e.at.0, e.sectors)
}

/// Requests in the order in which they were submitted; those that have not completed are left out.
fn submitted(entries: &[LogEntry]) -> Vec<&LogEntry> {
    let (mut sent, mut next) = (BTreeMap::new(), None);
    for entry in entries {
        match LogOrder::of(entry) {
            Some(LogOrder::Submit(_)) => {}
            Some(LogOrder::Complete(n)) => next = Some(n),
            None if entry.flags.has(LogFlags::MARK) => {}
            // Requests have numbers in the order of submission.
            None => drop(next.take().map(|n| sent.insert(n, entry))),
        }
    }
    sent.into_values().collect()
}

#[cfg(test)]
mod tests {
    use wp_base::Sector;
    use wp_medium::Slice;
    use wp_medium::log_order::{BEGIN, END};

    use super::*;

    fn ran(requests: &[(u64, LogEntry)]) -> Ran {
        let mut writes = vec![LogEntry::mark(BEGIN)];
        writes.extend((0..requests.len() as u64).map(|n| LogOrder::Submit(n).entry()));
        for (n, entry) in requests {
            writes.extend([LogOrder::Complete(*n).entry(), entry.clone()]);
        }
        writes.push(LogEntry::mark(END));
        Ran {
            kernel: String::new(),
            code: 0,
            output: String::new(),
            ended_ns: 0,
            acks: Vec::new(),
            counts: Default::default(),
            writes,
            sector_bytes: 512,
            bytes: 1 << 20,
        }
    }

    fn write(at: u64, byte: u8) -> LogEntry {
        let data = vec![Slice::from_bytes(&[byte; 4096])];
        LogEntry::write(Sector(at), data, LogFlags::default())
    }

    #[test]
    fn requests_are_compared_in_the_order_of_submission_and_contents_count() {
        let flush = LogEntry::write(Sector(0), Vec::new(), LogFlags::FLUSH);
        let one = ran(&[(0, write(8, 1)), (1, write(16, 2)), (2, flush.clone())]);
        let other_order = ran(&[(1, write(16, 2)), (0, write(8, 1)), (2, flush.clone())]);
        let same = Compared::of([&one, &other_order]);
        assert!(same.is_same(), "{same:?}");
        assert_eq!((same.requests, same.writes, same.flushes), ([3, 3], [2, 2], [1, 1]));
        let contents = ran(&[(0, write(8, 1)), (1, write(16, 3)), (2, flush)]);
        let differs = Compared::of([&one, &contents]);
        assert_eq!((differs.is_same(), differs.other_contents, differs.same), (false, 1, 3));
        let shorter = Compared::of([&one, &ran(&[(0, write(8, 1)), (1, write(24, 2))])]);
        let words = ["write 16 +8", "write 24 +8"].map(|w| Some(w.to_owned()));
        assert_eq!((shorter.first, shorter.same), (Some(words), 1));
        let ends = Compared::of([&one, &ran(&[(0, write(8, 1)), (1, write(16, 2))])]);
        assert_eq!(ends.first, Some([Some("FLUSH".to_owned()), None]));
    }
}
