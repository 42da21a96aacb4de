//! Devices behind sockets: connections, requests under way, answers.
//!
//! Nothing here waits: [`super::real`] and [`super::external`] do, each with its own clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use wp_base::event::ZoneOp;
use wp_base::{SECTOR_BYTES, Sector, Time};
use wp_block::Status;

use super::blk::{self, Said, Wish};
use super::config;
use super::connection::{Connection, GONE};
use super::cpu::{Charged, Cpu};
use super::memory::Fault;
use super::ring::Chain;
use super::session::Session;
use super::wire;
use crate::control::{self, Speaker};
use crate::control_socket::{Listener, listen};
use crate::drive::{Drive, Request, What};

/// What a device's requests go to.
pub(super) enum Target {
    /// A drive.
    Drive(usize),
    /// The control disk: a write is a line for [`control`], a read of its first block the answer,
    /// of its second the first drive's status.
    Control { answer: Vec<u8> },
}

/// A device behind a socket; one front end at a time.
pub(super) struct Device {
    listener: Listener,
    pub connection: Option<Connection>,
    pub target: Target,
    features: u64,
    config: [u8; config::CONFIG_BYTES],
    queues: u16,
    /// Requests that were taken out of each queue so far.
    taken: Vec<u64>,
    /// Was it complained of that a guest writes to zones that it does not know of?
    blind: bool,
    /// Connections so far: answers to requests of an older one are dropped.
    generation: u64,
    /// Requests under way, and bytes of theirs in our memory.
    under_way: usize,
    in_hand: u64,
}

/// A request of a guest that is under way.
struct Flight {
    device: usize,
    generation: u64,
    ring: usize,
    chain: Chain,
    /// Parts that are not done, and what those said that are.
    left: usize,
    /// Bytes of it that are in our memory.
    bytes: u64,
    status: Result<(), Status>,
    /// Where it begins, of a write to a zone: what is refused there is told as what it is.
    zoned: Option<What>,
}

/// A request of a guest whose CPU has not handed it over yet.
struct Entering {
    at: Time,
    device: usize,
    generation: u64,
    ring: usize,
    chain: Chain,
    wish: Wish,
    data: Vec<wp_medium::Slice>,
    /// Bytes of it that are in our memory, or will be.
    bytes: u64,
}

/// Devices and their drives.
pub struct Machine {
    /// The drives, in the order in which they were added.
    pub drives: Vec<Drive>,
    pub(super) devices: Vec<Device>,
    flights: BTreeMap<u64, Flight>,
    /// Name in the drive -> name of the flight.
    parts: BTreeMap<u64, u64>,
    name: u64,
    /// The guest's CPU, if it is charged.
    cpu: Option<Cpu>,
    /// What it has not handed over yet, in order of time.
    entering: VecDeque<Entering>,
    /// Queues in which something was given back, and when the guest is called for it: (device,
    /// queue).
    due: BTreeMap<(usize, usize), Time>,
    /// Queues of which no more was taken, as their device has enough in hand or has had its turn:
    /// (device, queue).
    full: BTreeSet<(usize, usize)>,
    /// Requests that could not be read, for reports.
    malformed: u64,
    /// What was wrong with connections, for reports; the first few.
    complaints: Vec<String>,
    quits: bool,
}

/// Requests of a device that may be under way, and bytes of theirs, before no more are taken out of
/// its queues: descriptors may name the same page of the guest as often as they like.
const MOST_FLIGHTS: usize = 1024;
const MOST_IN_HAND: u64 = 256 << 20;
/// Messages of a front end, and requests of a queue, that are taken before others have their turn:
/// whoever sends faster than it is served keeps nobody waiting, and no replies pile up.
const MOST_MESSAGES: usize = 64;
const MOST_REQUESTS: usize = MOST_FLIGHTS;

/// Complaints that are kept.
const MOST_COMPLAINTS: usize = 16;

