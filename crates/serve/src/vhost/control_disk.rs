//! The disk through which a guest says when its power goes and comes back.

use std::path::Path;

use wp_base::{Sector, Time};

use super::blk::{self, Said, Wish};
use super::machine::{Machine, Target};
use super::ring::Chain;
use crate::control::{self, Speaker};
use crate::drive::What;

/// Where the control disk has the first drive's status.
const STATUS: Sector = Sector(8);
/// Sectors of the control disk.
const CONTROL_SECTORS: u64 = 2048;

impl Machine {
    /// Puts a control disk of the guest's behind a socket. Errors: the host's.
    pub fn add_control(&mut self, socket: &Path) -> std::io::Result<()> {
        let limits = wp_block::Limits {
            queue_depth: 128,
            max_sectors: 128,
            max_segments: 128,
            ..wp_block::Limits::plain(CONTROL_SECTORS)
        };
        self.add_device(Target::Control { answer: Vec::new() }, &limits, socket, 1)
    }

    /// A request of the control disk.
    pub(super) fn control_disk(
        &mut self,
        n: usize,
        ring: usize,
        chain: &Chain,
        wish: Wish,
        data: &[wp_medium::Slice],
        now: Time,
    ) {
        match wish {
            Wish::Drive { what: What::Write, .. } => {
                let bytes = wp_medium::Slice::concat(data);
                let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
                let line =
                    String::from_utf8_lossy(&bytes[..end.min(control::MAX_LINE)]).into_owned();
                let (mut text, _) = self.control(now, line.trim(), Speaker::Guest);
                text.push('\n');
                if let Target::Control { answer } = &mut self.devices[n].target {
                    *answer = text.into_bytes();
                }
                self.say(n, ring, chain, Said::Ok, &[], now);
            }
            Wish::Drive { what: What::Read, at, .. } => {
                let mut text = match (&self.devices[n].target, at) {
                    (Target::Control { answer }, Sector(0)) => answer.clone(),
                    (_, STATUS) => self.control(now, "status", Speaker::Guest).0.into_bytes(),
                    _ => Vec::new(),
                };
                text.resize(blk::room(chain), 0);
                self.say(n, ring, chain, Said::Ok, &text, now);
            }
            Wish::Drive { what: What::Flush, .. } => self.say(n, ring, chain, Said::Ok, &[], now),
            Wish::Id => self.say(n, ring, chain, Said::Ok, &blk::id("control"), now),
            _ => self.say(n, ring, chain, Said::Unsupported, &[], now),
        }
    }
}
