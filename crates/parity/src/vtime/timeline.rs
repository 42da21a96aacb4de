//! Who wrote what when, after the program: requests by second, flags and class of block.

use std::collections::BTreeMap;
use std::fmt;

use wp_base::event::{BlockAction, Event, Op, Record, rwbs};
use wp_medium::View;

/// A request that was issued to the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Nanoseconds since power-on.
    pub ns: u64,
    /// Operation and flags, as traces print them.
    pub rwbs: String,
    /// Its length; 0 for a flush.
    pub sectors: u32,
    /// `sb`, `gdt`, `bbm`, `ibm`, `itable`, `journal`, `journal_commit`, `meta`, `data`, `flush`.
    pub class: String,
}

/// What of a timeline is compared: when, with which flags, what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Whole seconds since the program began.
    pub second: u64,
    /// Class of blocks.
    pub class: String,
    /// Operation and flags.
    pub rwbs: String,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{} s {} {}", self.second, self.rwbs, self.class)
    }
}

/// Requests and blocks of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Requests.
    pub requests: u32,
    /// Blocks.
    pub blocks: u32,
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks in {}", self.blocks, self.requests)
    }
}

/// Requests since `start` by moment.
pub fn by_moment(start: u64, requests: &[Request]) -> BTreeMap<Moment, Amount> {
    let mut out: BTreeMap<Moment, Amount> = BTreeMap::new();
    for r in requests.iter().filter(|r| r.ns >= start) {
        let key = Moment {
            second: (r.ns - start) / 1_000_000_000,
            class: r.class.clone(),
            rwbs: r.rwbs.clone(),
        };
        let amount = out.entry(key).or_default();
        amount.requests += 1;
        amount.blocks += r.sectors / 8;
    }
    out
}

/// The requests of a run of ours, classes read from the image at its end. Errors: an image that is
/// no ext4.
pub fn requests(records: &[Record], view: &dyn View) -> Result<Vec<Request>, String> {
    let map = (wp_ext4::ENTRY.blocks)(view).map_err(|e| e.to_string())?;
    let per = u64::from(map.block_bytes() / 512);
    let mut out = Vec::new();
    for r in records {
        let Event::Block { action: BlockAction::Issue, op, flags, at, sectors, .. } = &r.event
        else {
            continue;
        };
        let rwbs = if *sectors == 0 { "FF".to_owned() } else { rwbs(*op, *flags) };
        let class = if *sectors == 0 || *op == Op::Flush {
            "flush"
        } else {
            let flagged = |letter: char| rwbs.chars().skip(1).any(|c| c == letter);
            match map.class(at.0 / per) {
                "superblock" => "sb",
                "group_descriptors" | "gdt" => "gdt",
                "block_bitmap" => "bbm",
                "inode_bitmap" => "ibm",
                "inode_table" => "itable",
                c if c.starts_with("journal") && flagged('F') => "journal_commit",
                c if c.starts_with("journal") => "journal",
                _ if flagged('M') => "meta",
                _ => "data",
            }
        };
        out.push(Request { ns: r.at.0, rwbs, sectors: *sectors, class: class.to_owned() });
    }
    Ok(out)
}
