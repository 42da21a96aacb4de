//! The tape: what a device was asked and answered, and what a program was told, in one order.
//!
//! Picture:    queue -> [`Taped`] -> device; beside it the program's calls -> [`Recorder`].
//! Invariants: 1. the device behaves exactly as without the tape;
//!             2. positions on the tape are the only clock of crash exploration: what is earlier on
//!                it happened earlier.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::event::{Flags, Op, ZoneOp};
use wp_base::{Sector, Time, Zone};
use wp_block::{Admit, CrashView, DevRequest, DeviceModel, Effects, Limits, powered_up};
use wp_medium::{Medium, Slice};

use crate::zoned::TapeZones;

/// One entry.
#[derive(Clone, Debug)]
pub enum Entry {
    /// The device accepted a request.
    Submit {
        /// Its number, unique on the tape.
        id: u64,
        /// What.
        op: Op,
        /// How.
        flags: Flags,
        /// Where; of a zone append where it will be.
        at: Sector,
        /// Length in sectors.
        sectors: u32,
        /// What is written.
        data: Vec<Slice>,
    },
    /// It completed it.
    Complete {
        /// Its number.
        id: u64,
        /// Well?
        ok: bool,
    },
    /// What the modelled device could be left with changed; asked for with
    /// [`Recorder::arm`].
    Model(Rc<CrashView>),
    /// Operation number `n` of the program was called.
    Begin(u32),
    /// It returned.
    End(u32),
}

/// A device that keeps writes whole: its number, and [`Limits::atomic_bytes`] and
/// [`Limits::atomic_boundary_bytes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Untorn {
    /// Number.
    pub device: u64,
    /// The longest such write.
    pub bytes: u32,
    /// What none of them crosses.
    pub boundary: u32,
}

/// What happened since the tape was armed.
#[derive(Clone, Debug, Default)]
pub struct Tape {
    /// Contents when it was armed, all of them durable.
    pub base: Medium,
    /// Its zones then, if it has any.
    pub zones: Option<TapeZones>,
    /// What happened, with its time.
    pub entries: Vec<(Time, Entry)>,
    armed: bool,
    model: bool,
    /// Numbers of devices, of several, that have no volatile cache: what they have completed is
    /// durable.
    pub durable: Vec<u64>,
    /// Numbers of devices that honour barrier writes ([`Limits::barrier_writes`]).
    pub ordered: Vec<u64>,
    /// Numbers of those of them of which every write is one, and whole
    /// ([`Limits::ordered_writes`]).
    pub whole: Vec<u64>,
    /// Devices that keep writes whole up to a size ([`Limits::atomic_bytes`]).
    pub untorn: Vec<Untorn>,
    /// Is nothing known of its requests but the order in which they completed, as of a log of them?
    /// Then none is in flight while another one completes.
    pub only_completions: bool,
    /// Units of the last model view: (sequence, sector).
    last: Vec<(u64, u64)>,
    last_zones: Option<Rc<Vec<Zone>>>,
}

impl Tape {
    /// A tape with these entries, over a device that held nothing.
    pub fn of(entries: Vec<(Time, Entry)>) -> Tape {
        Tape { entries, ..Tape::default() }
    }
}

/// Where a tape is written from. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Rc<RefCell<Tape>>);

impl Recorder {
    /// Begins: what is before is forgotten and taken as durable. With `model` what the device model
    /// could be left with is taken down at each of its events.
    pub fn arm(&self, base: Medium, model: bool) {
        *self.0.borrow_mut() = Tape { base, armed: true, model, ..Tape::default() };
    }

    /// Notes that the program's operation `n` is called, or has returned.
    pub fn operation(&self, now: Time, n: u32, ended: bool) {
        let mut tape = self.0.borrow_mut();
        if tape.armed {
            tape.entries.push((now, if ended { Entry::End(n) } else { Entry::Begin(n) }));
        }
    }

    /// Takes down the zones that the device begins with, once; it does so by itself at the first
    /// request, which may never come.
    pub fn note_zones(&self, device: &dyn DeviceModel) {
        let Some(limits) = device.limits().zones else { return };
        let mut tape = self.0.borrow_mut();
        if tape.armed && tape.zones.is_none() {
            let mut table = device.zones();
            powered_up(&mut table);
            tape.zones = Some(TapeZones { limits, table: Rc::new(table) });
        }
    }

    /// Notes that device `number` keeps epochs in order, or writes whole, if it does.
    fn note_promises(&self, number: u64, limits: &Limits) {
        let mut tape = self.0.borrow_mut();
        let (bytes, boundary) = (limits.atomic_bytes, limits.atomic_boundary_bytes);
        if tape.armed && bytes > 0 && tape.untorn.iter().all(|u| u.device != number) {
            tape.untorn.push(Untorn { device: number, bytes, boundary });
        }
        if tape.armed && limits.keeps_order() && !tape.ordered.contains(&number) {
            tape.ordered.push(number);
            if limits.ordered_writes {
                tape.whole.push(number);
            }
        }
    }

