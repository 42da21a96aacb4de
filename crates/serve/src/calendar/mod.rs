//! The calendar of a guest in time travel: whose turn it is, and what time it is.
//!
//! Picture:    guest (`time-travel=ext:SOCKET`) -> REQUEST, WAIT, UPDATE, GET -> [`Calendar`] ->
//!             ACK, RUN, FREE_UNTIL -> guest. Beside it the drives say when they have something.
//! Invariants: 1. while the guest runs, time is its own, and it may not pass what it was granted;
//!             2. while it waits, time is ours: it goes to what is first, a drive's event before
//!                the guest's at the same instant;
//!             3. every message is answered before the next is read, so what happens is a
//!                function of what the guest does.
//! Source:     `include/uapi/linux/um_timetravel.h` and `arch/um/kernel/time.c` of Linux 6.12.
//! Left out:   the shared-memory schedule, which a client does without if it is not offered;
//!             several guests.

use wp_base::Time;

/// Bytes of a message.
pub const MESSAGE_BYTES: usize = 16;
/// A guest asks for this when it wants to sleep for ever (`S64_MAX`).
const FOREVER: u64 = i64::MAX as u64;

/// Operations of the protocol.
pub mod op {
    /// Any message is answered with it.
    pub const ACK: u32 = 0;
    /// The guest is there.
    pub const START: u32 = 1;
    /// It wants to run at a time.
    pub const REQUEST: u32 = 2;
    /// It waits for that.
    pub const WAIT: u32 = 3;
    /// It asks for the time.
    pub const GET: u32 = 4;
    /// It tells the time, before it speaks with a device.
    pub const UPDATE: u32 = 5;
    /// It may run; ours.
    pub const RUN: u32 = 6;
    /// It may run without asking until a time; ours.
    pub const FREE_UNTIL: u32 = 7;
    /// It asks for the date.
    pub const GET_TOD: u32 = 8;
    /// Something for everybody.
    pub const BROADCAST: u32 = 9;
}

/// A message, in either direction. Numbers are of the host's byte order, which both sides share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// What ([`op`]).
    pub op: u32,
    /// Its number; the answer has the same.
    pub seq: u32,
    /// Nanoseconds.
    pub time: u64,
}

impl Message {
    /// Of its bytes.
    pub fn parse(bytes: &[u8; MESSAGE_BYTES]) -> Message {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let time = u64::from(word(8)) | u64::from(word(12)) << 32;
        Message { op: word(0), seq: word(4), time }
    }

    /// As bytes.
    pub fn bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut out = [0; MESSAGE_BYTES];
        out[..4].copy_from_slice(&self.op.to_le_bytes());
        out[4..8].copy_from_slice(&self.seq.to_le_bytes());
        out[8..].copy_from_slice(&self.time.to_le_bytes());
        out
    }
}

/// What a guest did that it may not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken(pub String);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "time travel: {}", self.0)
    }
}

impl std::error::Error for Broken {}

/// Where the guest is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Guest {
    /// It has not said that it is there.
    Absent,
    /// It runs; a free run ends at the time, which it may not pass.
    Running { until: Option<Time> },
    /// It waits for the time that it asked for, or for something to come.
    Waiting,
}

/// What is to be done when the guest waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It runs: nothing but to listen.
    Listen,
    /// A drive is next, at this time.
    Drive(Time),
    /// The guest is: tell it [`Calendar::free_until`] and then [`Calendar::run`].
    Guest,
    /// Nothing will ever happen.
    Never,
}

/// The calendar.
#[derive(Clone, Debug)]
pub struct Calendar {
    now: Time,
    guest: Guest,
    /// When the guest wants to run.
    request: Option<Time>,
    /// Date at time 0, in nanoseconds since 1970.
    date: u64,
    seq: u32,
    /// Messages of ours that are not answered: number of each.
    unanswered: Vec<u32>,
    /// Messages of the guest's, for reports.
    messages: u64,
}

impl Calendar {
    /// A calendar at time 0, at which it is `date` nanoseconds after 1970.
    pub fn new(date: u64) -> Calendar {
        Calendar {
            now: Time(0),
            guest: Guest::Absent,
            request: None,
            date,
            seq: 0,
            unanswered: Vec::new(),
            messages: 0,
        }
    }

