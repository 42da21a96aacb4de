//! Work in pieces that know nothing of each other, on several threads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Does pieces `0..n` on `workers` threads (one at least), the first ones first. What comes out, in
/// the order of the pieces, does not depend on the number of threads. Each thread makes a `state`
/// of its own before its first piece. A piece that answers `None` ends it: pieces that were not
/// begun are left out, and `None` as well.
pub fn each<S, R: Send + Sync>(
    workers: usize,
    n: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> Option<R> + Sync,
) -> Vec<Option<R>> {
    let slots: Vec<OnceLock<R>> = (0..n).map(|_| OnceLock::new()).collect();
    let (next, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..workers.clamp(1, n.max(1)) {
            scope.spawn(|| {
                let mut state = state();
                while !ended.load(Ordering::SeqCst) {
                    let i = next.fetch_add(1, Ordering::SeqCst);
                    let Some(slot) = slots.get(i) else { return };
                    match work(&mut state, i) {
                        Some(done) => drop(slot.set(done)),
                        None => ended.store(true, Ordering::SeqCst),
                    }
                }
            });
        }
    });
    slots.into_iter().map(OnceLock::into_inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_out_is_in_order_with_any_number_of_threads() {
        for workers in [0, 1, 2, 7, 100] {
            let done = each(workers, 20, || 0, |_, i| Some(i * i));
            let expected: Vec<Option<usize>> = (0..20).map(|i| Some(i * i)).collect();
            assert_eq!(done, expected, "{workers} threads");
        }
        assert!(each(3, 0, || (), |(), i| Some(i)).is_empty());
    }

    #[test]
    fn a_thread_has_one_state() {
        let done = each(
            1,
            5,
            || 10,
            |state, _| {
                *state += 1;
                Some(*state)
            },
        );
        assert_eq!(done, [Some(11), Some(12), Some(13), Some(14), Some(15)]);
    }

    #[test]
    fn no_piece_is_begun_behind_one_that_ends_it() {
        let done = each(1, 9, || (), |(), i| (i < 4).then_some(i));
        assert_eq!(done[..4], [Some(0), Some(1), Some(2), Some(3)]);
        assert!(done[4..].iter().all(Option::is_none));
    }
}
