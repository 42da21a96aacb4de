//! An answer that is mostly there at once.

use std::pin::Pin;
use std::task::{Context, Poll};

/// The answer of an operation that mostly need not wait: at once, or by a future.
///
/// It acts when it is made, so it is to be awaited at once. Next to an `async fn` that returns at
/// its first poll it saves the future: its arguments, a call through its states and its drop.
#[must_use = "an operation is to be awaited"]
pub enum MaybeReady<'a, T> {
    /// The answer, until it is taken.
    Now(Option<T>),
    /// It has to wait, or may have to.
    Later(Pin<Box<dyn Future<Output = T> + 'a>>),
}

impl<'a, T> MaybeReady<'a, T> {
    /// An answer.
    #[inline]
    pub fn now(answer: T) -> MaybeReady<'a, T> {
        MaybeReady::Now(Some(answer))
    }

    /// What may have to wait.
    pub fn later(work: impl Future<Output = T> + 'a) -> MaybeReady<'a, T> {
        MaybeReady::Later(Box::pin(work))
    }
}

impl<T: Unpin> Future for MaybeReady<'_, T> {
    type Output = T;
    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match self.get_mut() {
            MaybeReady::Now(answer) => {
                Poll::Ready(answer.take().expect("polled after it was ready"))
            }
            MaybeReady::Later(work) => work.as_mut().poll(cx),
        }
    }
}

/// The answer of a [`MaybeReady`], awaited if it is not there: `soon!(expression)`. As `.await`,
/// without keeping a [`MaybeReady`] that had its answer in the caller's future until it is dropped.
#[macro_export]
macro_rules! soon {
    ($soon:expr) => {{
        match $soon {
            $crate::MaybeReady::Now(answer) => answer.expect("an answer is taken once"),
            $crate::MaybeReady::Later(work) => work.await,
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rt;
    use wp_base::{Span, Time};

    #[test]
    fn an_answer_is_there_or_comes_later() {
        let rt = Rt::new(1);
        let rt2 = rt.clone();
        let run = rt.block_on("test", async move {
            let now: u32 = soon!(MaybeReady::now(1));
            let begun = rt2.now();
            let later: u32 = soon!(MaybeReady::later(async {
                rt2.sleep(Span::millis(2)).await;
                2
            }));
            (now, begun, later, rt2.now())
        });
        assert_eq!(run, Ok((1, Time::ZERO, 2, Time::ZERO + Span::millis(2))));
    }
}
