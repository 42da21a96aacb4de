//! How a failed write of cached data is remembered until somebody asks.
//!
//! Two ways: a flag that whoever asks first clears (`AS_EIO`), and a value that moves with each
//! failure, of which every open file keeps a copy (`errseq_t`, 4.13).
//! Source: Linux 6.1 `include/linux/errseq.h`, `lib/errseq.c`; commits 5660e13d2fd6 (4.13) and
//!         b4678df184b3 (4.17).

use std::cell::Cell;

/// What an [`ErrSeq`] said when it was sampled (`errseq_sample`). The default: no failure yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrMark {
    failed: bool,
    count: u32,
    seen: bool,
}

/// A place where failures are remembered (`errseq_t`).
#[derive(Debug, Default)]
pub struct ErrSeq(Cell<ErrMark>);

impl ErrSeq {
    /// A write has failed. It counts anew only if somebody has seen the last one (`errseq_set`).
    pub fn set(&self) {
        let old = self.0.get();
        let count = old.count.wrapping_add(u32::from(old.seen));
        self.0.set(ErrMark { failed: true, count, seen: false });
    }

    /// What a file that is opened now begins with (`errseq_sample`). With `unseen` (4.17) a failure
    /// that nobody has seen is still to be told to it; without, it is taken as seen.
    pub fn sample(&self, unseen: bool) -> ErrMark {
        let now = self.0.get();
        match (now.seen || !now.failed, unseen) {
            (true, _) => now,
            (false, true) => ErrMark::default(),
            (false, false) => {
                self.0.set(ErrMark { seen: true, ..now });
                self.0.get()
            }
        }
    }

    /// Has a write failed since `mark`? `mark` then says that this was told
    /// (`errseq_check_and_advance`).
    pub fn check_and_advance(&self, mark: &Cell<ErrMark>) -> bool {
        if self.0.get() == mark.get() {
            return false;
        }
        let now = ErrMark { seen: true, ..self.0.get() };
        self.0.set(now);
        mark.set(now);
        now.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_is_told_once_of_each_failure() {
        let seq = ErrSeq::default();
        let (a, b) = (Cell::new(seq.sample(true)), Cell::new(seq.sample(true)));
        assert!(!seq.check_and_advance(&a));
        seq.set();
        seq.set();
        assert!(seq.check_and_advance(&a) && !seq.check_and_advance(&a), "two unseen are one");
        assert!(seq.check_and_advance(&b) && !seq.check_and_advance(&b));
        seq.set();
        assert!(seq.check_and_advance(&a) && seq.check_and_advance(&b), "a new one");
    }

    #[test]
    fn who_comes_later_is_told_of_what_nobody_has_seen_since_4_17() {
        for unseen in [false, true] {
            let seq = ErrSeq::default();
            seq.set();
            let late = Cell::new(seq.sample(unseen));
            assert_eq!(seq.check_and_advance(&late), unseen);
            let later = Cell::new(seq.sample(unseen));
            assert!(!seq.check_and_advance(&later), "it has been seen");
        }
    }
}
