//! Requests put together again from block events: bios, merges, issue, completion, flushes.
//!
//! What a trace does not say is inferred as `blk-flush.c` works: one cache flush at a time; kernels
//! before 3.9 trace no completion of it, and it has ended when the request that it stood before is
//! issued, or when the request that it stood behind ends.

use wp_base::event::{BlockAction, Event, Flags, Op, Record};
use wp_base::{Sector, Time};

/// A time, and the index of the record that shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// When.
    pub at: Time,
    /// Index into the records.
    pub index: usize,
}

/// A bio of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bio {
    /// First sector.
    pub at: Sector,
    /// Sectors.
    pub sectors: u32,
    /// Flags at `Q`.
    pub flags: Flags,
    /// `Q`.
    pub queued: Moment,
    /// `M` or `F`, if it was merged.
    pub merged: Option<Moment>,
    /// `G` and `I` of the request that it was in, if that was merged into another without a word.
    pub was: Option<(Option<Moment>, Option<Moment>)>,
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Operation.
    pub op: Op,
    /// All flags of its bios at `Q`; for a flush command those of its `D`.
    pub flags: Flags,
    /// First sector.
    pub at: Sector,
    /// Sectors; 0 for flushes.
    pub sectors: u32,
    /// Its bios, in the order in which they came; none for a flush command of the queue itself.
    pub bios: Vec<Bio>,
    /// `G`.
    pub got: Option<Moment>,
    /// `I`.
    pub inserted: Option<Moment>,
    /// Last `D`.
    pub issued: Option<Moment>,
    /// `C` of its data; of a flush command its end, traced or inferred.
    pub done: Option<Moment>,
    /// The empty `C` at the end of a flush sequence.
    pub ended: Option<Moment>,
}

impl Request {
    /// Is this a command that empties the device's cache?
    pub fn is_flush(&self) -> bool {
        self.bios.is_empty() && self.sectors == 0
    }
    /// Does it go through the flush machine (a commit record, an empty flush)?
    pub fn is_sequence(&self) -> bool {
        !self.is_flush() && self.flags.any(Flags::PREFLUSH | Flags::FUA)
    }
    /// Is it durable when its data are complete: did the device itself do what FUA asks for? Where
    /// it cannot, the queue sends a flush behind the data, and the end comes later.
    pub fn is_forced(&self) -> bool {
        let at_once = |ended: Moment| self.done.is_some_and(|done| done.at == ended.at);
        self.flags.has(Flags::FUA) && self.ended.is_none_or(at_once)
    }
    /// When it entered: the first `Q`, or the `D` of a flush command.
    pub fn start(&self) -> Option<Moment> {
        self.bios.first().map(|b| b.queued).or(self.issued)
    }
    /// When its submitters knew that it was over.
    pub fn end(&self) -> Option<Moment> {
        self.ended.or(self.done)
    }
    fn end_sector(&self) -> u64 {
        self.at.0 + u64::from(self.sectors)
    }
}

/// The requests of a trace, in the order in which they began. Requests that began before the trace
/// are left out.
pub fn requests(records: &[Record]) -> Vec<Request> {
    let mut b = Builder { traced_flush_ends: traced_flush_ends(records), ..Builder::default() };
    for (index, r) in records.iter().enumerate() {
        if let Event::Block { action, op, flags, at, sectors, .. } = r.event {
            b.event(Moment { at: r.at, index }, action, Ev { op, flags, at, sectors });
        }
    }
    b.all
}

/// Does this kernel trace the end of a flush command? Then more empty completions stand at sector 0
/// than empty bios were queued.
fn traced_flush_ends(records: &[Record]) -> bool {
    let count = |wanted: BlockAction| {
        let empty = |r: &&Record| match r.event {
            Event::Block { action, at, sectors, .. } => {
                action == wanted && at == Sector(0) && sectors == 0
            }
            _ => false,
        };
        records.iter().filter(empty).count()
    };
    count(BlockAction::Complete) > count(BlockAction::Queue)
}

impl Bio {
    fn new(e: Ev, queued: Moment) -> Bio {
        let Ev { flags, at, sectors, .. } = e;
        Bio { at, sectors, flags, queued, merged: None, was: None }
    }
}

#[derive(Clone, Copy)]
struct Ev {
    op: Op,
    flags: Flags,
    at: Sector,
    sectors: u32,
}

