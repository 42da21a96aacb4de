//! Power cuts of a drive that is in use: what one can leave is kept at an instant, and later the
//! drive is made to hold one of these states.
//!
//! Picture:    freeze -> [`CrashView`] kept; requests go on as before -> thaw: a state by seed ->
//!             the drive holds that, and nothing that was written since.
//! Invariants: 1. the choice is a function of the view and the seed;
//!             2. every choice is one that [`CrashView::is_legal`] permits.

use wp_base::rng::Rng;
use wp_base::{SECTOR_BYTES, Sector, Time, Zone};
use wp_block::{CrashView, DeviceModel, LossEffect, LossUnit, LossWhy, ZoneCut, ZoneOrder};
use wp_crash::{Contract, History, Tape};
use wp_medium::write_log::LogEntry;
use wp_medium::{Medium, Slice};

use super::{Drive, OnThaw, Store};

/// What a power cut may take.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Loss {
    /// What this drive has not made durable by then: its model's own account.
    #[default]
    Model,
    /// What drives of its kind promise nothing about: all that no flush and no forced write has
    /// covered, however long ago it was written.
    Contract,
}

impl Loss {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Loss::Model => "model",
            Loss::Contract => "contract",
        }
    }

    /// By its name.
    pub fn find(name: &str) -> Option<Loss> {
        [Loss::Model, Loss::Contract].into_iter().find(|l| l.name() == name)
    }
}

/// When the power goes by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// At this virtual time.
    Time(Time),
    /// At the event (submission or answer) of this number.
    Events(u64),
    /// When the request of this number that changes something is submitted; it is lost.
    Changes(u64),
}

/// How much of the unpersisted writes a thaw keeps.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Keep {
    /// By seed, between nothing and all; a choice that no power failure could leave is corrected.
    #[default]
    Some,
    /// All of it.
    All,
    /// None of it.
    None,
}

/// The drive's power.
#[derive(Default)]
pub(super) struct Freezer {
    /// What a cut may take.
    pub loss: Loss,
    /// When it goes by itself.
    pub trigger: Option<Trigger>,
    /// What the cut can leave, once it is gone.
    frozen: Option<Frozen>,
}

/// A drive's power cut.
struct Frozen {
    view: CrashView,
    at: Time,
    events: u64,
    changes: u64,
}

/// What a freeze has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Cut {
    /// When the power went, in nanoseconds of the drive's time.
    pub at_ns: u64,
    /// Submissions and answers before it.
    pub events: u64,
    /// Requests before it that change something.
    pub changes: u64,
    /// What may be missing: units that are kept or lost as one.
    pub in_doubt: usize,
}

/// What a thaw has made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Thawed {
    /// The cut.
    pub cut: Cut,
    /// Number of unpersisted units that were kept.
    pub kept: usize,
    /// Sectors that differ from what the client last saw.
    pub changed_sectors: u64,
    /// Zones whose write pointer went back.
    pub zones_back: usize,
}

/// Why a drive cannot be frozen or thawed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PowerError {
    /// It is a plain image file: it promises nothing, so there is no state to choose.
    NoModel,
    /// It is not frozen.
    NotFrozen,
    /// It is frozen already.
    Frozen,
    /// Requests are not answered yet.
    Busy(usize),
}

impl std::fmt::Display for PowerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PowerError::NoModel => {
                write!(f, "an image file has no loss contract; serve a device with --load FILE")
            }
            PowerError::NotFrozen => write!(f, "the drive is not frozen"),
            PowerError::Frozen => write!(f, "the drive is frozen already; thaw it first"),
            PowerError::Busy(n) => write!(f, "{n} requests are in flight; unmount first"),
        }
    }
}

impl std::error::Error for PowerError {}

impl Drive {
    /// Fails the power now. What a client does afterwards works as before, and is discarded by the
    /// thaw. Errors: the drive is frozen already, or has no model.
    pub fn freeze_now(&mut self, now: Time) -> Result<Cut, PowerError> {
        self.run_until(now);
        if !self.is_modelled() {
            return Err(PowerError::NoModel);
        }
        if self.freezer.frozen.is_some() {
            return Err(PowerError::Frozen);
        }
        self.freeze();
        self.cut().ok_or(PowerError::NotFrozen)
    }

