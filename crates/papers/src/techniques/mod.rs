//! The techniques of the papers: what each does, how it is switched on, what it needs, and what it
//! cannot be together with.
//!
//! One table ([`TECHNIQUES`]) for `list techniques` and for the matrix, so that what is refused
//! there is what stands here.
//! Invariants: 1. every option of the table is one that the file system's registry line has, and
//!                a mount takes it on a drive with what the technique needs (tests);
//!             2. where [`Conflict::mount_refuses`] says so, a mount with both is refused (a test).

pub mod judge;
mod table;

use std::fmt;

use serde::Serialize;
pub use table::TECHNIQUES;
use wp_block::Limits;
use wp_machine::make_device;

/// Where a technique is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A paper, by its slug.
    Paper(&'static str),
    /// Linux, as one of the papers has it.
    Linux(&'static str),
    /// Literature that a paper names.
    Literature(&'static str),
    /// The kernel of a distribution, on what a paper describes.
    Distribution(&'static str),
    /// Ours, on what a paper left open.
    Ours(&'static str),
}

impl Origin {
    /// The paper that it belongs to.
    pub const fn paper(self) -> &'static str {
        match self {
            Origin::Paper(slug)
            | Origin::Linux(slug)
            | Origin::Literature(slug)
            | Origin::Distribution(slug)
            | Origin::Ours(slug) => slug,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Paper(slug) => write!(f, "paper {slug}"),
            Origin::Linux(slug) => write!(f, "Linux (paper {slug})"),
            Origin::Literature(slug) => write!(f, "literature (named in paper {slug})"),
            Origin::Distribution(slug) => {
                write!(f, "a distribution's kernel (beyond paper {slug})")
            }
            Origin::Ours(slug) => write!(f, "Writepath (beyond paper {slug})"),
        }
    }
}

/// What a technique needs of the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Barrier writes: what was received before one is not lost if something after it is there.
    OrderedWrites,
    /// Every write is kept in order, and whole.
    OrderedWholeWrites,
    /// A FLUSH of some sectors only.
    RangeFlush,
    /// A write of a block is kept whole.
    WholeBlocks,
    /// Zones with write pointers.
    Zones,
    /// Discards.
    Discards,
    /// Discarded blocks read zeroes.
    ZeroesAfterDiscard,
}

impl Need {
    /// What it needs, in words.
    pub const fn name(self) -> &'static str {
        match self {
            Need::OrderedWrites => "a drive that keeps the order of barrier writes",
            Need::OrderedWholeWrites => {
                "a drive that keeps all writes in order, each whole (optr=1)"
            }
            Need::RangeFlush => "a drive that flushes a set of sectors (range_flush=1)",
            Need::WholeBlocks => "a drive that keeps a write of a block whole (atomic_bytes=4096)",
            Need::Zones => "a zoned drive, whose write pointers show what was written",
            Need::Discards => "a drive that supports discard",
            Need::ZeroesAfterDiscard => "a drive that reads zeroes after a discard",
        }
    }

    /// Has a drive what is needed?
    pub const fn is_met(self, drive: &Limits) -> bool {
        match self {
            Need::OrderedWrites => drive.barrier_writes,
            Need::OrderedWholeWrites => drive.ordered_writes || !drive.volatile_cache,
            Need::RangeFlush => drive.range_flush || !drive.volatile_cache,
            Need::WholeBlocks => drive.atomic_bytes >= 4096,
            Need::Zones => drive.zones.is_some(),
            Need::Discards => drive.discard,
            Need::ZeroesAfterDiscard => drive.discard_zeroes,
        }
    }
}

/// Two techniques that cannot be together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Conflict {
    /// The other one.
    pub with: &'static str,
    /// Why.
    pub why: &'static str,
    /// Is a mount with both refused? If not, it is the matrix alone that refuses.
    pub mount_refuses: bool,
}

