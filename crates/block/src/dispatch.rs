//! From the elevator to the device, and back.
//!
//! Picture:    elevator -> dispatch queue -> driver -> device; a completion ends the bios and runs
//!             the queue again, in interrupt context: whatever found the device full is issued by
//!             `swapper`.
//! Source:     behaviour of `blk_peek_request()`, `scsi_request_fn()`, `blk_update_request()`
//!             (Linux 3.x–4.x).

use std::collections::VecDeque;

use wp_base::event::{BlockAction, Flags, Op, ZoneOp};
use wp_base::{SECTOR_BYTES, Sector};
use wp_medium::Slice;
use wp_rt::CpuOp;

use crate::bio::{BioEnd, split_front};
use crate::config::DriverKind;
use crate::device::{Admit, DevRequest, DeviceModel, Done};
use crate::engine::{Core, Ctx};
use crate::pool::{RqId, State};

/// Sectors that a driver without scatter-gather reads at once: a page.
const PAGE_SECTORS: u32 = 8;

/// A request of which the driver sends one segment at a time.
pub(crate) struct Current {
    rq: RqId,
    pieces: VecDeque<Piece>,
    /// Number of the next command.
    number: u32,
}

struct Piece {
    at: Sector,
    sectors: u32,
    data: Vec<Slice>,
}

impl Core {
    /// Issues as much as the device takes (`__blk_run_queue()`).
    pub fn run(&mut self, cx: &Ctx, dev: &mut dyn DeviceModel) {
        loop {
            if self.blocked {
                return;
            }
            let room = self.in_device < cx.limits.queue_depth;
            if !room && (self.current.is_some() || !cx.config.habits.issue_ahead) {
                if cx.is_mq() && self.elevator.queued() > 0 {
                    self.pressed(true);
                }
                return;
            }
            if self.current.is_some() {
                self.send_piece(cx, dev);
                continue;
            }
            let rq = match self.dispatch.front() {
                Some(rq) => *rq,
                None => match self.pull(cx) {
                    Some(rq) => rq,
                    None => return,
                },
            };
            if !self.pool[rq].state.has(State::STARTED) {
                self.issue(cx, rq);
            }
            if !room {
                return;
            }
            self.dispatch.pop_front();
            self.send(cx, dev, rq);
            if cx.is_mq() {
                self.pressed(self.blocked);
            }
        }
    }

    /// Takes the elevator's next request to the end of the dispatch queue.
    fn pull(&mut self, cx: &Ctx) -> Option<RqId> {
        if self.is_flushing() && !cx.limits.flush_beside_others && !cx.is_mq() {
            return None;
        }
        if let Some(rq) = self.take_held(cx) {
            self.dispatch.push_back(rq);
            return Some(rq);
        }
        while self.elevator.queued() > 0 {
            let rq = self.elv(cx, |e, elv| e.next(elv))?;
            self.merge.remove(&mut self.pool, rq);
            if self.must_hold(cx, rq) {
                self.depth.held.push_back(rq);
                continue;
            }
            self.dispatch.push_back(rq);
            return Some(rq);
        }
        None
    }

    /// The driver sees the request.
    pub fn issue(&mut self, cx: &Ctx, rq: RqId) {
        if self.pool[rq].state.has(State::WATCHED) {
            self.mark_barrier(cx, rq);
        }
        let r = &mut self.pool[rq];
        r.state.set(State::STARTED);
        cx.event(BlockAction::Issue, r.op, r.flags, r.at, r.sectors, 0);
        self.counters.issued += 1;
        cx.rt.spend(CpuOp::RequestDispatch, 1);
        if r.state.has(State::SORTED) {
            self.elv(cx, |e, elv| e.issued(elv, rq));
        }
    }

