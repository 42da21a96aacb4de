//! A guest in time travel: its clock and its disks are ours.
//!
//! Picture:    guest runs -> (UPDATE, kick) -> drive -> next event nearer? FREE_UNTIL -> reply ->
//!             guest waits -> drive's events, calls -> RUN.
//! Invariants: each message is answered before anything else happens, so a run is a function of
//!             the guest, the drive and nothing else.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use wp_base::Time;

use super::machine::Machine;
use super::wire::HEADER_BYTES;
use crate::calendar::{Calendar, MESSAGE_BYTES, Message, Turn, op};
use crate::control_socket::{Listener, listen};
use crate::drive::Drive;

/// Longest time of the host's that an answer of the guest may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The guest has gone.
    Gone,
    /// It sleeps for ever, and no drive will wake it.
    Asleep,
    /// It was interrupted.
    Interrupted,
}

/// The guest's side of the calendar.
pub struct Guest {
    listener: Listener,
    stream: Option<UnixStream>,
    calendar: Calendar,
}

impl Guest {
    /// Takes a guest at a Unix socket (`time-travel=ext:PATH`), for which time 0 is `date`
    /// nanoseconds after 1970. Errors: the host's.
    pub fn listen(path: &Path, date: u64) -> io::Result<Guest> {
        Ok(Guest { listener: listen(path)?, stream: None, calendar: Calendar::new(date) })
    }

    /// What time it is for it.
    pub fn now(&self) -> Time {
        self.calendar.now()
    }

    /// Messages that it has sent.
    pub fn messages(&self) -> u64 {
        self.calendar.messages()
    }

    /// One message of the guest's, answered. `false`: it has gone. Errors: it breaks the protocol,
    /// or says nothing.
    fn exchange(&mut self) -> Result<bool, String> {
        let Some(stream) = &mut self.stream else { return Ok(false) };
        let mut bytes = [0; MESSAGE_BYTES];
        match stream.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
            Err(e) => return Err(format!("the guest sends nothing: {e}")),
        }
        let message = Message::parse(&bytes);
        let answer = self.calendar.receive(message).map_err(|e| e.to_string())?;
        let Some(answer) = answer else { return Ok(true) };
        let sent = match message.op {
            op::START => greet(stream, &answer),
            _ => stream.write_all(&answer.bytes()),
        };
        Ok(sent.is_ok())
    }

    /// Sends a message of ours and waits until it is answered. `false`: the guest has gone.
    fn tell(&mut self, message: Message) -> Result<bool, String> {
        let Some(stream) = &mut self.stream else { return Ok(false) };
        if stream.write_all(&message.bytes()).is_err() {
            return Ok(false);
        }
        while self.calendar.is_unanswered() {
            if !self.exchange()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_ref().map_or(self.listener.listener.as_fd(), |s| s.as_fd())
    }
}

/// The answer to START. Linux 6.12 takes two descriptors off it without looking whether there are
/// any; a schedule of version 0 tells it that there is none to share.
fn greet(stream: &UnixStream, answer: &Message) -> io::Result<()> {
    let schedule = rustix::fs::memfd_create("no schedule", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&schedule, 4096)?;
    let log = std::fs::File::options().write(true).open("/dev/null")?;
    let fds = [schedule.as_fd(), log.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("two descriptors do not fit"));
    }
    let bytes = answer.bytes();
    let sent = sendmsg(stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty())?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