impl Machine {
    /// No devices.
    pub fn new() -> Machine {
        Machine {
            drives: Vec::new(),
            devices: Vec::new(),
            flights: BTreeMap::new(),
            parts: BTreeMap::new(),
            name: 0,
            cpu: None,
            entering: VecDeque::new(),
            due: BTreeMap::new(),
            full: BTreeSet::new(),
            malformed: 0,
            complaints: Vec::new(),
            quits: false,
        }
    }

    /// Puts a drive behind a socket. Errors: the host's.
    pub fn add(&mut self, drive: Drive, socket: &Path, queues: u16) -> std::io::Result<()> {
        let limits = *drive.limits();
        let target = Target::Drive(self.drives.len());
        let read_only = if drive.is_read_only() { config::feature::RO } else { 0 };
        self.drives.push(drive);
        self.add_device(target, &limits, socket, queues)?;
        if let Some(device) = self.devices.last_mut() {
            device.features |= read_only;
        }
        Ok(())
    }

    pub(super) fn add_device(
        &mut self,
        target: Target,
        limits: &wp_block::Limits,
        socket: &Path,
        queues: u16,
    ) -> std::io::Result<()> {
        self.devices.push(Device {
            listener: listen(socket)?,
            connection: None,
            target,
            features: config::features(limits, queues),
            config: config::space(limits, queues),
            queues,
            taken: vec![0; usize::from(queues)],
            blind: false,
            generation: 0,
            under_way: 0,
            in_hand: 0,
        });
        Ok(())
    }

    /// Charges the guest's CPU for what reaches the drives and what comes back. It has a meaning
    /// for a guest in time travel only.
    pub fn charge(&mut self, cpu: Cpu) {
        self.cpu = Some(cpu);
    }

    /// What the guest's CPU was charged with.
    pub fn charged(&self) -> Option<Charged> {
        self.cpu.as_ref().map(Cpu::charged)
    }

    /// Requests that could not be read so far.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Requests that were taken out of each queue of a drive so far, by all its front ends.
    pub fn taken(&self, drive: usize) -> &[u64] {
        let is_its = |d: &&Device| matches!(d.target, Target::Drive(n) if n == drive);
        self.devices.iter().find(is_its).map_or(&[], |d| &d.taken)
    }

    /// What was wrong with connections, of the first few.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// A number that grows with every request.
    pub(super) fn begun(&self) -> u64 {
        self.name
    }

    /// Does somebody want an end?
    pub(super) fn quits(&self) -> bool {
        self.quits
    }

    /// Does a line of the control language on all drives.
    pub fn control(&mut self, now: Time, line: &str, from: Speaker) -> (String, bool) {
        let mut drives: Vec<&mut Drive> = self.drives.iter_mut().collect();
        let (answer, quits) = control::run(&mut drives, now, line, from);
        (answer.to_string(), quits)
    }

    /// When something happens next; not before `now`.
    pub fn next(&self, now: Time) -> Option<Time> {
        let drives = self.drives.iter().filter_map(Drive::next);
        let calls = self.due.values().copied();
        let entering = self.entering.front().map(|e| e.at);
        let turn = self.full.iter().any(|(n, _)| !self.is_full(*n)).then_some(now);
        drives.chain(calls).chain(entering).chain(turn).min().map(|at| at.max(now))
    }

    /// What to poll: (descriptor, device, queue of a kick).
    pub(super) fn fds(&self) -> Vec<(BorrowedFd<'_>, usize, Option<usize>)> {
        let mut out = Vec::new();
        for (n, d) in self.devices.iter().enumerate() {
            match &d.connection {
                None => out.push((d.listener.listener.as_fd(), n, None)),
                Some(c) => {
                    out.push((c.stream.as_fd(), n, None));
                    out.extend(c.session.kicks().map(|(ring, k)| (k.as_fd(), n, Some(ring))));
                }
            }
        }
        out
    }

