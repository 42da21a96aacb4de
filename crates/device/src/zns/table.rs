//! The zones' states: which command is allowed when, and what it makes of a zone.
//!
//! ```text
//! EMPTY --write, append--> IMPLICIT OPEN --last sector--> FULL
//! EMPTY, CLOSED, IMPLICIT OPEN --open--> EXPLICIT OPEN
//! IMPLICIT OPEN, EXPLICIT OPEN --close--> CLOSED --write--> IMPLICIT OPEN
//! all but READ ONLY and OFFLINE --finish--> FULL, --reset--> EMPTY
//! ```
//!
//! Opening one more than may be open closes the implicitly opened zone that was opened first.
//!
//! Counts:  `open` zones are those implicitly or explicitly open, `active` ones those and the
//!          closed.
//! Source:  NVMe ZNS command set 1.1, 2.1.1 (states, resources) and 3.4.3 (management send);
//!          errors as `nvme_error_status()` translates them.

use std::rc::Rc;

use wp_base::{Sector, Zone, ZoneKind, ZoneLimits, ZoneState};
use wp_block::Status;

/// What a write finds and does besides moving the pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opened {
    /// The zone was open.
    Was,
    /// It was empty.
    FromEmpty,
    /// It was closed.
    FromClosed,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct ZoneTable {
    limits: ZoneLimits,
    zones: Rc<Vec<Zone>>,
    /// Implicitly opened zones, the first that was opened first.
    implicit: Vec<u32>,
    open: u32,
    active: u32,
    /// Zones closed because another was to be opened.
    pub(crate) closed_for_others: u64,
}

impl ZoneTable {
    /// All empty.
    pub(crate) fn new(limits: ZoneLimits) -> ZoneTable {
        ZoneTable {
            limits,
            zones: Rc::new(limits.fresh()),
            implicit: Vec::new(),
            open: 0,
            active: 0,
            closed_for_others: 0,
        }
    }

    pub(crate) fn zones(&self) -> &Rc<Vec<Zone>> {
        &self.zones
    }

    pub(crate) fn get(&self, zone: u32) -> &Zone {
        &self.zones[zone as usize]
    }

    /// The sequential zone that begins at `at`. Errors: none does.
    pub(crate) fn beginning_at(&self, at: Sector) -> Result<u32, Status> {
        let zone = self.limits.zone_of(at);
        if self.limits.is_sequential(at) && self.limits.start_of(zone) == at {
            Ok(zone)
        } else {
            Err(Status::Io)
        }
    }

    /// Puts a zone into another state, and keeps the counts.
    fn set(&mut self, zone: u32, state: ZoneState) {
        let z = &mut Rc::make_mut(&mut self.zones)[zone as usize];
        let old = std::mem::replace(&mut z.state, state);
        if old == ZoneState::ImplicitOpen {
            self.implicit.retain(|other| *other != zone);
        }
        if state == ZoneState::ImplicitOpen {
            self.implicit.push(zone);
        }
        self.open = self.open + u32::from(state.is_open()) - u32::from(old.is_open());
        self.active = self.active + u32::from(state.is_active()) - u32::from(old.is_active());
    }

    /// Makes room for one zone more to be open, and active if it is not yet.
    fn take_resources(&mut self, was_active: bool) -> Result<(), Status> {
        let ZoneLimits { max_open, max_active, .. } = self.limits;
        if !was_active && max_active > 0 && self.active >= max_active {
            return Err(Status::ZoneActiveResource);
        }
        if max_open > 0 && self.open >= max_open {
            let Some(first) = self.implicit.first().copied() else {
                return Err(Status::ZoneOpenResource);
            };
            self.set(first, ZoneState::Closed);
            self.closed_for_others += 1;
        }
        Ok(())
    }

    fn open_to(&mut self, zone: u32, to: ZoneState) -> Result<Opened, Status> {
        match self.get(zone).state {
            ZoneState::Empty => {
                self.take_resources(false)?;
                self.set(zone, to);
                Ok(Opened::FromEmpty)
            }
            ZoneState::Closed => {
                self.take_resources(true)?;
                self.set(zone, to);
                Ok(Opened::FromClosed)
            }
            ZoneState::ImplicitOpen | ZoneState::ExplicitOpen => {
                if to == ZoneState::ExplicitOpen {
                    self.set(zone, to);
                }
                Ok(Opened::Was)
            }
            _ => Err(Status::Io),
        }
    }

