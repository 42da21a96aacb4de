//! Waiting for time, and for a turn.

use std::pin::Pin;
use std::task::{Context, Poll};

use wp_base::Time;

use crate::report::Waiting;
use crate::runtime::Rt;
use crate::timers::TimerKey;

/// Future of [`Rt::sleep`]. Ready at once if its time has come already.
#[must_use = "a sleep does nothing unless awaited"]
pub struct Sleep {
    rt: Rt,
    at: Time,
    timer: Timer,
}

#[derive(Clone, Copy)]
enum Timer {
    New,
    Armed(TimerKey),
    Over,
}

impl Sleep {
    #[inline]
    pub(crate) fn new(rt: Rt, at: Time) -> Sleep {
        Sleep { rt, at, timer: Timer::New }
    }
    /// When it ends.
    pub fn at(&self) -> Time {
        self.at
    }
}

impl Future for Sleep {
    type Output = ();
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        match this.timer {
            Timer::New if this.rt.now() < this.at => {
                this.timer = Timer::Armed(this.rt.arm(this.at, cx));
            }
            // Not by the clock: another's wake-up at the very instant must not overtake the timer.
            Timer::Armed(key) if this.rt.rearm(key, this.at, cx) => {}
            _ => {
                this.timer = Timer::Over;
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    #[inline]
    fn drop(&mut self) {
        if let Timer::Armed(key) = self.timer {
            self.rt.disarm(key);
        }
    }
}

/// Future of [`Rt::yield_now`].
#[must_use = "a yield does nothing unless awaited"]
pub struct Yield {
    rt: Rt,
    yielded: bool,
}

impl Yield {
    pub(crate) fn new(rt: Rt) -> Yield {
        Yield { rt, yielded: false }
    }
}

impl Future for Yield {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        self.rt.note(Waiting::Yield);
        let who = self.rt.who(cx);
        self.rt.wake(who);
        Poll::Pending
    }
}
