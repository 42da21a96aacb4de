//! Times, lengths and addresses as types of their own.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Bytes in a device sector.
pub const SECTOR_BYTES: u64 = 512;

/// Nanoseconds since power-on. Virtual or wall: the code cannot tell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(pub u64);

impl Time {
    /// Power-on.
    pub const ZERO: Time = Time(0);
    /// Later than anything that happens.
    pub const NEVER: Time = Time(u64::MAX);

    /// Time since `earlier`; zero if `earlier` lies ahead.
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
    /// Whole seconds since power-on.
    pub fn secs(self) -> u64 {
        self.0 / 1_000_000_000
    }
    /// Nanoseconds within the second.
    pub fn subsec_nanos(self) -> u32 {
        (self.0 % 1_000_000_000) as u32
    }
    /// The instant `span` earlier; power-on if that lies before it.
    pub fn before(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Span {
    /// No time.
    pub const ZERO: Span = Span(0);
    /// `n` nanoseconds.
    pub const fn nanos(n: u64) -> Span {
        Span(n)
    }
    /// `n` microseconds.
    pub const fn micros(n: u64) -> Span {
        Span(n * 1_000)
    }
    /// `n` milliseconds.
    pub const fn millis(n: u64) -> Span {
        Span(n * 1_000_000)
    }
    /// `n` seconds.
    pub const fn secs(n: u64) -> Span {
        Span(n * 1_000_000_000)
    }
    /// This span `n` times.
    pub const fn times(self, n: u64) -> Span {
        Span(self.0 * n)
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}
impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}
impl Sub<Time> for Time {
    type Output = Span;
    /// Panics if `earlier` is later: the caller has mixed up two instants.
    fn sub(self, earlier: Time) -> Span {
        Span(self.0 - earlier.0)
    }
}
impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0 + other.0)
    }
}
impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        self.0 += other.0;
    }
}

impl fmt::Display for Time {
    /// Seconds with nine decimals, as blkparse prints them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.secs(), self.subsec_nanos())
    }
}

/// Device address, in sectors of 512 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Sector(pub u64);

impl Sector {
    /// The sector `sectors` further on.
    pub fn advance(self, sectors: u64) -> Sector {
        Sector(self.0 + sectors)
    }
    /// Byte address of the sector's first byte.
    pub fn bytes(self) -> u64 {
        self.0 * SECTOR_BYTES
    }
}

/// An inode number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Ino(pub u64);

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A file system's block size: a power of two from 512 to 65536 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSize(u32);

impl BlockSize {
    /// `None` unless `bytes` is a power of two from 512 to 65536.
    pub const fn new(bytes: u32) -> Option<BlockSize> {
        if bytes.is_power_of_two() && bytes >= 512 && bytes <= 65536 {
            Some(BlockSize(bytes))
        } else {
            None
        }
    }
    /// In bytes.
    pub const fn bytes(self) -> u32 {
        self.0
    }
    /// In sectors of 512 bytes.
    pub const fn sectors(self) -> u32 {
        self.0 / 512
    }
    /// Base-2 logarithm of the size in bytes.
    pub const fn bits(self) -> u32 {
        self.0.trailing_zeros()
    }
    /// First sector of block `block`.
    pub fn sector_of(self, block: u64) -> Sector {
        Sector(block * u64::from(self.sectors()))
    }
}