    /// Sends a request's commands, as many as there is room for.
    pub fn send(&mut self, cx: &Ctx, dev: &mut dyn DeviceModel, rq: RqId) {
        if !cx.limits.flush_beside_others && self.must_wait_alone(rq) {
            self.refused();
            self.requeue(cx, rq);
            return;
        }
        let r = &self.pool[rq];
        let (op, at, sectors, segments) = (r.op, r.at, r.sectors, r.segments);
        let data = self.pool.take_data(rq);
        let single = cx.config.driver == DriverKind::ScatterGather
            || segments <= 1
            || matches!(op, Op::Discard | Op::Flush | Op::Zone(_));
        if single {
            let piece = Piece { at, sectors, data };
            if let Err(piece) = self.send_command(cx, dev, rq, piece, 0, true) {
                self.pool.give_data(rq, piece.data);
                self.requeue(cx, rq);
            }
            return;
        }
        let pieces = match op {
            Op::Write => write_pieces(at, data),
            _ => read_pieces(at, sectors),
        };
        self.current = Some(Current { rq, pieces, number: 0 });
    }

    /// Must a command wait until the device is empty, as it or what is there is a cache flush
    /// (`ata_std_qc_defer()`)?
    fn must_wait_alone(&self, rq: RqId) -> bool {
        self.in_device > 0 && (self.pool[rq].op == Op::Flush || self.flush_in_device)
    }

    /// The driver or the device has turned a command down.
    fn refused(&mut self) {
        self.blocked = true;
        self.counters.busy += 1;
    }

    /// Sends the next segment of the current request.
    pub fn send_piece(&mut self, cx: &Ctx, dev: &mut dyn DeviceModel) {
        let mut current = self.current.take().expect("called while there is one");
        let (rq, number) = (current.rq, current.number);
        let piece = current.pieces.pop_front().expect("a current request has segments left");
        let last = current.pieces.is_empty();
        match self.send_command(cx, dev, rq, piece, number, last) {
            Ok(()) => current.number += 1,
            Err(piece) => current.pieces.push_front(piece),
        }
        if !current.pieces.is_empty() {
            self.current = Some(current);
        }
    }

    /// Sends command `number` of a request; is it its last?
    fn send_command(
        &mut self,
        cx: &Ctx,
        dev: &mut dyn DeviceModel,
        rq: RqId,
        piece: Piece,
        number: u32,
        last: bool,
    ) -> Result<(), Piece> {
        let watched = self.pool[rq].state.has(State::WATCHED);
        if watched {
            self.mark_barrier(cx, rq);
        }
        let r = &mut self.pool[rq];
        let (op, mut flags) = (r.op, r.flags.without(Flags::PREFLUSH));
        if !last {
            // The barrier of a request is that of its last command.
            flags = flags.without(Flags::BARRIER);
        }
        r.commands += 1;
        let id = self.pool.name(rq, number);
        let command =
            DevRequest { id, op, flags, at: piece.at, sectors: piece.sectors, data: piece.data };
        self.fx.listening = cx.listening();
        let named = self.fx.listening.then(|| DevRequest { data: Vec::new(), ..command });
        let answer = dev.submit(cx.rt.now(), command, &mut self.fx);
        match answer {
            Admit::Accepted => {
                self.in_device += 1;
                self.depth.in_device += u32::from(!self.pool[rq].is_sync());
                self.flush_in_device |= op == Op::Flush;
                if let Some(named) = named {
                    self.device_events.command(cx, &named);
                    self.device_events.works(cx, &mut self.fx.works);
                }
                if !self.fx.done.is_empty() {
                    self.done_soon.extend(self.fx.done.drain(..));
                }
                if watched && last {
                    self.accepted(cx, rq);
                }
                Ok(())
            }
            Admit::Busy(back) => {
                self.pool[rq].commands -= 1;
                self.refused();
                Err(Piece { at: back.at, sectors: back.sectors, data: back.data })
            }
        }
    }

    /// The device did not take it: to the head of the dispatch queue.
    fn requeue(&mut self, cx: &Ctx, rq: RqId) {
        let r = &mut self.pool[rq];
        r.state.clear(State::STARTED);
        cx.event(BlockAction::Requeue, r.op, r.flags, r.at, r.sectors, 0);
        self.dispatch.push_front(rq);
    }