impl Machine {
    /// Serves a guest in its time until it has gone, or `stop` says so, which is asked often with
    /// the guest's time and the drives.
    /// Errors: it breaks a protocol, or says nothing for long; the host's, of waiting.
    pub fn serve_guest(
        &mut self,
        guest: &mut Guest,
        stop: &mut dyn FnMut(Time, &mut [Drive]) -> bool,
    ) -> Result<Ended, String> {
        loop {
            if stop(guest.now(), &mut self.drives) {
                return Ok(Ended::Interrupted);
            }
            let now = guest.now();
            match guest.calendar.turn(self.next(now)) {
                Turn::Listen => {
                    if !self.listen(guest)? {
                        return Ok(Ended::Gone);
                    }
                }
                Turn::Drive(at) => {
                    guest.calendar.advance(at);
                    self.collect(at);
                    for (device, ring) in self.take_due(at) {
                        if !self.interrupt(guest, device, ring)? {
                            return Ok(Ended::Gone);
                        }
                    }
                }
                Turn::Guest => {
                    let next = self.next(now);
                    let free = guest.calendar.free_until(next);
                    if !guest.tell(free)? {
                        return Ok(Ended::Gone);
                    }
                    let run = guest.calendar.run(next);
                    if !guest.tell(run)? {
                        return Ok(Ended::Gone);
                    }
                }
                Turn::Never => return Ok(Ended::Asleep),
            }
        }
    }

    /// The guest runs: waits for a message of it, whoever it is for, and answers it. `false`: it
    /// has gone.
    fn listen(&mut self, guest: &mut Guest) -> Result<bool, String> {
        let places = self.fds();
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::from_borrowed_fd(guest.fd(), PollFlags::IN)];
        fds.extend(places.iter().map(|(fd, ..)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        let wait = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        match poll(&mut fds, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(format!("waiting for the guest: {e}")),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let (of_guest, of_devices) = (is_ready(&fds[0]), &fds[1..]);
        let ready: Vec<(usize, Option<usize>)> = places
            .iter()
            .zip(of_devices)
            .filter(|(_, fd)| is_ready(fd))
            .map(|((_, device, ring), _)| (*device, *ring))
            .collect();
        if of_guest {
            if guest.stream.is_some() {
                return guest.exchange();
            }
            let (stream, _) = guest.listener.listener.accept().map_err(|e| e.to_string())?;
            let ready = stream
                .set_nonblocking(false)
                .and_then(|()| stream.set_read_timeout(Some(PATIENCE)));
            ready.map_err(|e| e.to_string())?;
            guest.stream = Some(stream);
        }
        for (device, ring) in ready {
            if ring.is_some() {
                return Err("a guest in time travel kicks in its socket".to_owned());
            }
            if !self.serve_device(guest, device)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Messages of a front end, while its guest runs. `false`: it has gone.
    fn serve_device(&mut self, guest: &mut Guest, device: usize) -> Result<bool, String> {
        let now = guest.now();
        let replies = self.serve(device, now);
        // What was asked may be done before the guest would look up: it is told so before the
        // reply lets it run on.
        if let (Some(next), Some(granted)) = (self.next(now), guest.calendar.granted())
            && next < granted
        {
            let free = guest.calendar.free_until(Some(next));
            if !guest.tell(free)? {
                return Ok(false);
            }
        }
        for (n, reply) in replies {
            self.send(n, &reply);
        }
        Ok(true)
    }

    /// Calls a waiting guest's attention to a queue, and answers what it asks of the calendar until
    /// it has taken the interrupt in. `false`: it has gone.
    fn interrupt(&mut self, guest: &mut Guest, device: usize, ring: usize) -> Result<bool, String> {
        let Some(channel) = self.call(device, ring, true) else { return Ok(true) };
        // A header and a number.
        let mut reply = [0; HEADER_BYTES + 8];
        let mut have = 0;
        while have < reply.len() {
            let mut fds = [
                PollFd::from_borrowed_fd(guest.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(channel, PollFlags::IN),
            ];
            let wait = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            match poll(&mut fds, Some(&wait)) {
                Ok(0) => return Err("the guest does not take an interrupt".to_owned()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(format!("waiting for the guest: {e}")),
            }
            let (asks, heard) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            if asks && !guest.exchange()? {
                return Ok(false);
            }
            if heard {
                match rustix::io::read(channel, &mut reply[have..]) {
                    Ok(0) => return Ok(false),
                    Ok(n) => have += n,
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(format!("an interrupt's answer: {e}")),
                }
            }
        }
        Ok(true)
    }
}
