//! Partition tables: MBR with its logical partitions, and GPT.
//!
//! Source: UEFI Specification 2.10, section 5 (GPT, protective MBR); the MBR as `sfdisk(8)` and
//!         Linux' `block/partitions/msdos.c` number it: 1 to 4 primary, logical ones from 5 on.

use std::fmt;

use wp_base::SECTOR_BYTES;
use wp_base::crc::crc32_le;
use wp_medium::View;

use super::bytes_at;

/// Most logical partitions that are followed: a chain may lead back to itself.
const LOGICAL_MAX: u32 = 128;
/// Most entries of a GPT that are read, and bytes of one: tools make 128 of 128 bytes.
const ENTRIES_MAX: u32 = 1024;
const ENTRY_BYTES_MAX: u32 = 1024;

/// Which table it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// The table of the boot record.
    Mbr,
    /// That of EFI.
    Gpt,
}

/// A partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// Its number, as Linux has it: `sda3` is 3.
    pub number: u32,
    /// First byte on the device.
    pub at: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The partitions of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Which table it is.
    pub scheme: Scheme,
    /// By number.
    pub partitions: Vec<Partition>,
    /// What is wrong with the table, if something is: what could be read counts.
    pub fault: Option<&'static str>,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scheme::Mbr => "MBR",
            Scheme::Gpt => "GPT",
        })
    }
}

/// The table of a device. `None`: it has none.
pub(super) fn read(view: &dyn View) -> Option<Table> {
    let boot = bytes_at::<512>(view, 0)?;
    let (entries, signature) = (boot.get(446..510)?, boot.get(510..512)?);
    if signature != [0x55, 0xaa] {
        return gpt(view).map(|mut table| {
            table.fault = table.fault.or(Some("no protective MBR"));
            table
        });
    }
    let primary: Vec<Entry> = entries.chunks(16).map(Entry::of).collect();
    if primary.iter().any(|e| e.kind == 0xee) {
        let none = "a protective MBR, and neither GPT header is right";
        let damaged = Table { scheme: Scheme::Gpt, partitions: Vec::new(), fault: Some(none) };
        return Some(gpt(view).unwrap_or(damaged));
    }
    // A boot sector without a table has code there.
    if primary.iter().any(|e| e.flags & 0x7f != 0) || primary.iter().all(|e| !e.is_used()) {
        return None;
    }
    Some(mbr(view, &primary))
}

/// An entry of a boot record, in sectors of 512 bytes.
#[derive(Clone, Copy)]
struct Entry {
    flags: u8,
    kind: u8,
    start: u64,
    sectors: u64,
}

impl Entry {
    fn of(bytes: &[u8]) -> Entry {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let word =
            |at: usize| u64::from(u32::from_le_bytes([0, 1, 2, 3].map(|n: usize| byte(at + n))));
        Entry { flags: byte(0), kind: byte(4), start: word(8), sectors: word(12) }
    }
    fn is_used(&self) -> bool {
        self.kind != 0 && self.sectors != 0
    }
    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }
    fn partition(&self, number: u32, base: u64) -> Partition {
        let at = (base + self.start) * SECTOR_BYTES;
        Partition { number, at, bytes: self.sectors * SECTOR_BYTES }
    }
}

fn mbr(view: &dyn View, primary: &[Entry]) -> Table {
    let mut table = Table { scheme: Scheme::Mbr, partitions: Vec::new(), fault: None };
    for (number, entry) in (1..).zip(primary).filter(|(_, e)| e.is_used()) {
        if !entry.is_extended() {
            table.partitions.push(entry.partition(number, 0));
        }
    }
    let Some(extended) = primary.iter().find(|e| e.is_used() && e.is_extended()) else {
        return table;
    };
    // Each logical partition has a boot record: an entry for it, and one that leads to the next.
    let mut at = extended.start;
    for number in 5..5 + LOGICAL_MAX {
        let Some(record) = bytes_at::<512>(view, at * SECTOR_BYTES) else {
            table.fault = Some("a chain of logical partitions that leaves the image");
            return table;
        };
        if record.get(510..) != Some(&[0x55, 0xaa]) {
            table.fault = Some("a chain of logical partitions without its end");
            return table;
        }
        let entries: Vec<Entry> =
            record.get(446..510).unwrap_or(&[]).chunks(16).map(Entry::of).collect();
        let of_data = entries.iter().find(|e| e.is_used() && !e.is_extended());
        if let Some(entry) = of_data {
            table.partitions.push(entry.partition(number, at));
        }
        let Some(next) = entries.iter().find(|e| e.is_used() && e.is_extended()) else {
            return table;
        };
        at = extended.start + next.start;
    }
    table.fault = Some("a chain of more than 128 logical partitions");
    table
}

/// The GPT of sectors of 512 or 4096 bytes: by its header, or by the copy at the end.
fn gpt(view: &dyn View) -> Option<Table> {
    let len = view.len_bytes();
    let sizes = [SECTOR_BYTES, 4096];
    let first = sizes.iter().find_map(|sector| header(view, *sector, *sector));
    let copy = || {
        sizes.iter().find_map(|sector| {
            let last = (len / sector).checked_sub(1)? * sector;
            let mut table = header(view, *sector, last)?;
            table.fault = Some("the first GPT header is damaged; its copy was read");
            Some(table)
        })
    };
    first.or_else(copy)
}

/// The table that the header at byte `at` leads to, if its checksums are right.
fn header(view: &dyn View, sector: u64, at: u64) -> Option<Table> {
    let mut head = bytes_at::<512>(view, at)?;
    if !head.starts_with(b"EFI PART") {
        return None;
    }
    let word = |bytes: &[u8], at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let long = |bytes: &[u8], at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let (bytes, sum) = (word(&head, 12)?, word(&head, 16)?);
    head.get_mut(16..20)?.fill(0);
    let summed = head.get(..usize::try_from(bytes).ok()?)?;
    if bytes < 92 || !crc32_le(!0, summed) != sum {
        return None;
    }
    let (entries, count, size) = (long(&head, 72)?, word(&head, 80)?, word(&head, 84)?);
    if count > ENTRIES_MAX || !(128..=ENTRY_BYTES_MAX).contains(&size) {
        return None;
    }
    let mut all = vec![0; usize::try_from(u64::from(count) * u64::from(size)).ok()?];
    let from = entries.checked_mul(sector)?;
    if from.checked_add(all.len() as u64)? > view.len_bytes() {
        return None;
    }
    view.read_at(from, &mut all).ok()?;
    if !crc32_le(!0, &all) != word(&head, 88)? {
        return None;
    }
    let partition = |(number, entry): (u32, &[u8])| {
        let is_used = entry.get(..16)?.iter().any(|b| *b != 0);
        let (first, last) = (long(entry, 32)?, long(entry, 40)?);
        let sectors = last.checked_sub(first)?.checked_add(1)?;
        let (at, bytes) = (first.checked_mul(sector)?, sectors.checked_mul(sector)?);
        is_used.then_some(Partition { number, at, bytes })
    };
    let partitions = (1..).zip(all.chunks(size as usize)).filter_map(partition).collect();
    Some(Table { scheme: Scheme::Gpt, partitions, fault: None })
}
