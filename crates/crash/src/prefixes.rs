//! What a replay of a log can leave: all that had completed by some moment, and nothing else.

use std::collections::BTreeMap;

use wp_base::SECTOR_BYTES;
use wp_base::event::Op;
use wp_medium::Medium;

use crate::history::{Frame, History};
use crate::tape::{Entry, Tape};

impl History {
    /// A frame without units behind each request that changed something, in the order in which they
    /// completed: the states that dm-log-writes' `replay-log` reaches. Zones are as at the
    /// beginning: such a log knows nothing of them.
    pub fn completed_prefixes(tape: &Tape) -> History {
        let frame = |pos, base: &Medium| Frame {
            pos,
            base: base.clone(),
            live: Vec::new(),
            new: 0,
            epochs: false,
            zones: tape.zones.as_ref().map(|z| z.table.clone()),
        };
        let mut base = tape.base.clone();
        let mut frames = vec![frame(0, &base)];
        let mut sent: BTreeMap<u64, &Entry> = BTreeMap::new();
        for (pos, (_, entry)) in tape.entries.iter().enumerate() {
            let id = match entry {
                Entry::Submit { id, .. } => {
                    sent.insert(*id, entry);
                    continue;
                }
                Entry::Complete { id, ok: true } => id,
                _ => continue,
            };
            let Some(Entry::Submit { op, at, sectors, data, .. }) = sent.remove(id) else {
                continue;
            };
            if *op == Op::Discard {
                base.discard(*at, u64::from(*sectors));
            } else if op.writes() {
                let mut at = *at;
                for slice in data {
                    base.write(at, slice);
                    at = at.advance(u64::from(slice.len()) / SECTOR_BYTES);
                }
            } else {
                continue;
            }
            frames.push(frame(pos, &base));
        }
        History {
            units: Vec::new(),
            frames,
            end: tape.entries.len(),
            zones: None,
            first_gone: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use wp_base::event::Flags;
    use wp_base::{Sector, Time};
    use wp_medium::Slice;

    use super::*;

    #[test]
    fn each_completed_write_makes_one_state_and_one_in_flight_makes_none() {
        let submit = |id, byte: u8| Entry::Submit {
            id,
            op: Op::Write,
            flags: Flags::NONE,
            at: Sector(8 * id),
            sectors: 8,
            data: vec![Slice::from_bytes(&[byte; 4096])],
        };
        let done = |id| Entry::Complete { id, ok: true };
        let entries = [submit(0, 1), submit(1, 2), done(1), done(0), submit(2, 3)];
        let tape = Tape::of(entries.map(|e| (Time(0), e)).to_vec());
        let history = History::completed_prefixes(&tape);
        assert_eq!(history.frames.iter().map(|f| f.pos).collect::<Vec<_>>(), [0, 2, 3]);
        let first = |frame: usize, at| {
            history.frames[frame].base.read(Sector(at), 1).iter().map(|s| s.to_vec()[0]).next()
        };
        assert_eq!((first(1, 0), first(1, 8)), (Some(0), Some(2)), "the second one, first");
        assert_eq!((first(2, 0), first(2, 8)), (Some(1), Some(2)));
    }
}