    /// Has the power go by itself later, or not any more. Errors: as [`Drive::freeze_now`].
    pub fn freeze_at(&mut self, trigger: Option<Trigger>) -> Result<(), PowerError> {
        if !self.is_modelled() {
            return Err(PowerError::NoModel);
        }
        if trigger.is_some() && self.freezer.frozen.is_some() {
            return Err(PowerError::Frozen);
        }
        self.freezer.trigger = trigger;
        Ok(())
    }

    /// The cut, if the power is gone.
    pub fn cut(&self) -> Option<Cut> {
        self.freezer.frozen.as_ref().map(|f| Cut {
            at_ns: f.at.0,
            events: f.events,
            changes: f.changes,
            in_doubt: f.view.loss.len(),
        })
    }

    /// Has every thaw tell what it has left.
    pub fn on_thaw(&mut self, tell: OnThaw) {
        self.on_thaw = Some(tell);
    }

    /// What thawing with these would leave: contents and zones. Errors: it is not frozen.
    pub fn state(&self, seed: u64, keep: Keep) -> Result<(Medium, Vec<Zone>), PowerError> {
        let frozen = self.freezer.frozen.as_ref().ok_or(PowerError::NotFrozen)?;
        let kept = choose(&frozen.view, seed, keep);
        Ok(left(&frozen.view, &kept))
    }

    /// Gives the drive its power back: it holds what the cut has left, one of the states that are
    /// possible, by seed. Takes no time of the client's.
    ///
    /// Errors: it is not frozen, or requests are not answered yet: then nothing has changed.
    pub fn thaw(&mut self, now: Time, seed: u64, keep: Keep) -> Result<Thawed, PowerError> {
        self.run_until(now);
        let cut = self.cut().ok_or(PowerError::NotFrozen)?;
        if self.unanswered() > 0 {
            return Err(PowerError::Busy(self.unanswered()));
        }
        let Some(frozen) = self.freezer.frozen.take() else { return Err(PowerError::NotFrozen) };
        let kept = choose(&frozen.view, seed, keep);
        let (medium, zones) = left(&frozen.view, &kept);
        let (changed_sectors, zones_back) = self.restore(&medium, &zones);
        self.freezer.trigger = None;
        self.arm();
        self.mark("thaw");
        if let Some(tell) = &mut self.on_thaw {
            tell(&medium, &zones);
        }
        let kept = kept.iter().filter(|k| **k).count();
        Ok(Thawed { cut, kept, changed_sectors, zones_back })
    }

    /// A note in the log of writes, behind all that has happened by the time it was told last.
    pub fn mark(&mut self, text: &str) {
        if let Some(written) = &mut self.written {
            written.entries.push(LogEntry::mark(text));
        }
    }

    /// Begins a tape, if thaws go by one: what is there now is durable.
    pub(super) fn arm(&mut self) {
        let loss = self.freezer.loss;
        if let Store::Model(m) = &mut self.store
            && loss == Loss::Contract
        {
            m.recorder.arm(m.device.medium(), false);
            m.recorder.note_zones(&m.device);
        }
    }

    /// Keeps what a cut now can leave.
    pub(super) fn freeze(&mut self) {
        self.freezer.trigger = None;
        let Store::Model(m) = &mut self.store else { return };
        if self.freezer.frozen.is_some() {
            return;
        }
        let view = match self.freezer.loss {
            Loss::Model => m.device.crash_view(Time(self.now.0.saturating_add(m.ahead))),
            Loss::Contract => permitted(&m.recorder.take(), self.limits.volatile_cache, {
                self.limits.physical_bytes.max(self.limits.logical_bytes)
            }),
        };
        let atomic = self.limits.physical_bytes.max(self.limits.logical_bytes);
        let limits = self.limits;
        let parts = |u: &LossUnit| match limits.keeps_whole(u.at, u.sectors()) {
            true => vec![u.clone()],
            false => split(u, atomic),
        };
        let view = CrashView { loss: view.loss.iter().flat_map(parts).collect(), ..view };
        let (events, changes) = (self.counts.events, self.counts.changes());
        self.freezer.frozen = Some(Frozen { view, at: self.now, events, changes });
        self.mark("freeze");
    }
}