    /// A device's socket has something: a new front end, or messages. What they lead to is done at
    /// `now`. A front end that breaks the protocol loses its connection.
    /// Returns what is to be sent, and to whom.
    pub(super) fn serve(&mut self, n: usize, now: Time) -> Vec<(usize, Vec<u8>)> {
        let device = &mut self.devices[n];
        if device.connection.is_none() {
            if let Ok((stream, _)) = device.listener.listener.accept()
                && stream.set_nonblocking(true).is_ok()
            {
                let session = Session::new(device.features, device.config, device.queues);
                device.connection = Some(Connection::new(stream, session));
                device.generation += 1;
            }
            return Vec::new();
        }
        let mut replies = Vec::new();
        for _ in 0..MOST_MESSAGES {
            let Some(c) = &mut self.devices[n].connection else { break };
            let outcome = match c.message() {
                Ok(Some((header, payload))) => {
                    let fds = std::mem::take(&mut c.fds);
                    if header.request == wire::request::GET_VRING_BASE {
                        self.drain(n);
                    }
                    let Some(c) = &mut self.devices[n].connection else { break };
                    c.session.receive(header, &payload, fds)
                }
                Ok(None) => break,
                Err(why) => Err(why),
            };
            match outcome {
                Ok(outcome) => {
                    if let Some(ring) = outcome.kicked {
                        self.pump(n, ring, now);
                    }
                    replies.extend(outcome.reply.map(|r| (n, r)));
                }
                Err(why) => {
                    self.devices[n].connection = None;
                    if why != GONE {
                        self.complain(n, &format!("its connection was ended: {why}"));
                    }
                    break;
                }
            }
        }
        replies
    }

    /// A queue is about to be stopped: whatever it has under way ends first.
    fn drain(&mut self, n: usize) {
        // No more is taken out of its queues until then, or a guest could keep this from ending.
        let (its, others) = std::mem::take(&mut self.full).into_iter().partition(|(d, _)| *d == n);
        self.full = others;
        let its: BTreeSet<(usize, usize)> = its;
        while self.devices[n].under_way > 0 {
            let entering = self.entering.front().map(|e| e.at);
            let next = self.drives.iter().filter_map(Drive::next).chain(entering).min();
            let Some(at) = next else { break };
            self.collect(at);
        }
        self.full.extend(its);
        // The queue loses the place where its guest is called.
        for (device, ring) in self.take_due(Time::NEVER) {
            self.call(device, ring, false);
        }
    }

    /// Has a device as much under way as may be?
    fn is_full(&self, n: usize) -> bool {
        let device = &self.devices[n];
        device.under_way >= MOST_FLIGHTS || device.in_hand >= MOST_IN_HAND
    }

    /// Sends a reply. A front end that does not read loses its connection.
    pub(super) fn send(&mut self, n: usize, bytes: &[u8]) {
        let device = &mut self.devices[n];
        if let Some(c) = &mut device.connection
            && c.stream.write_all(bytes).is_err()
        {
            device.connection = None;
        }
    }

    /// Takes the requests of a queue, as many as may be.
    pub(super) fn pump(&mut self, n: usize, ring: usize, now: Time) {
        for _ in 0..MOST_REQUESTS {
            if self.is_full(n) {
                break;
            }
            let device = &mut self.devices[n];
            let Some(c) = &mut device.connection else { return };
            let Some((queue, memory)) = c.session.ring(ring) else { return };
            let Some(chain) = queue.pop(memory) else {
                let fault = queue.fault();
                return self.end_shortened(n, fault);
            };
            if let Some(taken) = device.taken.get_mut(ring) {
                *taken += 1;
            }
            match blk::read(&chain) {
                Ok((wish, data)) => self.enter(n, ring, chain, wish, data, now),
                Err(_) => {
                    self.malformed += 1;
                    self.give_back(n, ring, &chain, 0, now);
                }
            }
        }
        self.full.insert((n, ring));
    }

    /// Ends the connection of a guest that has shortened its memory, and no other.
    fn end_shortened(&mut self, n: usize, fault: Option<Fault>) {
        if let Some(fault) = fault {
            self.devices[n].connection = None;
            self.complain(n, &format!("its connection was ended: {fault}"));
        }
    }

