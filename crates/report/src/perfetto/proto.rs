//! The messages that we write. Field numbers: `perfetto_trace.proto`.

use prost::Message;

/// `Trace`.
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    /// Its packets.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// `TracePacket`.
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// Nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// Which writer; never 0.
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    /// An event.
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    /// 1: the writer's state is fresh.
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    /// A track.
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// `TrackDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// Its number.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    /// Its name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// It stands for a process.
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    /// It stands for a thread.
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    /// The track that it is shown under.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// It counts something.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
    /// How the tracks under it are ordered: [`BY_RANK`].
    #[prost(int32, optional, tag = "11")]
    pub child_ordering: Option<i32>,
    /// Its place among the tracks beside it.
    #[prost(int32, optional, tag = "12")]
    pub sibling_order_rank: Option<i32>,
}

/// `CounterDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {
    /// [`UNIT_COUNT`] or [`UNIT_BYTES`].
    #[prost(int32, optional, tag = "3")]
    pub unit: Option<i32>,
}

/// `ProcessDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    /// Its number.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// Its name.
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

/// `ThreadDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct ThreadDescriptor {
    /// Its process.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// Its number.
    #[prost(int32, optional, tag = "2")]
    pub tid: Option<i32>,
    /// Its name.
    #[prost(string, optional, tag = "5")]
    pub thread_name: Option<String>,
}

/// `TrackEvent`.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// Named values.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// [`BEGIN`], [`END`] or [`INSTANT`].
    #[prost(int32, optional, tag = "9")]
    pub r#type: Option<i32>,
    /// Its track.
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    /// Its name.
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// The value of a counter.
    #[prost(int64, optional, tag = "30")]
    pub counter_value: Option<i64>,
    /// Flows that go through it.
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
}

/// `DebugAnnotation`.
#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    /// A number.
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    /// A text.
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
    /// Its name.
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
}

/// A slice begins.
pub const BEGIN: i32 = 1;
/// The track's innermost slice ends.
pub const END: i32 = 2;
/// A point in time.
pub const INSTANT: i32 = 3;
/// A counter's value from here on.
pub const COUNTER: i32 = 4;
/// A counter's unit: things.
pub const UNIT_COUNT: i32 = 2;
/// A counter's unit: bytes.
pub const UNIT_BYTES: i32 = 3;
/// Tracks are ordered by rank.
pub const BY_RANK: i32 = 3;
