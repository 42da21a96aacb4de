//! Connections of NBD clients to one drive: a loop over sockets that never blocks on one of them.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use wp_base::SECTOR_BYTES;

use super::session::{Ask, Export, Session};
use crate::clock::Clock;
use crate::control::{self, Speaker};
use crate::control_socket::{ControlSocket, Listener, listen};
use crate::drive::{Drive, Request, What};

/// Connections at once; more are closed as soon as they come.
pub const MAX_CONNECTIONS: usize = 256;
/// Bytes read of a connection before others have their turn.
const CHUNK: usize = 256 << 10;
/// Bytes of reads and writes that the drive may have, also of clients that have gone: when the
/// drive has this number of bytes, nothing more is read from any client.
const MOST_IN_HAND: u64 = 256 << 20;
/// Bytes of all connections that wait for their rest or to be sent. Beyond, the connection that
/// holds most of them is closed: a client that sends half a write or reads no reply.
const MOST_WAITING: usize = 1 << 30;

/// Where clients come in.
enum Entry {
    Unix(Listener),
    Tcp(TcpListener),
}

/// A socket of a client.
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(s) => s.as_fd(),
            Stream::Tcp(s) => s.as_fd(),
        }
    }
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.read(bytes),
            Stream::Tcp(s) => s.read(bytes),
        }
    }
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.write(bytes),
            Stream::Tcp(s) => s.write(bytes),
        }
    }
}

struct Connection {
    stream: Stream,
    session: Session,
}

/// A request that the drive has.
struct Asked {
    connection: u64,
    /// What the session calls it.
    tag: u64,
    /// Bytes of it in our memory, now or when it is answered.
    bytes: u64,
}

/// A server of one drive.
pub struct Server {
    drive: Drive,
    export: Export,
    clock: Clock,
    entries: Vec<Entry>,
    door: Option<ControlSocket>,
    connections: BTreeMap<u64, Connection>,
    /// Connections so far.
    count: u64,
    /// By what the drive calls it.
    asked: BTreeMap<u64, Asked>,
    /// Bytes of those.
    in_hand: u64,
    tag: u64,
    chunk: Vec<u8>,
}

impl Server {
    /// A server of `drive` under the name `name`. Errors: a zoned drive, as the protocol has no
    /// commands for zones.
    pub fn new(drive: Drive, name: &str, read_only: bool, clock: Clock) -> Result<Server, String> {
        let limits = *drive.limits();
        if limits.zones.is_some() {
            return Err(format!(
                "{} is zoned, and NBD has no commands for zones; serve it as vhost-user-blk",
                drive.name()
            ));
        }
        let export = Export {
            name: name.to_owned(),
            about: drive.name().to_owned(),
            bytes: limits.sectors * SECTOR_BYTES,
            block: limits.logical_bytes,
            read_only,
            trim: limits.discard,
        };
        Ok(Server {
            drive,
            export,
            clock,
            entries: Vec::new(),
            door: None,
            connections: BTreeMap::new(),
            count: 0,
            asked: BTreeMap::new(),
            in_hand: 0,
            tag: 0,
            chunk: vec![0; CHUNK],
        })
    }

    /// Takes clients at a Unix socket. Errors: the host's.
    pub fn listen_unix(&mut self, path: &Path) -> io::Result<()> {
        self.entries.push(Entry::Unix(listen(path)?));
        Ok(())
    }