    /// A request is taken: it begins when the guest's CPU has handed it over.
    fn enter(
        &mut self,
        device: usize,
        ring: usize,
        chain: Chain,
        wish: Wish,
        data: Vec<wp_medium::Slice>,
        now: Time,
    ) {
        let of_drive = matches!(self.devices[device].target, Target::Drive(_));
        let asked = wish.requests();
        let (Some(cpu), true, Some(first)) = (&mut self.cpu, of_drive, asked.first()) else {
            return self.begin(device, ring, chain, wish, data, now);
        };
        let at = cpu.hand_over(now, first.0);
        let bytes = held(&asked);
        let from = &mut self.devices[device];
        from.under_way += 1;
        from.in_hand += bytes;
        let generation = from.generation;
        let entering = Entering { at, device, generation, ring, chain, wish, data, bytes };
        self.entering.push_back(entering);
    }

    /// Begins what the guest's CPU has handed over by `now`.
    fn begin_entered(&mut self, now: Time) {
        while self.entering.front().is_some_and(|e| e.at <= now) {
            let Some(e) = self.entering.pop_front() else { return };
            let device = &mut self.devices[e.device];
            device.under_way -= 1;
            device.in_hand -= e.bytes;
            if device.generation == e.generation {
                self.begin(e.device, e.ring, e.chain, e.wish, e.data, now);
            }
        }
    }

    /// Begins a request.
    fn begin(
        &mut self,
        n: usize,
        ring: usize,
        chain: Chain,
        wish: Wish,
        data: Vec<wp_medium::Slice>,
        now: Time,
    ) {
        let drive = match &mut self.devices[n].target {
            Target::Drive(drive) => *drive,
            Target::Control { .. } => {
                return self.control_disk(n, ring, &chain, wish, &data, now);
            }
        };
        let asked = wish.requests();
        match wish {
            Wish::Id => {
                let id = blk::id(self.drives[drive].name());
                return self.say(n, ring, &chain, Said::Ok, &id, now);
            }
            Wish::Report(at) => {
                let drive = &self.drives[drive];
                if drive.limits().zones.is_none() {
                    return self.say(n, ring, &chain, Said::Unsupported, &[], now);
                }
                let report = blk::report(&drive.zones(), at, blk::room(&chain));
                return self.say(n, ring, &chain, Said::Ok, &report, now);
            }
            Wish::Say(said) => return self.say(n, ring, &chain, said, &[], now),
            Wish::Drive { .. } | Wish::Ranges(_) if asked.is_empty() => {
                return self.say(n, ring, &chain, Said::Ok, &[], now);
            }
            Wish::Drive { .. } | Wish::Ranges(_) => {}
        }
        self.name += 1;
        let flight = self.name;
        let zoned = self.drives[drive].limits().zones.map(|_| asked[0].0);
        if zoned == Some(What::Write) {
            self.see_blind(n);
        }
        let bytes = held(&asked);
        let device = &mut self.devices[n];
        device.under_way += 1;
        device.in_hand += bytes;
        let generation = device.generation;
        self.flights.insert(
            flight,
            Flight {
                device: n,
                generation,
                ring,
                chain,
                left: asked.len(),
                bytes,
                status: Ok(()),
                zoned,
            },
        );
        let mut data = Some(data);
        for (what, at, sectors) in asked {
            self.name += 1;
            self.parts.insert(self.name, flight);
            let data = data.take().unwrap_or_default();
            let request = Request { tag: self.name, what, at, sectors, fua: false, data };
            self.drives[drive].submit(now, request);
        }
    }

    /// A guest writes to a zoned drive: complains, once, if its driver was not told of the zones. A
    /// front end that leaves the feature out (QEMU's vhost-user-blk) shows it a disk like any
    /// other, whose errors nothing explains. To refuse such a driver from the first would end that
    /// of a BIOS too, which reads only.
    fn see_blind(&mut self, n: usize) {
        let device = &mut self.devices[n];
        let Some(c) = &device.connection else { return };
        if device.blind || c.session.acked() & config::feature::ZONED != 0 {
            return;
        }
        device.blind = true;
        self.complain(n, "it writes to a zoned drive without negotiating VIRTIO_BLK_F_ZONED");
    }

    fn complain(&mut self, n: usize, why: &str) {
        if self.complaints.len() < MOST_COMPLAINTS {
            self.complaints.push(format!("device {n}: {why}"));
        }
    }

