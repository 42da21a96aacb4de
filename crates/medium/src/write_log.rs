//! Logs of dm-log-writes: every write that a device was sent, in the order in which it completed,
//! with flushes, discards and marks.
//!
//! Picture:    superblock | entry, its data | entry, its data | ... Each entry takes one sector of
//!             the logged device; its data, as many as it wrote. A discard has none, a mark has its
//!             text in the entry's own sector.
//! Invariants: 1. no bytes make reading panic or run longer than the log is.
//!             2. a log is read to the end that its superblock names, or not at all: the first
//!                thing that is wrong is the answer.
//!             3. what is written reads back, and is what the kernel's target would have written.
//! Source:     Linux `drivers/md/dm-log-writes.c`,
//!             Documentation/admin-guide/device-mapper/log-writes.rst; a log of a real kernel.

use std::io;
use std::mem::size_of;

use wp_base::{FsError, FsResult, SECTOR_BYTES, Sector};

use crate::{Medium, PAGE_BYTES, Slice, View};

/// First word of a log (`WRITE_LOG_MAGIC`).
const MAGIC: u64 = 0x6A_7366_7773_6872;
/// The only version (`WRITE_LOG_VERSION`).
const VERSION: u64 = 1;
/// Words of an entry, 8 bytes each: sector, sectors, flags, bytes of data.
const ENTRY_BYTES: usize = 4 * size_of::<u64>();
/// Largest sector that a device can have here.
const SECTOR_BYTES_MAX: u32 = 1 << 16;

/// What an entry is, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogFlags(pub u64);

impl LogFlags {
    /// `LOG_FLUSH_FLAG`: the device's cache was flushed before.
    pub const FLUSH: LogFlags = LogFlags(1);
    /// `LOG_FUA_FLAG`: the write was durable when it completed.
    pub const FUA: LogFlags = LogFlags(2);
    /// `LOG_DISCARD_FLAG`: sectors were discarded; there is no data.
    pub const DISCARD: LogFlags = LogFlags(4);
    /// `LOG_MARK_FLAG`: somebody's note of this moment; there is no write.
    pub const MARK: LogFlags = LogFlags(8);
    /// `LOG_METADATA_FLAG`: the submitter called it metadata.
    pub const META: LogFlags = LogFlags(16);
    const KNOWN: u64 = 31;

    /// Has it all of `flags`?
    pub const fn has(self, flags: LogFlags) -> bool {
        self.0 & flags.0 == flags.0
    }
    /// Both.
    #[must_use]
    pub const fn with(self, flags: LogFlags) -> LogFlags {
        LogFlags(self.0 | flags.0)
    }
}

impl std::fmt::Display for LogFlags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [
            (LogFlags::FLUSH, "FLUSH"),
            (LogFlags::FUA, "FUA"),
            (LogFlags::DISCARD, "DISCARD"),
            (LogFlags::MARK, "MARK"),
            (LogFlags::META, "META"),
        ];
        let held = names.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| *name);
        f.write_str(&held.collect::<Vec<_>>().join("|"))
    }
}

/// One entry of a log.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// First sector, in units of 512 bytes.
    pub at: Sector,
    /// Sectors of 512 bytes that were written or discarded; 0 of a mark and of a mere flush.
    pub sectors: u64,
    /// What it is.
    pub flags: LogFlags,
    /// Text of a mark.
    pub mark: String,
    /// What was written.
    pub data: Vec<Slice>,
}

impl LogEntry {
    /// A write of `data`; `flags` of FLUSH, FUA and META. Without data: a flush.
    pub fn write(at: Sector, data: Vec<Slice>, flags: LogFlags) -> LogEntry {
        let bytes: u64 = data.iter().map(|d| u64::from(d.len())).sum();
        LogEntry { at, sectors: bytes / SECTOR_BYTES, flags, mark: String::new(), data }
    }

    /// A discard.
    pub fn discard(at: Sector, sectors: u64) -> LogEntry {
        let flags = LogFlags::DISCARD;
        LogEntry { at, sectors, flags, mark: String::new(), data: Vec::new() }
    }

