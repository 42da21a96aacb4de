//! Events as a table: one Parquet file, which DuckDB, pandas and polars open directly.
//!
//! Picture:    record -> a cell in each column that the event has (`write`) -> row groups of
//!             `GROUP` rows -> file; and back (`read`).
//! Laws:       what is read is what was written, event for event; equal events are equal bytes.
//! Invariants: any bytes are taken: what is wrong is told with its row.
//! Source:     Apache Parquet format 2.11; docs/results.md has the columns.

mod read;
mod write;

pub use read::{Classes, is_table, parse, read};
pub use write::{ClassOf, write};

#[cfg(test)]
mod tests;

/// Rows of a row group: what a reader holds at once.
const GROUP: usize = 1 << 17;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Text, of few different values.
    Text,
    /// Whole numbers that mostly grow from row to row.
    Growing,
    /// Other whole numbers.
    Number,
    /// Truth values.
    Truth,
    /// Lists of whole numbers.
    Numbers,
}

/// A column of the table of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Its name; times end with `_ns`.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What it says, and of which events; of all others it is null.
    pub about: &'static str,
}

/// Declares the columns, and a constant with the place of each.
macro_rules! columns {
    ($($place:ident $name:literal $kind:ident $about:literal)*) => {
        /// All columns, in the order of the file. The first three are of every event.
        pub const COLUMNS: &[Column] =
            &[$(Column { name: $name, kind: Kind::$kind, about: $about }),*];

        /// Places of columns.
        #[expect(
            non_camel_case_types,
            clippy::upper_case_acronyms,
            reason = "they are names of constants"
        )]
        #[derive(Clone, Copy)]
        enum Place { $($place),* }

        $(const $place: usize = Place::$place as usize;)*
    };
}

columns! {
    TIME "time_ns" Growing "virtual time of the event, nanoseconds"
    TASK "task" Text "task that ran; `swapper`: interrupt context"
    EVENT "event" Text "kind of the event"
    NAME "name" Text "system call, CPU operation, journal phase, work, lock or mark"
    STEP "step" Text "`fs`: asked, begin, end, or the name of a phase"
    WHY "why" Text "`fs`: the reason for the work"
    TARGET "target" Text "`enter`: path or descriptor; `wakeup`: the woken task"
    ACTION "action" Text "`block`: the letter of blktrace: Q, G, I, D, C, …"
    OP "op" Text "`block`, `command`: read, write, flush, discard, zone …"
    FLAGS "flags" Number "`block`, `command`: flags as bits"
    RWBS "rwbs" Text "`block`, `command`: operation and flags as blkparse prints them"
    SECTOR "sector" Number "`block`, `command`: first 512-byte sector on the drive"
    SECTORS "sectors" Number "`block`, `command`: number of sectors"
    CLASS "class" Text "`block`: what the blocks are at the end of the run: `journal*5`, `data:f_0`"
    ID "id" Growing "number of the call, command, transaction or work"
    VALUE "value" Number "`exit`: bytes or descriptor; `block` C: nanoseconds since Q; `jbd2`: its number"
    OK "ok" Truth "`exit`, `command_end`: success"
    DURATION "duration_ns" Number "`cpu`: modelled CPU time, nanoseconds"
    CORE "core" Number "`switch_in`: the core, from 0"
    READY "is_ready" Truth "`switch_out`: the task waits for a core only"
    TIMER "by_timer" Truth "`wakeup`: the end of a sleep"
    READY_NS "ready_ns" Growing "`device`: the earliest possible start, nanoseconds"
    FROM_NS "from_ns" Growing "`device`: the start, nanoseconds"
    TO_NS "to_ns" Growing "`device`: the end, nanoseconds"
    CHANNEL "channel" Number "`device`: channel of the die, from 0"
    DIE "die" Number "`device`: the die, from 0, over the whole drive"
    BUS_NS "bus_ns" Number "`device`: data transfer on the channel, nanoseconds"
    CELLS_NS "cells_ns" Number "`device`: time of the flash cells, nanoseconds"
    BYTES "bytes" Number "`device`: bytes of the host, without padding"
    GC "is_gc" Truth "`device`: garbage collection"
    COMMANDS "commands" Numbers "`device`: commands that waited for its end"
    HOLD_SECTOR "hold_sector" Numbers "`device` program: first sectors of ranges made durable"
    HOLD_SECTORS "hold_sectors" Numbers "`device` program: lengths of these ranges, sectors"
}

/// The kinds of events, as the column `event` has them, with what each is.
pub const EVENT_KINDS: &[(&str, &str)] = &[
    ("block", "an action of the block layer"),
    ("jbd2", "a phase of a journal commit, or another trace event of jbd2"),
    ("cpu", "modelled CPU time of an operation"),
    ("wakeup", "a task was woken"),
    ("fs", "a step of work that several calls share: commit, checkpoint, log, …"),
    ("switch_in", "a task got a core"),
    ("switch_out", "a task gave its core up"),
    ("enter", "a system call began"),
    ("exit", "a system call returned"),
    ("mark", "a mark of the workload"),
    ("command", "the drive took a command"),
    ("command_end", "the drive completed a command"),
    ("device", "work inside the drive: transfer, program, read, erase, …"),
];