/// What the contract permits at the end of a tape, as a device would tell it.
fn permitted(tape: &Tape, volatile: bool, atomic: u32) -> CrashView {
    let contract = Contract { volatile, atomic, ..Contract::HONEST };
    let history = History::permitted(tape, &contract);
    let Some(frame) = history.frames.last() else {
        return CrashView { medium: tape.base.clone(), loss: Vec::new(), zones: None };
    };
    let unit = |n: &u32| {
        let u = &history.units[*n as usize];
        LossUnit {
            at: u.at,
            data: u.data.clone(),
            acked: false,
            why: LossWhy::InBuffer,
            epoch: 0,
            effect: u.effect,
            seq: u.request,
        }
    };
    let zones = history.zones.as_ref().zip(frame.zones.as_ref());
    CrashView {
        medium: frame.base.clone(),
        loss: frame.live.iter().map(unit).collect(),
        zones: zones.map(|(space, table)| ZoneCut {
            limits: space.limits,
            table: table.clone(),
            order: space.order,
        }),
    }
}

/// A unit in units of what cannot tear.
fn split(unit: &LossUnit, atomic: u32) -> Vec<LossUnit> {
    let atom = u64::from(atomic.max(512)) / SECTOR_BYTES;
    if unit.effect != LossEffect::Data || unit.sectors() <= atom {
        return vec![unit.clone()];
    }
    let mut out: Vec<LossUnit> = Vec::new();
    let mut sector = unit.at.0;
    for slice in &unit.data {
        let mut done = 0u32;
        while done < slice.len() {
            let room = (atom - sector % atom) * SECTOR_BYTES;
            let n = room.min(u64::from(slice.len() - done)) as u32;
            let part: Slice = slice.sub(done, n);
            match out.last_mut().filter(|_| !sector.is_multiple_of(atom)) {
                Some(last) => last.data.push(part),
                None => {
                    out.push(LossUnit { at: Sector(sector), data: vec![part], ..unit.clone() });
                }
            }
            sector += u64::from(n) / SECTOR_BYTES;
            done += n;
        }
    }
    out
}

/// Which units are kept.
fn choose(view: &CrashView, seed: u64, keep: Keep) -> Vec<bool> {
    let mut kept: Vec<bool> = match keep {
        Keep::All => vec![true; view.loss.len()],
        Keep::None => vec![false; view.loss.len()],
        Keep::Some => {
            let mut rng = Rng::stream(seed, "power failure of a served drive");
            // Even odds for every unit would hardly ever leave nearly all or nearly none.
            let odds = rng.below(17);
            view.loss.iter().map(|_| rng.below(16) < odds).collect()
        }
    };
    mend(view, &mut kept);
    debug_assert!(view.is_legal(|i| kept[i]));
    kept
}

/// Makes a choice one that a cut can leave: what an epoch presupposes is kept, what a zone cannot
/// keep is lost.
fn mend(view: &CrashView, kept: &mut [bool]) {
    let last = view.loss.iter().zip(&*kept).filter(|(_, k)| **k).map(|(u, _)| u.epoch).max();
    for (unit, k) in view.loss.iter().zip(kept.iter_mut()) {
        *k |= last.is_some_and(|last| unit.epoch < last);
    }
    let Some(cut) = view.zones.as_ref().filter(|z| z.order == ZoneOrder::Prefix) else { return };
    let mut cut_off: Vec<u32> = Vec::new();
    for (unit, k) in view.loss.iter().zip(kept.iter_mut()) {
        let zone = cut.limits.zone_of(unit.at);
        if !cut.limits.is_sequential(unit.at) {
            continue;
        }
        *k &= !cut_off.contains(&zone);
        if !*k {
            cut_off.push(zone);
        }
    }
}

/// The image and the zones with these units kept.
fn left(view: &CrashView, kept: &[bool]) -> (Medium, Vec<Zone>) {
    let mut medium = view.medium.clone();
    for (unit, _) in view.loss.iter().zip(kept).filter(|(_, k)| **k) {
        unit.apply(&mut medium);
    }
    (medium, view.zones_of(|i| kept[i]))
}

#[cfg(test)]
mod tests;