    /// Takes clients at a TCP port of the loopback; 0 takes a free one, which is returned. Errors:
    /// the host's.
    pub fn listen_port(&mut self, port: u16) -> io::Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        self.entries.push(Entry::Tcp(listener));
        Ok(port)
    }

    /// Takes control lines at a Unix socket. Errors: the host's.
    pub fn control_at(&mut self, path: &Path) -> io::Result<()> {
        self.door = Some(ControlSocket::open(path)?);
        Ok(())
    }

    /// Connections so far.
    pub fn connections(&self) -> u64 {
        self.count
    }

    /// Serves until `stop` is set, a control line says so, or, with `once`, the last client of
    /// those that came has gone. Returns the drive, the number of connections, and how it ended.
    /// Errors: the host's, of waiting; the drive is there all the same.
    pub fn serve(mut self, stop: &AtomicBool, once: bool) -> (Drive, u64, io::Result<()>) {
        let mut ended = Ok(());
        while !stop.load(Ordering::Relaxed) {
            ended = self.wait();
            if ended.is_err() {
                break;
            }
            let now = self.clock.now(self.drive.now());
            self.drive.run_until(now);
            self.accept();
            self.read();
            let before = self.tag;
            self.ask();
            if let Some(door) = &mut self.door {
                let drive = &mut self.drive;
                let mut answer = |line: &str| {
                    let (value, quits) = control::run(&mut [drive], now, line, Speaker::Host);
                    (value.to_string(), quits)
                };
                if door.serve(&mut answer) {
                    break;
                }
            }
            // Time goes on when nobody has anything to ask; what comes meanwhile was asked later.
            if self.tag == before {
                let next = self.clock.idle(self.drive.now(), self.drive.next());
                self.drive.run_until(next);
            }
            self.answer();
            // Answers make room for what had to wait.
            self.ask();
            self.write();
            if once && self.count > 0 && self.connections.is_empty() {
                break;
            }
        }
        (self.drive, self.count, ended)
    }

    /// May the drive have more?
    fn has_room(&self) -> bool {
        self.in_hand < MOST_IN_HAND
    }

    /// Waits for clients, or for the drive.
    fn wait(&mut self) -> io::Result<()> {
        let has_room = self.has_room();
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(self.connections.len() + 4);
        for entry in &self.entries {
            let fd = match entry {
                Entry::Unix(l) => l.listener.as_fd(),
                Entry::Tcp(l) => l.as_fd(),
            };
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        if let Some(door) = &self.door {
            fds.extend(door.fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        for c in self.connections.values() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, has_room && c.session.wants_input());
            flags.set(PollFlags::OUT, !c.session.output().is_empty());
            fds.push(PollFd::from_borrowed_fd(c.stream.fd(), flags));
        }
        let now = self.drive.now();
        let wait = self.clock.wait(self.clock.now(now), self.drive.next());
        match poll(&mut fds, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        // Of one that is not read nothing else would tell, and the poll would return for it at once
        // for ever.
        let (hung_up, clients) = (PollFlags::HUP | PollFlags::ERR, self.connections.len());
        let polled = &fds[fds.len() - clients..];
        let gone: Vec<bool> = polled.iter().map(|fd| fd.revents().intersects(hung_up)).collect();
        drop(fds);
        for (c, gone) in self.connections.values_mut().zip(gone) {
            if gone && !(has_room && c.session.wants_input()) {
                c.session.hang_up();
            }
        }
        Ok(())
    }

    fn accept(&mut self) {
        for entry in &self.entries {
            // Who connects faster than it is turned away keeps nobody else waiting.
            for _ in 0..MAX_CONNECTIONS {
                let stream = match entry {
                    Entry::Unix(l) => l
                        .listener
                        .accept()
                        .map(|(s, _)| s.set_nonblocking(true).map(|()| Stream::Unix(s))),
                    Entry::Tcp(l) => l.accept().map(|(s, _)| {
                        let ready = s.set_nonblocking(true).and_then(|()| s.set_nodelay(true));
                        ready.map(|()| Stream::Tcp(s))
                    }),
                };
                let Ok(stream) = stream else { break };
                let Ok(stream) = stream else { continue };
                if self.connections.len() >= MAX_CONNECTIONS {
                    continue;
                }
                self.count += 1;
                let session = Session::new(self.export.clone());
                self.connections.insert(self.count, Connection { stream, session });
            }
        }
    }

    /// Reads what clients have sent.
    fn read(&mut self) {
        if !self.has_room() {
            return;
        }
        for c in self.connections.values_mut().filter(|c| c.session.wants_input()) {
            match c.stream.read(&mut self.chunk) {
                Ok(0) => c.session.hang_up(),
                Ok(n) => c.session.receive(&self.chunk[..n]),
                Err(e) if is_later(&e) => {}
                Err(_) => c.session.hang_up(),
            }
        }
    }

    /// Hands what they ask to the drive.
    fn ask(&mut self) {
        for (number, c) in &mut self.connections {
            while self.in_hand < MOST_IN_HAND
                && let Some(ask) = c.session.ask()
            {
                match ask {
                    Ask::Extents { tag, at, sectors } => {
                        let extents = self.drive.extents(at, sectors);
                        c.session.extents(tag, &extents);
                    }
                    Ask::Request { tag, what, at, sectors, fua, data } => {
                        self.tag += 1;
                        let bytes = match what {
                            What::Read | What::Write => sectors * SECTOR_BYTES,
                            _ => 0,
                        };
                        self.in_hand += bytes;
                        self.asked.insert(self.tag, Asked { connection: *number, tag, bytes });
                        let request = Request { tag: self.tag, what, at, sectors, fua, data };
                        self.drive.submit(self.drive.now(), request);
                    }
                }
            }
        }
    }

    /// Hands the drive's answers back.
    fn answer(&mut self) {
        while let Some(answer) = self.drive.take() {
            let Some(asked) = self.asked.remove(&answer.tag) else { continue };
            self.in_hand -= asked.bytes;
            // A client that has gone gets none.
            if let Some(c) = self.connections.get_mut(&asked.connection) {
                c.session.answer(asked.tag, answer.status, &answer.data);
            }
        }
    }

    /// Sends what there is to send, and forgets who has gone.
    fn write(&mut self) {
        self.connections.retain(|_, c| {
            while !c.session.output().is_empty() {
                match c.stream.write(c.session.output()) {
                    Ok(n) => c.session.sent(n),
                    Err(e) if is_later(&e) => break,
                    Err(_) => c.session.hang_up(),
                }
            }
            !c.session.is_over()
        });
        let waiting = self.connections.values().map(|c| c.session.waiting()).sum::<usize>();
        let most = self.connections.iter().max_by_key(|(_, c)| c.session.waiting());
        if let (true, Some(number)) = (waiting > MOST_WAITING, most.map(|(number, _)| *number)) {
            self.connections.remove(&number);
        }
    }
}

fn is_later(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
