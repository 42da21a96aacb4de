//! Several streams of requests at one device, each at its own pace.
//!
//! Picture:    streams -> which has a request that is due, the earliest first -> device.
//! Laws:       1. a stream with a depth sends its next request when fewer than the depth are in
//!                flight; a timed stream sends it at its time, counted from the beginning;
//!             2. of requests that are due at one moment the streams take turns;
//!             3. no more than the depth of [`Options`] are at the device or wait for it.
//! Invariants: the same streams on the same device give the same outcome.

use wp_base::{Span, Time};
use wp_block::DeviceModel;

use super::{LOOK_EVERY, Options, Outcome, Player, Progress, ReplayError, SPAN_MAX, StreamCounts};
use crate::error::TraceError;
use crate::requests::Request;

/// When the requests of a stream are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// A number of requests is kept in flight, until a time if there is one.
    Depth {
        /// How many.
        depth: u32,
        /// Nothing is sent after this virtual time.
        until: Option<Span>,
    },
    /// At their times, nanoseconds since the beginning.
    Timed,
}

/// Requests that come one after the other, in the order of their times.
pub struct Stream<'a> {
    /// They.
    pub requests: Box<dyn Iterator<Item = Result<Request, TraceError>> + 'a>,
    /// When they are sent.
    pub pace: Pace,
}

/// Plays streams on `device`. `go_on` is asked now and then; what was done until it says no counts.
/// The mode of `options` is that of each stream's pace. Errors: as [`super::replay`].
pub fn replay_streams(
    device: Box<dyn DeviceModel>,
    streams: Vec<Stream<'_>>,
    options: &Options,
    go_on: &mut dyn FnMut(Progress) -> bool,
) -> Result<Outcome, ReplayError> {
    let mut player = Player::new(device, *options);
    player.under_way = vec![0; streams.len()];
    if player.fill(go_on)? {
        // What filling did is no stream's.
        player.out.streams = vec![StreamCounts::default(); streams.len()];
        let waiting = streams.into_iter().map(|of| Waiting { of, next: None, ended: false });
        player.play_streams(&mut waiting.collect::<Vec<_>>(), go_on)?;
    }
    Ok(player.outcome())
}

/// A stream, and its request that was not sent yet.
struct Waiting<'a> {
    of: Stream<'a>,
    next: Option<Request>,
    ended: bool,
}

impl Waiting<'_> {
    fn fill(&mut self) -> Result<(), ReplayError> {
        if self.next.is_none() && !self.ended {
            self.next = self.of.requests.next().transpose().map_err(ReplayError::Trace)?;
            self.ended = self.next.is_none();
        }
        Ok(())
    }
}

impl Player {
    /// When the next request of a stream is due; `None` if it has none, or none yet.
    fn due(&self, n: usize, stream: &mut Waiting<'_>) -> Result<Option<Time>, ReplayError> {
        stream.fill()?;
        let Some(r) = stream.next else { return Ok(None) };
        match stream.of.pace {
            Pace::Timed => {
                let after = Span(r.event.at_ns);
                if after > SPAN_MAX {
                    let what = format!("{} s after the beginning", after.0 / 1_000_000_000);
                    let help = "a trace spans at most a century: check its unit of time";
                    return Err(ReplayError::Request { request: Box::new(r), what, help });
                }
                Ok(Some(self.began + after))
            }
            Pace::Depth { until: Some(until), .. } if self.host.now() > self.began + until => {
                (stream.next, stream.ended) = (None, true);
                Ok(None)
            }
            Pace::Depth { depth, .. } => {
                Ok((self.under_way[n] < u64::from(depth)).then(|| self.host.now()))
            }
        }
    }

    fn play_streams(
        &mut self,
        streams: &mut [Waiting<'_>],
        go_on: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<(), ReplayError> {
        let (mut number, mut turn) = (0u64, 0);
        loop {
            // The earliest; of several the one whose turn it is.
            let mut first: Option<(Time, usize, usize)> = None;
            for after in 0..streams.len() {
                let n = (turn + after) % streams.len();
                if let Some(due) = self.due(n, &mut streams[n])? {
                    let candidate = (due, after, n);
                    first = Some(first.map_or(candidate, |f| f.min(candidate)));
                }
            }
            let has_room = self.flights.len() < self.depth && self.host.is_idle();
            let mut wake = Time::NEVER;
            match first {
                Some((due, _, n)) if has_room && due <= self.host.now() => {
                    let Some(r) = streams[n].next.take() else { continue };
                    self.send(&r, (number, n), due)?;
                    self.out.trace = self.host.now().since(self.began);
                    (number, turn) = (number + 1, n + 1);
                    let elapsed = self.host.now().since(self.began);
                    let progress = Progress { requests: number, filled: None, elapsed };
                    if number.is_multiple_of(LOOK_EVERY) && !go_on(progress) {
                        self.out.interrupted = true;
                        streams.iter_mut().for_each(|s| (s.next, s.ended) = (None, true));
                    }
                    continue;
                }
                Some((due, ..)) if has_room => wake = due,
                Some(_) => {}
                None if self.flights.is_empty() => return Ok(()),
                None => {}
            }
            if !self.host.step(wake) {
                return Err(ReplayError::Stuck(self.host.now()));
            }
            self.settle();
        }
    }
}
