//! Several futures in one task.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use wp_base::Span;

use crate::runtime::Rt;

/// Which of two was first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Either<A, B> {
    /// The first argument.
    Left(A),
    /// The second argument.
    Right(B),
}

/// Waits: for the first of two; the other is dropped. If both are ready, the left one counts.
pub async fn race<A, B>(
    left: impl Future<Output = A>,
    right: impl Future<Output = B>,
) -> Either<A, B> {
    let mut left = pin!(left);
    let mut right = pin!(right);
    poll_fn(|cx| {
        if let Poll::Ready(a) = left.as_mut().poll(cx) {
            return Poll::Ready(Either::Left(a));
        }
        right.as_mut().poll(cx).map(Either::Right)
    })
    .await
}

/// Waits: for `fut`, but at most `span`. `None`: time was up, and `fut` is dropped.
pub async fn timeout<T>(rt: &Rt, span: Span, fut: impl Future<Output = T>) -> Option<T> {
    let mut fut = pin!(fut);
    let mut over = pin!(rt.sleep(span));
    poll_fn(|cx| {
        // The sleep first, so that a report names what `fut` waits for.
        let over = over.as_mut().poll(cx).is_ready();
        match fut.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if over => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Waits: for all. Results in the order of the arguments; polls in that order too.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<Option<Pin<Box<F>>>> =
        futures.into_iter().map(|f| Some(Box::pin(f))).collect();
    let mut results: Vec<Option<F::Output>> = pending.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut all = true;
        for (slot, result) in pending.iter_mut().zip(&mut results) {
            let Some(fut) = slot else { continue };
            match fut.as_mut().poll(cx) {
                Poll::Ready(value) => {
                    *result = Some(value);
                    *slot = None;
                }
                Poll::Pending => all = false,
            }
        }
        if all { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().map(|r| r.expect("every future has ended")).collect()
}
