//! What a device did within: the part of the schema that its model tells.

use crate::units::{Sector, Span, Time};

/// Kinds of work, and of waiting, inside a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Work {
    /// The controller takes the command apart.
    Decode,
    /// The command waits for room in the write buffer.
    AwaitBuffer,
    /// Its data move between the host and the buffer.
    Transfer,
    /// Its data, which have come, wait for an erased flash block.
    AwaitErased,
    /// What it reads is in the buffer still.
    BufferHit,
    /// A device without flash does what it was told.
    Serve,
    /// A volatile cache is written to what is behind it.
    WriteBack,
    /// A die reads pages.
    Read,
    /// A die programs pages.
    Program,
    /// A die erases blocks.
    Erase,
}

impl Work {
    /// All of them.
    pub const ALL: [Work; 10] = [
        Work::Decode,
        Work::AwaitBuffer,
        Work::Transfer,
        Work::AwaitErased,
        Work::BufferHit,
        Work::Serve,
        Work::WriteBack,
        Work::Read,
        Work::Program,
        Work::Erase,
    ];

    /// Its name in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Work::Decode => "decode",
            Work::AwaitBuffer => "wait for buffer",
            Work::Transfer => "transfer",
            Work::AwaitErased => "wait for erased block",
            Work::BufferHit => "buffer hit",
            Work::Serve => "serve",
            Work::WriteBack => "write back",
            Work::Read => "read",
            Work::Program => "program",
            Work::Erase => "erase",
        }
    }
}

/// A die and the channel that it is on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Die {
    /// The channel, from 0.
    pub channel: u32,
    /// The die, from 0, counted over the whole device.
    pub die: u32,
}

/// One piece of work. `ready <= from <= to`; its times may lie ahead of the record's, since a
/// device plans.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceWork {
    /// What.
    pub what: Work,
    /// Where, if a die does it.
    pub die: Option<Die>,
    /// From when it could have been done.
    pub ready: Time,
    /// When it began.
    pub from: Time,
    /// When it ended.
    pub to: Time,
    /// Of a die's time: how long its channel moved data, at the start for a program, at the end for
    /// a read.
    pub bus: Span,
    /// Of a die's time: how long its cells were read, programmed or erased.
    pub cells: Span,
    /// Bytes of the host that it concerns; padding not counted.
    pub bytes: u64,
    /// Is it garbage collection's?
    pub gc: bool,
    /// The commands that waited for its end. None: it happened in the background.
    pub commands: Vec<u64>,
    /// Of a program: the host's ranges that it makes durable, first sector and sectors. Empty of
    /// everything else, and where a model does not tell.
    pub holds: Vec<(Sector, u32)>,
}

impl DeviceWork {
    /// Work for one command in the device's front, away from the dies.
    pub fn front(what: Work, command: u64, ready: Time, from: Time, to: Time) -> DeviceWork {
        DeviceWork {
            what,
            die: None,
            ready,
            from,
            to,
            bus: Span::ZERO,
            cells: Span::ZERO,
            bytes: 0,
            gc: false,
            commands: vec![command],
            holds: Vec::new(),
        }
    }
}