    /// A command has completed.
    pub fn command_done(&mut self, cx: &Ctx, done: Done) {
        self.device_events.done(cx, &done);
        let (rq, number) = self.pool.resolve(done.id);
        self.in_device -= 1;
        self.depth.in_device -= u32::from(!self.pool[rq].is_sync());
        self.blocked = false;
        let r = &mut self.pool[rq];
        r.commands -= 1;
        if r.op == Op::Flush {
            self.flush_in_device = false;
        }
        if done.status.is_err() {
            r.status = done.status;
        }
        r.appended = done.appended;
        let sending = self.current.as_ref().is_some_and(|c| c.rq == rq);
        let open = sending || self.pool[rq].commands > 0;
        if number == 0 && !open && !self.pieces.contains_key(&rq) {
            self.request_done(cx, rq, done.data);
            return;
        }
        let pieces = self.pieces.entry(rq).or_default();
        let at = number as usize;
        if pieces.len() <= at {
            pieces.resize(at + 1, Vec::new());
        }
        pieces[at] = done.data;
        if !open {
            let data = self.pieces.remove(&rq).unwrap_or_default().into_iter().flatten().collect();
            self.request_done(cx, rq, data);
        }
    }

    /// All of a request's commands have completed.
    fn request_done(&mut self, cx: &Ctx, rq: RqId, data: Vec<Slice>) {
        let state = self.pool[rq].state;
        if state.has(State::FLUSH_RQ) {
            self.flush_done(cx, rq);
            return;
        }
        self.completed(cx, rq, self.pool[rq].at, self.pool[rq].sectors);
        if state.has(State::FLUSH_SEQ) {
            self.flush_data_done(cx, rq);
            return;
        }
        self.end_bios(rq, data);
        if state.has(State::SORTED) {
            self.elv(cx, |e, elv| e.completed(elv, rq));
        }
        self.free(cx, rq);
        self.counters.completed += 1;
    }

    /// Emits `C`.
    pub fn completed(&mut self, cx: &Ctx, rq: RqId, at: Sector, sectors: u32) {
        let r = &self.pool[rq];
        let took = cx.rt.now().since(r.queued).0;
        cx.event(BlockAction::Complete, r.op, r.flags, at, sectors, took);
    }

    /// Ends a request's bios, in order; each gets its part of what was read.
    pub fn end_bios(&mut self, rq: RqId, mut data: Vec<Slice>) {
        let (status, reads) = (self.pool[rq].status, self.pool[rq].op == Op::Read);
        let appended = self.pool[rq].appended;
        if status.is_err() || !reads {
            data.clear();
        }
        while let Some(bio) = self.pool.detach(rq) {
            let more = self.pool[rq].first != crate::pool::NONE;
            let part = if more && !data.is_empty() {
                split_front(&mut data, u64::from(bio.sectors) * SECTOR_BYTES)
            } else {
                std::mem::take(&mut data)
            };
            self.ended.push((bio.end, BioEnd { status, data: part, appended }));
        }
    }
}

/// One piece for each run of slices that continue one another in memory.
fn write_pieces(at: Sector, data: Vec<Slice>) -> VecDeque<Piece> {
    let mut pieces: VecDeque<Piece> = VecDeque::new();
    let mut at = at;
    for slice in data {
        let sectors = slice.len() / SECTOR_BYTES as u32;
        match pieces.back_mut() {
            Some(last) if last.data.last().is_some_and(|l| l.continues_with(&slice)) => {
                last.sectors += sectors;
                last.data.push(slice);
            }
            _ => pieces.push_back(Piece { at, sectors, data: vec![slice] }),
        }
        at = at.advance(u64::from(sectors));
    }
    pieces
}

/// One piece for each page.
fn read_pieces(at: Sector, sectors: u32) -> VecDeque<Piece> {
    (0..sectors)
        .step_by(PAGE_SECTORS as usize)
        .map(|from| Piece {
            at: at.advance(u64::from(from)),
            sectors: PAGE_SECTORS.min(sectors - from),
            data: Vec::new(),
        })
        .collect()
}

/// Segments of a bio as the driver sees them.
pub(crate) fn segments_of(op: Op, segs: &[Slice], sectors: u32) -> u32 {
    match op {
        Op::Read => sectors.div_ceil(PAGE_SECTORS),
        Op::Write | Op::Zone(ZoneOp::Append) if segs.len() <= 1 => segs.len() as u32,
        Op::Write | Op::Zone(ZoneOp::Append) => {
            1 + segs.windows(2).filter(|w| !w[0].continues_with(&w[1])).count() as u32
        }
        Op::Flush | Op::Discard | Op::Zone(_) => 0,
    }
}
