//! Bios from `Q` to their end, and requests from `G` (a flush: from `D`) to theirs.

use wp_base::Time;
use wp_base::event::{Flags, Record, rwbs};

use super::flows::Caused;
use super::{BIOS, END, Lanes, REQUESTS, SYSTEM, Writer, number, text};
use crate::requests::Request;

/// As the device sees it.
pub(super) fn name(r: &Request) -> String {
    if r.is_flush() {
        "flush".to_owned()
    } else {
        format!("{} +{}", rwbs(r.op, r.flags), r.sectors)
    }
}

impl Writer {
    pub(super) fn blocks(
        &mut self,
        records: &[Record],
        requests: &[Request],
        caused: &Caused,
        last: Time,
    ) {
        self.group(BIOS, "bios", SYSTEM);
        self.group(REQUESTS, "requests", SYSTEM);
        // Of a request that was merged away nothing is left.
        let there = |r: &Request| r.start().is_some() && (r.is_flush() || !r.bios.is_empty());
        let end = |r: &Request| r.end().map_or(last, |m| m.at);

        let mut bios: Vec<(usize, usize)> = Vec::new();
        for (i, r) in requests.iter().enumerate() {
            bios.extend((0..r.bios.len()).map(|n| (i, n)));
        }
        bios.sort_by_key(|&(i, n)| requests[i].bios[n].queued.index);
        let mut lanes = Lanes::new(BIOS, "bio");
        for (i, n) in bios {
            let (r, bio) = (&requests[i], &requests[i].bios[n]);
            let track = lanes.take(self, bio.queued.at, end(r));
            let name = format!("{} +{}", rwbs(r.op, bio.flags), bio.sectors);
            let event = self.begin(bio.queued.at, track, name);
            event.debug_annotations = vec![
                number("sector", bio.at.0),
                number("sectors", u64::from(bio.sectors)),
                number("request", i as u64 + 1),
                text("task", &records[bio.queued.index].task),
            ];
            event.flow_ids.clone_from(&caused.bios[i][n]);
            self.event(end(r), track, END);
        }

        let mut order: Vec<usize> = (0..requests.len()).filter(|&i| there(&requests[i])).collect();
        let from = |i: usize| requests[i].got.or(requests[i].start()).expect("it is there");
        order.sort_by_key(|&i| from(i).index);
        let mut lanes = Lanes::new(REQUESTS, "request");
        for i in order {
            let (r, from) = (&requests[i], from(i).at);
            let track = lanes.take(self, from, end(r));
            let event = self.begin(from, track, name(r));
            event.debug_annotations = vec![
                number("request", i as u64 + 1),
                number("sector", r.at.0),
                number("sectors", u64::from(r.sectors)),
                number("bios", r.bios.len() as u64),
                text("issuer", r.issued.map_or("", |m| &*records[m.index].task)),
            ];
            event.flow_ids.clone_from(&caused.requests[i]);
            if let Some(issued) = r.issued.filter(|_| !r.is_flush()) {
                let before = r.flags.has(Flags::PREFLUSH);
                self.begin(from, track, if before { "flush before" } else { "in queue" });
                self.event(issued.at, track, END);
                let done = r.done.map_or(end(r), |m| m.at);
                self.begin(issued.at, track, "in device");
                self.event(done, track, END);
                if done < end(r) {
                    self.begin(done, track, "flush behind");
                    self.event(end(r), track, END);
                }
            }
            self.event(end(r), track, END);
        }
    }
}