    /// A mark.
    pub fn mark(text: &str) -> LogEntry {
        let flags = LogFlags::MARK;
        LogEntry { at: Sector(0), sectors: 0, flags, mark: text.to_owned(), data: Vec::new() }
    }

    /// First byte behind what it touches.
    pub fn end_bytes(&self) -> u64 {
        (self.at.0 + self.sectors) * SECTOR_BYTES
    }

    /// Does to `medium` what it did to its device. A discarded place reads as zero.
    pub fn apply(&self, medium: &mut Medium) {
        if self.flags.has(LogFlags::DISCARD) {
            medium.discard(self.at, self.sectors);
            return;
        }
        let mut at = self.at;
        for slice in &self.data {
            medium.write(at, slice);
            at = at.advance(u64::from(slice.len()) / SECTOR_BYTES);
        }
    }
}

/// Where a replay stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until<'a> {
    /// At the first mark of this text.
    Mark(&'a str),
    /// Before the entry of this number, counted from 0.
    Entry(u64),
    /// At the end.
    End,
}

/// A log that can be read.
pub struct WriteLog<'a> {
    view: &'a dyn View,
    entries: u64,
    sector_bytes: u32,
}

fn wrong(at: u64, field: &'static str, found: u64, expected: impl Into<String>) -> FsError {
    FsError::corrupt("dm-log-writes log", field, at, found, expected)
}

impl<'a> WriteLog<'a> {
    /// Does a file that begins so say that it is one?
    pub fn begins(head: &[u8]) -> bool {
        head.starts_with(&MAGIC.to_le_bytes())
    }