    /// Takes the tape out; nothing is recorded any more.
    pub fn take(&self) -> Tape {
        std::mem::take(&mut self.0.borrow_mut())
    }

    fn note(&self, now: Time, entry: Entry) {
        let mut tape = self.0.borrow_mut();
        if tape.armed {
            tape.entries.push((now, entry));
        }
    }

    fn armed(&self) -> (bool, bool) {
        let tape = self.0.borrow();
        (tape.armed, tape.model)
    }

    /// Takes down what the model could be left with, if that has changed.
    fn look(&self, now: Time, device: &dyn DeviceModel) {
        if self.armed() != (true, true) {
            return;
        }
        let view = device.crash_view(now);
        let units: Vec<(u64, u64)> = view.loss.iter().map(|u| (u.seq, u.at.0)).collect();
        let table = view.zones.as_ref().map(|z| z.table.clone());
        let mut tape = self.0.borrow_mut();
        if units != tape.last || table != tape.last_zones {
            tape.last = units;
            tape.last_zones = table;
            tape.entries.push((now, Entry::Model(Rc::new(view))));
        }
    }
}

/// A device with a tape.
pub struct Taped {
    inner: Box<dyn DeviceModel>,
    recorder: Recorder,
    number: u64,
    /// Requests on the tape that the device has: its name for each, and its number on the tape.
    flying: BTreeMap<u64, u64>,
    /// How many there were.
    count: u64,
}

/// Bits of a request's number that are the device's own.
const OWN_BITS: u32 = 56;

/// Number of the device, of several, that a request on the tape is of.
pub(crate) fn device_of(request: u64) -> u64 {
    request >> OWN_BITS
}

impl Taped {
    /// Puts a tape on `inner`; it is armed by [`Recorder::arm`].
    pub fn new(inner: Box<dyn DeviceModel>) -> (Taped, Recorder) {
        let recorder = Recorder::default();
        (Taped::beside(inner, &recorder, 0), recorder)
    }

    /// Has `inner` on the tape of the devices before it, `number` of them. Its sectors must lie
    /// behind theirs ([`Tape::base`] is of all).
    ///
    /// What the models could be left with is not taken down of several.
    pub fn beside(inner: Box<dyn DeviceModel>, recorder: &Recorder, number: u64) -> Taped {
        let (flying, count) = (BTreeMap::new(), 0);
        Taped { inner, recorder: recorder.clone(), number, flying, count }
    }

    /// Where a request will write: an append at the pointer that its zone has now.
    fn place_of(&self, rq: &DevRequest) -> Sector {
        match (rq.op, self.inner.limits().zones) {
            (Op::Zone(ZoneOp::Append), Some(limits)) => {
                let zones = self.inner.zones();
                zones.get(limits.zone_of(rq.at) as usize).map_or(rq.at, |z| z.wp)
            }
            _ => rq.at,
        }
    }

    fn completions(&mut self, now: Time, fx: &Effects, before: usize) {
        for done in &fx.done[before..] {
            // Reads are not on the tape, nor is what was sent before it was armed.
            if let Some(id) = self.flying.remove(&done.id) {
                self.recorder.note(now, Entry::Complete { id, ok: done.status.is_ok() });
            }
        }
        self.recorder.look(now, &*self.inner);
    }
}

impl DeviceModel for Taped {
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn submit(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
        self.recorder.note_zones(&*self.inner);
        self.recorder.note_promises(self.number, self.inner.limits());
        // A queue's names use all of their bits, and come again.
        let (name, id) = (rq.id, self.number << OWN_BITS | self.count);
        let entry = (self.recorder.armed().0 && rq.op != Op::Read).then(|| Entry::Submit {
            id,
            op: rq.op,
            flags: rq.flags,
            at: self.place_of(&rq),
            sectors: rq.sectors,
            data: rq.data.clone(),
        });
        let before = fx.done.len();
        let admit = self.inner.submit(now, rq, fx);
        if let (Admit::Accepted, Some(entry)) = (&admit, entry) {
            self.flying.insert(name, id);
            self.count += 1;
            self.recorder.note(now, entry);
        }
        self.completions(now, fx, before);
        admit
    }

    fn timer(&mut self, now: Time, token: u64, fx: &mut Effects) {
        let before = fx.done.len();
        self.inner.timer(now, token, fx);
        self.completions(now, fx, before);
    }

    fn crash_view(&self, now: Time) -> CrashView {
        self.inner.crash_view(now)
    }

    /// The copy has no tape: it is another history.
    fn fork(&self) -> Box<dyn DeviceModel> {
        self.inner.fork()
    }

    fn medium(&self) -> Medium {
        self.inner.medium()
    }

    fn zones(&self) -> Vec<Zone> {
        self.inner.zones()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }
}
