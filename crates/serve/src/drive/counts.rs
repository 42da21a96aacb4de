//! How often a drive was asked for what.

use wp_base::event::ZoneOp;

use super::What;

/// What was asked of a drive so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes, appends among them.
    pub writes: u64,
    /// Writes among them that are durable when they are answered (FUA).
    pub forced_writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards and writes of zeroes.
    pub discards: u64,
    /// Commands for zones.
    pub zone_commands: u64,
    /// Submissions and answers.
    pub events: u64,
}

impl Counts {
    /// Requests that change something, and flushes: what a freeze counts by.
    pub fn changes(&self) -> u64 {
        self.writes + self.discards + self.zone_commands
    }

    pub(super) fn count(&mut self, what: What, fua: bool) {
        self.forced_writes += u64::from(fua && what == What::Write);
        match what {
            What::Read => self.reads += 1,
            What::Write | What::Zone(ZoneOp::Append) => self.writes += 1,
            What::Flush => self.flushes += 1,
            What::Discard | What::WriteZeroes { .. } => self.discards += 1,
            What::Zone(_) => self.zone_commands += 1,
        }
    }
}