/// A technique.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Technique {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Where it is from.
    pub origin: Origin,
    /// File system; `None`: it is named, and not built.
    pub fs: Option<&'static str>,
    /// Options of that file system that switch it on, as on the command line.
    pub on: &'static str,
    /// Parameters of `--elevator` that switch it on.
    pub elevator: &'static str,
    /// The first kernel that has it, as an era, and what stands for that in the reason; `None`:
    /// in every one that is modelled, or it is in no kernel.
    pub since: Option<(u16, u16)>,
    /// The first kernel that has it no more.
    pub until: Option<(u16, u16)>,
    /// What it needs of the drive.
    pub needs: &'static [Need],
    /// What it cannot be together with. Each pair stands in the table once.
    pub conflicts: &'static [Conflict],
    /// What a power failure does to it where what it relies on is missing, by the number of `crash
    /// bug`.
    pub unsafe_without: &'static [(&'static str, &'static str)],
}

/// Why techniques and a drive do not go together.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Refusal {
    /// The technique.
    pub technique: &'static str,
    /// Why not.
    pub why: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.technique, self.why)
    }
}

/// The technique of this name. Panics without: names are of tables of ours, which a test reads.
pub fn find(name: &str) -> &'static Technique {
    TECHNIQUES.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no technique `{name}`"))
}

/// The conflict of two, whichever of them it stands with.
pub fn conflict(a: &Technique, b: &Technique) -> Option<&'static Conflict> {
    let of = |t: &Technique, other: &str| t.conflicts.iter().find(|c| c.with == other);
    of(a, b.name).or_else(|| of(b, a.name))
}

impl Technique {
    /// Its options, one by one.
    pub fn options(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let parts = self.on.split(',').filter(|p| !p.is_empty());
        parts.map(|p| p.split_once('=').unwrap_or((p, "true")))
    }

    /// The kernels that have it, in words; empty: all, or none.
    pub fn kernels(&self) -> String {
        match (self.since, self.until) {
            (None, None) => String::new(),
            (Some((a, b)), None) => format!("from {a}.{b}"),
            (None, Some((a, b))) => format!("before {a}.{b}"),
            (Some((a, b)), Some((c, d))) => format!("from {a}.{b}, before {c}.{d}"),
        }
    }

    /// Why it is in no kernel of this version.
    fn refused_in(&self, kernel: (u16, u16)) -> Option<Refusal> {
        let is_there =
            self.since.is_none_or(|v| kernel >= v) && self.until.is_none_or(|v| kernel < v);
        let why = format!("Linux has it {}", self.kernels());
        (!is_there).then_some(Refusal { technique: self.name, why })
    }
}

/// Why these techniques cannot be together in this kernel on this drive: the first reason, or none.
pub fn refusal(names: &[&str], kernel: (u16, u16), drive: &Limits) -> Option<Refusal> {
    let all: Vec<&Technique> = names.iter().map(|n| find(n)).collect();
    let missing = |t: &&Technique| {
        let need = t.needs.iter().find(|n| !n.is_met(drive))?;
        let lost = t.unsafe_without.iter().find(|(what, _)| *what == need.name());
        let lost = lost.map_or(String::new(), |(_, id)| {
            format!("; `writepath crash bug {id}` shows a power failure without it")
        });
        let why = format!("needs {}{lost}", need.name());
        Some(Refusal { technique: t.name, why })
    };
    if let Some(refusal) = all.iter().find_map(|t| t.refused_in(kernel)) {
        return Some(refusal);
    }
    if let Some(refusal) = all.iter().find_map(missing) {
        return Some(refusal);
    }
    let pairs = all.iter().enumerate().flat_map(|(i, a)| all[i + 1..].iter().map(move |b| (a, b)));
    let mut met = pairs.filter_map(|(a, b)| conflict(a, b).map(|c| (a, b, c)));
    met.next().map(|(a, b, c)| Refusal {
        technique: a.name,
        why: format!("conflicts with {}: {}", b.name, c.why),
    })
}

/// What a device preset with replaced parameters says of itself. Errors: none such.
pub fn limits(device: &str, params: &[(String, u64)]) -> Result<Limits, wp_machine::MachineError> {
    Ok(*make_device(device, params)?.limits())
}

#[cfg(test)]
mod tests;