    /// Answers a request at once.
    pub(super) fn say(
        &mut self,
        n: usize,
        ring: usize,
        chain: &Chain,
        said: Said,
        bytes: &[u8],
        now: Time,
    ) {
        let written = blk::write_bytes(chain, said, bytes);
        self.give_back(n, ring, chain, written, now);
    }

    /// Gives a request back to the guest, which is called later.
    fn give_back(&mut self, n: usize, ring: usize, chain: &Chain, written: u32, now: Time) {
        let device = &mut self.devices[n];
        let Some(c) = &mut device.connection else { return };
        let Some((queue, memory)) = c.session.ring(ring) else { return };
        let calls = queue.give_back(memory, chain.head_index(), written);
        if let Some(fault) = queue.fault() {
            return self.end_shortened(n, Some(fault));
        }
        let wakes = calls && !self.due.contains_key(&(n, ring));
        let at = match (&mut self.cpu, &device.target) {
            (Some(cpu), Target::Drive(_)) => cpu.take_back(now, wakes),
            _ => now,
        };
        if wakes {
            self.due.insert((n, ring), at);
        }
    }

    /// Everything that happens until `now` happens, and its answers go back to guests.
    pub(super) fn collect(&mut self, now: Time) {
        for n in 0..self.drives.len() {
            self.drives[n].run_until(now);
            while let Some(answer) = self.drives[n].take() {
                let Some(name) = self.parts.remove(&answer.tag) else { continue };
                let Some(flight) = self.flights.get_mut(&name) else { continue };
                flight.left -= 1;
                flight.status = flight.status.and(answer.status);
                if flight.left > 0 {
                    continue;
                }
                let Some(f) = self.flights.remove(&name) else { continue };
                let device = &mut self.devices[f.device];
                device.under_way -= 1;
                device.in_hand -= f.bytes;
                if device.generation != f.generation {
                    continue;
                }
                let said = match (blk::said(f.status), f.zoned) {
                    (Said::IoError, Some(What::Write)) => Said::UnalignedWp,
                    (Said::IoError, Some(What::Zone(op))) if op != ZoneOp::Append => {
                        Said::InvalidZone
                    }
                    (said, _) => said,
                };
                let written = blk::write(&f.chain, said, &answer.data, answer.appended);
                self.give_back(f.device, f.ring, &f.chain, written, now);
            }
        }
        self.begin_entered(now);
        for (n, ring) in std::mem::take(&mut self.full) {
            self.pump(n, ring, now);
        }
    }

    /// The queues that are to be called by `now`, and are due no more.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<(usize, usize)> {
        let mut called = Vec::new();
        self.due.retain(|queue, at| {
            let is_due = *at <= now;
            called.extend(is_due.then_some(*queue));
            !is_due
        });
        called
    }

    /// Calls the guest's attention to a queue. Returns the channel on which it will say that it has
    /// heard, if it was told there and asked for that.
    pub(super) fn call(&mut self, n: usize, ring: usize, acked: bool) -> Option<BorrowedFd<'_>> {
        let c = self.devices[n].connection.as_ref()?;
        if let Some(mut call) = c.session.call(ring) {
            // A counter that is full has been rung already.
            drop(call.write(&1u64.to_le_bytes()));
            return None;
        }
        let fd = c.session.backend()?.as_fd();
        let message = wire::call(ring as u32, acked);
        match rustix::io::write(fd, &message) {
            Ok(n) if n == message.len() => Some(fd).filter(|_| acked),
            _ => None,
        }
    }

    /// Says that the server is to end.
    pub(super) fn quit(&mut self) {
        self.quits = true;
    }
}

/// Bytes of requests that are in our memory until they are done.
fn held(asked: &[(What, Sector, u64)]) -> u64 {
    let of = |what, sectors| match what {
        What::Read | What::Write | What::Zone(ZoneOp::Append) => sectors * SECTOR_BYTES,
        _ => 0,
    };
    asked.iter().map(|(what, _, sectors)| of(*what, *sectors)).sum()
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::new()
    }
}