#[derive(Default)]
struct Builder {
    all: Vec<Request>,
    /// Bios that are in no request yet.
    loose: Vec<(Op, Bio)>,
    /// Requests that are not over.
    open: Vec<usize>,
    traced_flush_ends: bool,
}

impl Builder {
    fn event(&mut self, now: Moment, action: BlockAction, e: Ev) {
        match action {
            BlockAction::Queue => {
                // The rest of a split bio is queued again.
                self.loose.retain(|(_, b)| b.at != e.at || b.sectors != e.sectors);
                self.loose.push((e.op, Bio::new(e, now)));
            }
            BlockAction::GetRequest => {
                let bio = self.take(e).unwrap_or(Bio::new(e, now));
                self.begin(e, vec![bio], Some(now));
            }
            BlockAction::BackMerge | BlockAction::FrontMerge => self.merge(now, action, e),
            BlockAction::Insert => {
                let found = self.find(e, |r| r.issued.is_none() && r.inserted.is_none());
                if let Some(i) = found {
                    self.all[i].inserted = Some(now);
                }
            }
            BlockAction::Issue if e.sectors == 0 => {
                self.flush_end(now);
                let i = self.begin(e, Vec::new(), None);
                self.all[i].issued = Some(now);
            }
            BlockAction::Issue => self.issue(now, e),
            BlockAction::Complete if e.sectors == 0 => self.empty_completion(now, e),
            BlockAction::Complete => {
                if let Some(i) = self.find(e, |r| r.issued.is_some() && r.done.is_none()) {
                    self.all[i].done = Some(now);
                    if !self.all[i].is_sequence() {
                        self.open.retain(|&o| o != i);
                    }
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, e: Ev, bios: Vec<Bio>, got: Option<Moment>) -> usize {
        let flags = bios.iter().fold(e.flags, |f, b| f | b.flags);
        let request = Request {
            op: e.op,
            flags,
            at: e.at,
            sectors: e.sectors,
            bios,
            got,
            inserted: None,
            issued: None,
            done: None,
            ended: None,
        };
        self.all.push(request);
        self.open.push(self.all.len() - 1);
        self.all.len() - 1
    }

    /// The loose bio that starts here, or as much of it as the event speaks of.
    fn take(&mut self, e: Ev) -> Option<Bio> {
        let fits = |(op, b): &(Op, Bio)| *op == e.op && b.at == e.at && b.sectors >= e.sectors;
        let i = self.loose.iter().position(fits)?;
        let (op, bio) = self.loose.remove(i);
        if bio.sectors > e.sectors {
            let at = bio.at.advance(u64::from(e.sectors));
            self.loose.push((op, Bio { at, sectors: bio.sectors - e.sectors, ..bio }));
        }
        Some(Bio { sectors: e.sectors, ..bio })
    }

    /// The last open request that starts here and satisfies `also`.
    fn find(&self, e: Ev, also: impl Fn(&Request) -> bool) -> Option<usize> {
        self.open.iter().rev().copied().find(|&i| {
            let r = &self.all[i];
            !r.is_flush() && r.op == e.op && r.at == e.at && also(r)
        })
    }

    fn merge(&mut self, now: Moment, action: BlockAction, e: Ev) {
        let Some(bio) = self.take(e) else { return };
        let end = e.at.0 + u64::from(e.sectors);
        let host = self.open.iter().rev().copied().find(|&i| {
            let r = &self.all[i];
            let touches = match action {
                BlockAction::BackMerge => r.end_sector() == e.at.0,
                _ => r.at.0 == end,
            };
            touches && r.op == e.op && r.issued.is_none() && !r.is_flush()
        });
        let Some(i) = host else { return };
        let r = &mut self.all[i];
        r.at = r.at.min(e.at);
        r.sectors += e.sectors;
        r.flags |= bio.flags;
        r.bios.push(Bio { merged: Some(now), ..bio });
    }

    fn issue(&mut self, now: Moment, e: Ev) {
        // Issued again after `R`, or for the first time.
        let Some(i) = self.find(e, |r| r.done.is_none()) else { return };
        let end = e.at.0 + u64::from(e.sectors);
        // Requests that were merged into it without a word.
        let inside: Vec<usize> = self
            .open
            .iter()
            .copied()
            .filter(|&o| {
                let r = &self.all[o];
                let within = r.at.0 >= self.all[i].end_sector() && r.end_sector() <= end;
                o != i && within && r.issued.is_none() && r.sectors > 0
            })
            .collect();
        for &o in &inside {
            let was = Some((self.all[o].got, self.all[o].inserted));
            let mut bios = std::mem::take(&mut self.all[o].bios);
            for bio in &mut bios {
                bio.was = bio.was.or(was);
            }
            self.all[i].bios.append(&mut bios);
            self.all[o].sectors = 0;
        }
        self.open.retain(|o| !inside.contains(o));
        let r = &mut self.all[i];
        r.sectors = e.sectors;
        r.issued = Some(now);
        if r.flags.has(Flags::PREFLUSH) {
            self.flush_end(now);
        }
    }

    /// The running flush command is over, if there is one.
    fn flush_end(&mut self, now: Moment) {
        if let Some(i) = self.open.iter().copied().find(|&i| self.all[i].is_flush()) {
            self.all[i].done = Some(now);
            self.open.retain(|&o| o != i);
        }
    }

    fn empty_completion(&mut self, now: Moment, e: Ev) {
        let running = self.open.iter().any(|&i| self.all[i].is_flush());
        if self.traced_flush_ends && running && e.at == Sector(0) {
            self.flush_end(now);
            return;
        }
        let ends = self.open.iter().copied().find(|&i| {
            let r = &self.all[i];
            r.is_sequence() && r.end_sector() == e.at.0 && (r.done.is_some() || r.sectors == 0)
        });
        let Some(i) = ends else { return };
        // With FUA the data's completion is the last step, and no flush has ended.
        if self.all[i].done.is_none_or(|done| done.at != now.at) {
            self.flush_end(now);
        }
        self.all[i].ended = Some(now);
        self.open.retain(|&o| o != i);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(text: &str) -> Vec<Record> {
        let mut out = Vec::new();
        for line in text.lines() {
            let f: Vec<&str> = line.split_whitespace().collect();
            let [at, letter, flags, sector, sectors, task] = f[..] else { continue };
            let action = match letter {
                "Q" => BlockAction::Queue,
                "G" => BlockAction::GetRequest,
                "M" => BlockAction::BackMerge,
                "I" => BlockAction::Insert,
                "D" => BlockAction::Issue,
                _ => BlockAction::Complete,
            };
            let flags = match flags {
                "FWFS" => Flags::PREFLUSH | Flags::FUA | Flags::SYNC,
                "FWS" => Flags::PREFLUSH | Flags::SYNC,
                _ => Flags::SYNC,
            };
            let sectors = sectors.parse().expect("a number");
            let op = if flags.has(Flags::PREFLUSH) && sectors == 0 { Op::Flush } else { Op::Write };
            let at_sector = Sector(sector.parse().expect("a number"));
            let event = Event::Block { action, op, flags, at: at_sector, sectors, extra: 0 };
            let at = Time(at.parse().expect("a number"));
            out.push(Record { at, task: task.into(), event });
        }
        out
    }

    #[test]
    fn a_merged_bio_belongs_to_the_request_that_took_it() {
        let t = trace(
            "1 Q WS 100 8 w\n1 G WS 100 8 w\n2 Q WS 108 8 w\n2 M WS 108 8 w\n3 I WS 100 16 w\n\
             4 D WS 100 16 w\n9 C WS 100 16 swapper",
        );
        let all = requests(&t);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].bios.len(), 2);
        assert_eq!(all[0].bios[1].merged, Some(Moment { at: Time(2), index: 3 }));
        assert_eq!(all[0].done, Some(Moment { at: Time(9), index: 6 }));
    }

    #[test]
    fn flushes_around_a_commit_record_end_where_old_kernels_show_it() {
        let t = trace(
            "1 Q FWFS 200 8 j\n1 G FWFS 200 8 j\n1 I FWFS 200 8 j\n1 D FWS 0 0 j\n\
             5 D WS 200 8 swapper\n7 C WS 200 8 swapper\n7 D FWS 0 0 swapper\n9 C WS 208 0 swapper",
        );
        let all = requests(&t);
        let times: Vec<(bool, u64, u64)> = all
            .iter()
            .map(|r| (r.is_flush(), r.issued.expect("D").at.0, r.done.expect("C").at.0))
            .collect();
        assert_eq!(times, [(false, 5, 7), (true, 1, 5), (true, 7, 9)]);
        assert_eq!(all[0].end().map(|m| m.at), Some(Time(9)));
    }
}