    /// Reads the superblock. Errors: `Corrupt` if it is none, or the log is too short for one.
    pub fn open(view: &'a dyn View) -> FsResult<WriteLog<'a>> {
        let mut head = [0u8; 28];
        if view.len_bytes() < SECTOR_BYTES {
            return Err(wrong(0, "length", view.len_bytes(), "512 bytes or more"));
        }
        view.read_at(0, &mut head)?;
        let word = |n: usize| u64::from_le_bytes(*head[8 * n..].first_chunk().expect("28 bytes"));
        let sector_bytes = u32::from_le_bytes(*head[24..].first_chunk().expect("28 bytes"));
        if word(0) != MAGIC {
            return Err(wrong(0, "magic", word(0), format!("{MAGIC:#x}")));
        }
        if word(1) != VERSION {
            return Err(wrong(8, "version", word(1), VERSION.to_string()));
        }
        let is_size = sector_bytes.is_power_of_two()
            && u64::from(sector_bytes) >= SECTOR_BYTES
            && sector_bytes <= SECTOR_BYTES_MAX;
        if !is_size {
            let expected = format!("a power of two from 512 to {SECTOR_BYTES_MAX}");
            return Err(wrong(24, "sectorsize", sector_bytes.into(), expected));
        }
        // The superblock takes one sector of the logged device, which may be larger than ours.
        let Some(most) = (view.len_bytes() / u64::from(sector_bytes)).checked_sub(1) else {
            let expected = format!("{sector_bytes} bytes or more");
            return Err(wrong(0, "length", view.len_bytes(), expected));
        };
        if word(2) > most {
            return Err(wrong(
                16,
                "nr_entries",
                word(2),
                format!("at most {most} (truncated log?)"),
            ));
        }
        Ok(WriteLog { view, entries: word(2), sector_bytes })
    }

    /// Entries that the superblock names.
    pub fn entries_count(&self) -> u64 {
        self.entries
    }

    /// Sector of the logged device, in bytes.
    pub fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    /// The entries in order. Ends after the first error.
    pub fn entries(&self) -> Entries<'_, 'a> {
        Entries { log: self, next: 0, at: self.sector_bytes.into() }
    }

    /// What a device that was all zero holds after the entries up to `until`, and the length in
    /// bytes that it needs for all that the log names up to there.
    ///
    /// Errors: those of the entries; `NotFound` for a mark that is not there, `Invalid` for an
    ///         entry beyond the last.
    pub fn replay(&self, until: Until<'_>) -> FsResult<(Medium, u64)> {
        self.replay_over(Medium::new(), until)
    }

    /// As [`WriteLog::replay`], on a device that held `base`.
    pub fn replay_over(&self, base: Medium, until: Until<'_>) -> FsResult<(Medium, u64)> {
        let mut medium = base;
        let mut bytes = 0;
        for (n, entry) in (0u64..).zip(self.entries()) {
            if until == Until::Entry(n) {
                return Ok((medium, bytes));
            }
            let entry = entry?;
            if entry.flags.has(LogFlags::MARK) && until == Until::Mark(&entry.mark) {
                return Ok((medium, bytes));
            }
            bytes = bytes.max(entry.end_bytes());
            entry.apply(&mut medium);
        }
        match until {
            Until::End => Ok((medium, bytes)),
            Until::Entry(n) if n == self.entries => Ok((medium, bytes)),
            Until::Entry(_) => Err(FsError::Invalid("the log has fewer entries")),
            Until::Mark(_) => Err(FsError::NotFound),
        }
    }
}

/// The entries of a log.
pub struct Entries<'l, 'a> {
    log: &'l WriteLog<'a>,
    next: u64,
    at: u64,
}

impl Entries<'_, '_> {
    fn read(&mut self) -> FsResult<LogEntry> {
        let (view, sector) = (self.log.view, u64::from(self.log.sector_bytes));
        let (at, n) = (self.at, self.next);
        let left = view.len_bytes().saturating_sub(at);
        if left < sector {
            let expected = format!("the {sector} bytes of entry {n}");
            return Err(wrong(at, "length", left, expected));
        }
        let mut head = vec![0u8; sector as usize];
        view.read_at(at, &mut head)?;
        let word = |n: usize| {
            let bytes = head.get(8 * n..).and_then(|b| b.first_chunk());
            bytes.map_or(0, |b| u64::from_le_bytes(*b))
        };
        let (first, count, flags, len) = (word(0), word(1), LogFlags(word(2)), word(3));
        if flags.0 & !LogFlags::KNOWN != 0 {
            let expected = format!("known flags in entry {n}");
            return Err(wrong(at + 16, "flags", flags.0, expected));
        }
        let scale = sector / SECTOR_BYTES;
        let end = first.checked_add(count).and_then(|end| end.checked_mul(sector));
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(wrong(at, "sector", first, format!("a place on a device (entry {n})")));
        }
        if len > sector - ENTRY_BYTES as u64 {
            let expected = format!("at most {} (entry {n})", sector - ENTRY_BYTES as u64);
            return Err(wrong(at + 24, "data_len", len, expected));
        }
        let has_data = !flags.has(LogFlags::DISCARD) && !flags.has(LogFlags::MARK);
        let bytes = if has_data { count * sector } else { 0 };
        if bytes > left - sector {
            let expected = format!("at most the {} bytes behind entry {n}", left - sector);
            return Err(wrong(at + 8, "nr_sectors", bytes, expected));
        }
        let mark = if flags.has(LogFlags::MARK) {
            let text = head.get(ENTRY_BYTES..ENTRY_BYTES + len as usize).unwrap_or(&[]);
            // `dmsetup message` ends its text with a zero byte, which is not part of it.
            let text = text.split(|b| *b == 0).next().unwrap_or(&[]);
            String::from_utf8_lossy(text).into_owned()
        } else {
            String::new()
        };
        let mut data = Vec::new();
        let mut done = 0;
        while done < bytes {
            let part = (bytes - done).min(PAGE_BYTES as u64);
            let mut page = [0u8; PAGE_BYTES];
            let page = &mut page[..part as usize];
            view.read_at(at + sector + done, page)?;
            data.push(match page.iter().all(|b| *b == 0) {
                true => Slice::zero(part as u32),
                false => Slice::from_bytes(page),
            });
            done += part;
        }
        self.at = at + sector + bytes;
        let sectors = if flags.has(LogFlags::MARK) { 0 } else { count * scale };
        Ok(LogEntry { at: Sector(first * scale), sectors, flags, mark, data })
    }
}