    /// `sectors` are written at `at`, which must be the write pointer of a sequential zone. Errors:
    /// it is not; the zone's capacity ends before them; its state takes no writes; no resources.
    pub(crate) fn write(&mut self, at: Sector, sectors: u64) -> Result<(u32, Opened), Status> {
        let zone = self.limits.zone_of(at);
        let z = *self.get(zone);
        if at != z.wp || at.advance(sectors) > z.writable_end() {
            return Err(Status::Io);
        }
        let opened = self.open_to(zone, ZoneState::ImplicitOpen)?;
        let end = at.advance(sectors);
        Rc::make_mut(&mut self.zones)[zone as usize].wp = end;
        if end == z.writable_end() {
            self.set(zone, ZoneState::Full);
        }
        Ok((zone, opened))
    }

    /// `sectors` are appended to `zone`. Returns where. Errors: as [`ZoneTable::write`].
    pub(crate) fn append(&mut self, zone: u32, sectors: u64) -> Result<(Sector, Opened), Status> {
        let at = self.get(zone).wp;
        self.write(at, sectors).map(|(_, opened)| (at, opened))
    }

    /// Opens a zone explicitly. Errors: it is full, read only or offline; no resources.
    pub(crate) fn open(&mut self, zone: u32) -> Result<(), Status> {
        self.open_to(zone, ZoneState::ExplicitOpen).map(|_| ())
    }

    /// Closes a zone. Errors: it is neither open nor closed.
    pub(crate) fn close(&mut self, zone: u32) -> Result<(), Status> {
        match self.get(zone).state {
            ZoneState::ImplicitOpen | ZoneState::ExplicitOpen => {
                self.set(zone, ZoneState::Closed);
                Ok(())
            }
            ZoneState::Closed => Ok(()),
            _ => Err(Status::Io),
        }
    }

    /// Makes a zone full. Errors: it is read only or offline.
    pub(crate) fn finish(&mut self, zone: u32) -> Result<(), Status> {
        self.check_alive(zone)?;
        let end = self.get(zone).writable_end();
        Rc::make_mut(&mut self.zones)[zone as usize].wp = end;
        self.set(zone, ZoneState::Full);
        Ok(())
    }

    /// Errors: the zone is read only or offline.
    pub(crate) fn check_alive(&self, zone: u32) -> Result<(), Status> {
        match self.get(zone).state {
            ZoneState::ReadOnly | ZoneState::Offline => Err(Status::Io),
            _ => Ok(()),
        }
    }

    /// Makes a zone empty; one that cannot be is left as it is.
    pub(crate) fn reset(&mut self, zone: u32) {
        if self.get(zone).kind == ZoneKind::Conventional || self.check_alive(zone).is_err() {
            return;
        }
        let start = self.get(zone).start;
        Rc::make_mut(&mut self.zones)[zone as usize].wp = start;
        self.set(zone, ZoneState::Empty);
    }

    /// A zone has failed: it is read only or offline from now on.
    pub(crate) fn fail(&mut self, zone: u32, state: ZoneState) {
        assert!(
            matches!(state, ZoneState::ReadOnly | ZoneState::Offline),
            "{state:?} is no failure"
        );
        self.set(zone, state);
    }

    /// Panics unless the counts are those of the states, and pointers within their zones.
    pub(crate) fn assert_valid(&self) {
        let count = |f: fn(ZoneState) -> bool| self.zones.iter().filter(|z| f(z.state)).count();
        assert_eq!(self.open as usize, count(ZoneState::is_open));
        assert_eq!(self.active as usize, count(ZoneState::is_active));
        let implicit = |s: ZoneState| s == ZoneState::ImplicitOpen;
        assert_eq!(self.implicit.len(), count(implicit));
        for z in self.zones.iter() {
            assert!(z.start <= z.wp && z.wp <= z.writable_end(), "{z:?}");
        }
    }
}
