//! The payload of a FLUSH of a set (RFLUSH), as a drive reads it.

use wp_base::Sector;
use wp_block::FlushSet;
use wp_medium::Slice;

use super::feed::Feed;

/// The first 16 bytes are a place and a length that are looked for; the rest is the payload.
pub fn payload(input: &[u8]) {
    let mut feed = Feed::new(input);
    let (at, sectors) = (feed.u64(), feed.u64());
    let rest = feed.rest();
    // A queue's payload comes in pages.
    let pages: Vec<Slice> = rest.chunks(4096).map(Slice::from_bytes).collect();
    let set = FlushSet::decode(&pages);
    let ranges: Vec<(u64, u64)> = set.ranges().map(|(at, n)| (at.0, n)).collect();
    assert!(ranges.iter().all(|(at, n)| *n > 0 && at.checked_add(*n).is_some()));
    assert!(ranges.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0), "in order, and apart");
    assert_eq!(FlushSet::decode(&set.encode()), set);
    let end = at.saturating_add(sectors);
    let meets = ranges.iter().any(|(from, n)| at < from + n && *from < end);
    let covers = ranges.iter().any(|(from, n)| *from <= at && end <= from + n && at < from + n);
    assert_eq!(set.meets(Sector(at), sectors), meets);
    assert_eq!(set.covers(Sector(at), sectors), covers);
    let there = set.moved(sectors);
    if end < u64::MAX && ranges.last().is_none_or(|(at, n)| (at + n).checked_add(sectors).is_some())
    {
        assert_eq!(there.moved_back(sectors), set);
    }
}