    /// What time it is.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Messages that the guest has sent.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Does a message of ours wait for its answer?
    pub fn is_unanswered(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Takes a message of the guest's; the answer, if it is to have one. Errors: it may not say
    /// that now.
    pub fn receive(&mut self, m: Message) -> Result<Option<Message>, Broken> {
        self.messages += 1;
        let answer = |time: u64| Ok(Some(Message { op: op::ACK, seq: m.seq, time }));
        match (m.op, self.guest) {
            (op::ACK, _) => match self.unanswered.iter().position(|seq| *seq == m.seq) {
                Some(n) => {
                    self.unanswered.remove(n);
                    Ok(None)
                }
                None => Err(Broken(format!(
                    "an acknowledgement of a message {} that was not sent",
                    m.seq
                ))),
            },
            (op::START, Guest::Absent) => {
                self.guest = Guest::Running { until: Some(self.now) };
                // Our number for it, which means something to the shared schedule only.
                answer(0)
            }
            (_, Guest::Absent) => Err(Broken(format!("operation {} before START", m.op))),
            (op::START, _) => Err(Broken("a second START".to_owned())),
            (op::REQUEST, _) => {
                if m.time < self.now.0 {
                    let why =
                        format!("it wants to run at {}, but the time is {}", m.time, self.now.0);
                    return Err(Broken(why));
                }
                self.request = Some(Time(m.time)).filter(|t| t.0 < FOREVER);
                answer(0)
            }
            (op::WAIT, Guest::Running { .. }) => {
                self.guest = Guest::Waiting;
                answer(0)
            }
            (op::WAIT, _) => Err(Broken("it waits twice".to_owned())),
            (op::GET, _) => answer(self.now.0),
            (op::UPDATE, Guest::Running { until }) => {
                // Its start, and what it was granted, bound what it may say.
                let passed = until.is_some_and(|until| m.time > until.0);
                if m.time < self.now.0 || passed {
                    let why = format!("it is {} by its clock, {} by ours", m.time, self.now.0);
                    return Err(Broken(why));
                }
                self.now = Time(m.time);
                answer(0)
            }
            (op::UPDATE, _) => Err(Broken("it updates the time while it waits".to_owned())),
            (op::GET_TOD, _) => answer(self.date.saturating_add(self.now.0)),
            (op::BROADCAST, _) => answer(0),
            (other, _) => Err(Broken(format!("operation {other} is not one of a guest"))),
        }
    }

    /// Whose turn it is, if the next event of a drive is at `drive`.
    pub fn turn(&self, drive: Option<Time>) -> Turn {
        match (self.guest, self.request, drive) {
            (Guest::Waiting, None, None) => Turn::Never,
            (Guest::Waiting, None, Some(d)) => Turn::Drive(d),
            (Guest::Waiting, Some(g), Some(d)) if d <= g => Turn::Drive(d),
            (Guest::Waiting, Some(_), _) => Turn::Guest,
            _ => Turn::Listen,
        }
    }

    /// Time goes on to a drive's event.
    ///
    /// Panics if it would go back, or the guest runs.
    pub fn advance(&mut self, to: Time) {
        assert!(to >= self.now && self.guest == Guest::Waiting, "only the guest may set the time");
        self.now = to;
    }

    /// The guest may run without asking until `drive`, when a drive has its next event. To be sent
    /// before it runs, and while it runs when an event comes nearer.
    pub fn free_until(&mut self, drive: Option<Time>) -> Message {
        let until = drive.map_or(FOREVER - 1, |d| d.0.min(FOREVER - 1));
        if let Guest::Running { until: running } = &mut self.guest {
            *running = Some(Time(until));
        }
        self.message(op::FREE_UNTIL, until)
    }

    /// How far the guest may run now; `None`: it does not run.
    pub fn granted(&self) -> Option<Time> {
        match self.guest {
            Guest::Running { until } => until,
            _ => None,
        }
    }

    /// The guest runs, at the time that it has asked for. `until`: what [`Calendar::free_until`]
    /// has just told it.
    ///
    /// Panics unless it waits and has asked.
    pub fn run(&mut self, until: Option<Time>) -> Message {
        let at = self.request.take();
        let (Guest::Waiting, Some(at)) = (self.guest, at) else {
            panic!("the guest has not asked to run");
        };
        self.now = at.max(self.now);
        self.guest =
            Guest::Running { until: Some(until.unwrap_or(Time(FOREVER - 1)).max(self.now)) };
        self.message(op::RUN, self.now.0)
    }

    fn message(&mut self, op: u32, time: u64) -> Message {
        self.seq += 1;
        self.unanswered.push(self.seq);
        Message { op, seq: self.seq, time }
    }
}

#[cfg(test)]
mod tests;
