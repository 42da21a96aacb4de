//! Commands in the device with what they waited for at its front, and one track per die.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::Time;
use wp_base::event::{DeviceWork, Op, Work, rwbs};

use super::flows::Sync;
use super::{COMMANDS, DEVICE, DIES, END, LANES, Lanes, Writer, number, text};
use crate::commands::{Command, Inside};

/// Flows through a piece of work, and from when on each has gone through its command.
type Through = BTreeMap<u64, Time>;

impl Writer {
    pub(super) fn device(
        &mut self,
        inside: &Inside,
        caused: &[Vec<u64>],
        syncs: &[Sync<'_>],
        last: Time,
    ) {
        self.group(COMMANDS, "commands", DEVICE);
        self.group(DIES, "flash", DEVICE);
        let mut lanes = Lanes::new(COMMANDS, "command");
        for c in &inside.commands {
            let to = c.ended.map_or(last, |m| m.at);
            let track = lanes.take(self, c.taken.at, to);
            let flows = c.request.map_or(&[][..], |r| &caused[r]);
            self.command(inside, c, (track, to), flows);
        }
        let through = through(inside, caused, syncs);
        let mut dies: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
        for (i, w) in inside.works.iter().enumerate() {
            if let Some(d) = w.die {
                dies.entry((d.channel, d.die)).or_default().push(i);
            }
        }
        for (rank, ((channel, die), mut works)) in (0..).zip(dies) {
            let track = DIES * LANES + u64::from(die);
            self.child(track, &format!("channel {channel} die {die}"), DIES, rank);
            works.sort_by_key(|&i| (inside.works[i].from, inside.works[i].to));
            for i in works {
                self.die(&inside.works[i], track, &through[i]);
            }
        }
    }

    fn command(&mut self, inside: &Inside, c: &Command, (track, to): (u64, Time), flows: &[u64]) {
        let name = match c.op {
            Op::Flush => "flush".to_owned(),
            Op::Zone(op) => op.name().to_owned(),
            op => format!("{} +{}", rwbs(op, c.flags), c.sectors),
        };
        let event = self.begin(c.taken.at, track, name);
        event.debug_annotations = vec![
            number("command", c.id),
            number("request", c.request.map_or(0, |r| r as u64 + 1)),
            number("sector", c.at.0),
            number("sectors", u64::from(c.sectors)),
        ];
        event.flow_ids = flows.to_vec();
        let mut within: Vec<&DeviceWork> =
            c.works.iter().map(|&w| &inside.works[w]).filter(|w| w.die.is_none()).collect();
        within.sort_by_key(|w| (w.from, w.to));
        let mut free = c.taken.at;
        for w in within {
            // What a command that has not ended was promised may lie behind the trace.
            let (from, until) = (w.from.max(free).min(to), w.to.min(to));
            if until < from || (until == from && w.from < w.to) {
                continue;
            }
            let ready = w.ready.max(free);
            if ready < from {
                let what = if w.what == Work::Decode { "wait for controller" } else { "wait" };
                self.begin(ready, track, what);
                self.event(from, track, END);
            }
            free = until;
            let event = self.begin(from, track, w.what.name());
            if w.bytes > 0 {
                event.debug_annotations = vec![number("bytes", w.bytes)];
            }
            self.event(until, track, END);
        }
        self.event(to, track, END);
    }

    fn die(&mut self, w: &DeviceWork, track: u64, through: &Through) {
        let gc = if w.gc { "gc " } else { "" };
        let event = self.begin(w.from, track, format!("{gc}{}", w.what.name()));
        // Where work began before a command asked for it, the flow comes to its end.
        let (now, later): (Vec<_>, Vec<_>) = through.iter().partition(|(_, at)| **at <= w.from);
        event.flow_ids = now.into_iter().map(|(f, _)| *f).collect();
        event.debug_annotations = vec![
            number("bytes", w.bytes),
            number("waited ns", w.from.since(w.ready).0),
            text("for", &names(&w.commands)),
        ];
        let parts = match w.what {
            // Several rows of pages alternate between cells and bus: shown as one.
            Work::Read if w.from + w.cells + w.bus <= w.to => {
                let moved = w.to.before(w.bus);
                vec![("cells", w.from, w.from + w.cells), ("channel", moved, w.to)]
            }
            Work::Program => {
                let moved = w.from + w.bus;
                vec![("channel", w.from, moved), ("cells", moved, w.to)]
            }
            _ => Vec::new(),
        };
        for (name, from, to) in parts {
            self.begin(from, track, name);
            self.event(to, track, END);
        }
        let end = self.event(w.to, track, END);
        end.flow_ids = later.into_iter().map(|(f, _)| *f).collect();
    }
}

fn names(commands: &[u64]) -> String {
    if commands.is_empty() {
        return "background".to_owned();
    }
    let all: Vec<String> = commands.iter().map(|id| format!("command {id}")).collect();
    all.join(", ")
}

/// Which flows go through each piece of work: those of the commands that waited for it, and of
/// those that waited for what it delayed; if the call still waited.
fn through(inside: &Inside, caused: &[Vec<u64>], syncs: &[Sync<'_>]) -> Vec<Through> {
    let mut out: Vec<Through> = vec![Through::new(); inside.works.len()];
    let ends: BTreeMap<u64, Time> = syncs.iter().map(|s| (s.flow(), s.to)).collect();
    for c in &inside.commands {
        let flows = c.request.map_or(&[][..], |r| &caused[r]);
        if flows.is_empty() {
            continue;
        }
        let taken = c.taken.at;
        let mut works: BTreeSet<usize> = BTreeSet::new();
        for &i in &c.works {
            works.insert(i);
            works.extend(inside.delayers(&inside.works[i], taken));
            works.extend(inside.enders(&inside.works[i]));
        }
        for i in works {
            let w = &inside.works[i];
            for &flow in flows.iter().filter(|f| ends.get(f).is_some_and(|end| w.to <= *end)) {
                let since = out[i].entry(flow).or_insert(taken);
                *since = taken.min(*since);
            }
        }
    }
    out
}