impl Iterator for Entries<'_, '_> {
    type Item = FsResult<LogEntry>;

    fn next(&mut self) -> Option<FsResult<LogEntry>> {
        if self.next >= self.log.entries {
            return None;
        }
        let entry = self.read();
        self.next = if entry.is_ok() { self.next + 1 } else { u64::MAX };
        Some(entry)
    }
}

/// Writes a log of a device with sectors of `sector_bytes` to `out`.
///
/// Errors: those of `out`; `InvalidInput` for sectors that are none, for an entry that is no whole
///         number of them, and for a mark of more than a sector.
pub fn write_log(
    out: &mut dyn io::Write,
    sector_bytes: u32,
    entries: &[LogEntry],
) -> io::Result<()> {
    let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    let sector = u64::from(sector_bytes);
    if !sector_bytes.is_power_of_two() || sector < SECTOR_BYTES || sector_bytes > SECTOR_BYTES_MAX {
        return invalid(format!("sectors of {sector_bytes} bytes"));
    }
    let scale = sector / SECTOR_BYTES;
    let mut head = vec![0u8; sector as usize];
    let mut put = |words: &[u64], text: &[u8], out: &mut dyn io::Write| {
        head.fill(0);
        let bytes = words.iter().flat_map(|w| w.to_le_bytes()).chain(text.iter().copied());
        head.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        out.write_all(&head)
    };
    // The sector's size is a word of 4 bytes; the zeroes behind it are padding.
    put(&[MAGIC, VERSION, entries.len() as u64, sector], &[], out)?;
    for (n, e) in entries.iter().enumerate() {
        let bytes: u64 = e.data.iter().map(|d| u64::from(d.len())).sum();
        let is_mark = e.flags.has(LogFlags::MARK);
        if !is_mark && !e.flags.has(LogFlags::DISCARD) && bytes != e.sectors * SECTOR_BYTES {
            return invalid(format!("entry {n} holds {bytes} bytes for {} sectors", e.sectors));
        }
        if !e.at.0.is_multiple_of(scale) || !e.sectors.is_multiple_of(scale) {
            return invalid(format!("entry {n} is no whole number of sectors of {sector} bytes"));
        }
        let len = if is_mark { e.mark.len() as u64 } else { 0 };
        if len > sector - ENTRY_BYTES as u64 {
            return invalid(format!("the mark of entry {n} is longer than a sector"));
        }
        let words = [e.at.0 / scale, e.sectors / scale, e.flags.0, len];
        put(&words, e.mark.as_bytes(), out)?;
        if !is_mark && !e.flags.has(LogFlags::DISCARD) {
            for slice in &e.data {
                out.write_all(&slice.to_vec())?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl View for Bytes {
        fn len_bytes(&self) -> u64 {
            self.0.len() as u64
        }
        fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
            let bytes = self.0.get(at as usize..at as usize + out.len()).ok_or(FsError::Io)?;
            out.copy_from_slice(bytes);
            Ok(())
        }
    }

    fn sample() -> Vec<LogEntry> {
        let fua = LogFlags::FLUSH.with(LogFlags::FUA);
        vec![
            LogEntry::write(Sector(8), vec![Slice::pattern(1, 0, 8192)], LogFlags::META),
            LogEntry::write(Sector(0), vec![], LogFlags::FLUSH),
            LogEntry::mark("half way"),
            LogEntry::write(Sector(16), vec![Slice::from_bytes(&[7; 4096])], fua),
            LogEntry::discard(Sector(8), 8),
            LogEntry::mark("end"),
        ]
    }

    fn written(sector_bytes: u32) -> Bytes {
        let mut out = Vec::new();
        write_log(&mut out, sector_bytes, &sample()).expect("a vector takes it");
        Bytes(out)
    }

    fn byte(medium: &Medium, at: u64) -> u8 {
        let mut b = [0];
        medium.read_bytes(at, &mut b);
        b[0]
    }

    #[test]
    fn what_is_written_is_read_and_replayed_up_to_each_mark() {
        for sector_bytes in [512, 4096] {
            let bytes = written(sector_bytes);
            let log = WriteLog::open(&bytes).expect("a log");
            let read: Vec<LogEntry> = log.entries().collect::<FsResult<_>>().expect("whole");
            let told = |e: &LogEntry| (e.at, e.sectors, e.flags, e.mark.clone());
            assert!(read.iter().map(told).eq(sample().iter().map(told)));
            let pattern = Slice::pattern(1, 0, 8192).to_vec();
            let (half, len) = log.replay(Until::Mark("half way")).expect("there");
            assert_eq!((byte(&half, 4096), byte(&half, 8192)), (pattern[0], pattern[4096]));
            assert_eq!(len, 24 * 512);
            let (end, _) = log.replay(Until::End).expect("whole");
            assert_eq!((byte(&end, 4096), byte(&end, 8192)), (0, 7));
            let (four, _) = log.replay(Until::Entry(4)).expect("there");
            assert_eq!((byte(&four, 4096), byte(&four, 8192)), (pattern[0], 7));
            assert!(log.replay(Until::Entry(6)).is_ok() && log.replay(Until::Entry(7)).is_err());
        }
    }

    #[test]
    fn a_log_that_is_cut_anywhere_is_one_clear_error() {
        let whole = written(512).0;
        for len in 0..whole.len() {
            let part = Bytes(whole[..len].to_vec());
            let e = WriteLog::open(&part).and_then(|log| log.replay(Until::End)).err();
            let e = e.expect("an error").to_string();
            assert!(e.starts_with("EUCLEAN: dm-log-writes log at byte"), "{len}: {e}");
        }
    }

    #[test]
    fn a_log_that_is_shorter_than_one_of_its_sectors_is_one_clear_error() {
        let whole = written(4096).0;
        for len in [512, 513, 1024, 4095] {
            let part = Bytes(whole[..len].to_vec());
            let e = WriteLog::open(&part).err().expect("an error").to_string();
            assert!(e.contains(&format!("length is {len:#x}, expected 4096 bytes")), "{e}");
        }
    }

    #[test]
    fn fields_that_cannot_be_are_named_with_their_entry() {
        let cases: [(usize, &[u8], &str); 7] = [
            (0, &[0], "magic is"),
            (8, &[2], "version is 0x2, expected 1"),
            (24, &[0, 3], "sectorsize is 0x300"),
            (512 + 16, &[0x40], "flags is 0x40, expected known flags in entry 0"),
            (512 + 24, &[0, 2], "data_len is 0x200, expected at most 480 (entry 0)"),
            (512 + 7, &[0xFF], "sector is"),
            (512 + 8, &[0, 0, 1], "nr_sectors is"),
        ];
        for (at, bytes, said) in cases {
            let mut log = written(512).0;
            log[at..at + bytes.len()].copy_from_slice(bytes);
            let log = Bytes(log);
            let e = WriteLog::open(&log).and_then(|log| log.replay(Until::End)).err();
            let e = e.expect("an error").to_string();
            assert!(e.contains(said), "{e} does not hold {said}");
        }
    }

    #[test]
    fn what_no_device_can_do_is_not_written() {
        let odd = LogEntry::write(Sector(1), vec![Slice::zero(512)], LogFlags::default());
        let long = LogEntry::mark(&"x".repeat(481));
        for (sector_bytes, entry) in [(4096, odd), (512, long)] {
            let e = write_log(&mut Vec::new(), sector_bytes, &[entry]).expect_err("refused");
            assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
        }
        assert!(write_log(&mut Vec::new(), 1000, &[]).is_err());
    }
}
