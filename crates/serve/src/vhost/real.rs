//! Guests that live in real time: QEMU, User-Mode Linux without time travel.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use wp_base::Time;

use super::machine::Machine;
use crate::clock::Clock;
use crate::control::Speaker;
use crate::control_socket::ControlSocket;

impl Machine {
    /// Serves until `stop` is set, a control line says so, or, with `once`, every front end that
    /// came has gone. Errors: the host's, of waiting.
    pub fn serve_real(
        &mut self,
        clock: &Clock,
        control: Option<&std::path::Path>,
        stop: &AtomicBool,
        once: bool,
    ) -> io::Result<()> {
        let mut door = control.map(ControlSocket::open).transpose()?;
        let mut came = false;
        while !stop.load(Ordering::Relaxed) && !self.quits() {
            let ready = self.wait(clock, door.as_ref())?;
            let now = clock.now(self.time());
            self.collect(now);
            let before = self.begun();
            for (device, ring) in &ready {
                match ring {
                    Some(ring) => {
                        self.take_kick(*device, *ring);
                        self.pump(*device, *ring, now);
                    }
                    None => {
                        for (n, reply) in self.serve(*device, now) {
                            self.send(n, &reply);
                        }
                    }
                }
            }
            if let Some(door) = &mut door
                && door.serve(&mut |line| self.control(now, line, Speaker::Host))
            {
                self.quit();
            }
            // Time goes on when no guest has anything to ask.
            if self.begun() == before {
                let next = clock.idle(self.time(), self.next(self.time()));
                self.collect(next);
            } else {
                self.collect(now);
            }
            for (device, ring) in self.take_due(Time::NEVER) {
                self.call(device, ring, false);
            }
            let connected = self.devices.iter().any(|d| d.connection.is_some());
            if once && came && !connected {
                break;
            }
            came |= connected;
        }
        Ok(())
    }

    /// The time of the drives.
    fn time(&self) -> Time {
        self.drives.iter().map(crate::drive::Drive::now).max().unwrap_or(Time(0))
    }

    /// Waits for guests or drives. Returns what has something: (device, queue that was kicked).
    fn wait(
        &self,
        clock: &Clock,
        door: Option<&ControlSocket>,
    ) -> io::Result<Vec<(usize, Option<usize>)>> {
        let places = self.fds();
        let mut fds: Vec<PollFd<'_>> =
            places.iter().map(|(fd, ..)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        if let Some(door) = door {
            fds.extend(door.fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        let now = self.time();
        let wait = clock.wait(clock.now(now), self.next(now));
        match poll(&mut fds, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let ready = places.iter().zip(&fds).filter(|(_, fd)| is_ready(fd));
        Ok(ready.map(|((_, device, ring), _)| (*device, *ring)).collect())
    }

    /// Takes the count out of a queue's kick.
    fn take_kick(&mut self, device: usize, ring: usize) {
        let Some(c) = &self.devices[device].connection else { return };
        let kick = c.session.kicks().find(|(n, _)| *n == ring);
        if let Some((_, mut kick)) = kick {
            // The queue is processed, whatever the counter holds.
            drop(kick.read(&mut [0; 8]));
        }
    }
}

#[cfg(test)]
mod tests;
