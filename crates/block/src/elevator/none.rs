//! `none`: blk-mq without an elevator. Each core has its own queue of requests that could not be
//! issued at once; the hardware queue takes all of them, core by core.
//!
//! Picture:    core 0: r r r | core 1: r -> spliced in the order of the cores -> device. While the
//!             device refuses requests (`dispatch_busy`) they are taken one by one, from each core
//!             in turn, so that those left behind can still be merged with.
//! Source:     behaviour of `blk_mq_flush_busy_ctxs()`, `blk_mq_do_dispatch_ctx()`,
//!             `blk_bio_list_merge()` (`block/blk-mq.c`, `blk-mq-sched.c`, 6.1).

use crate::elevator::interface::{Elevator, ElvCx, Kick};
use crate::merge;
use crate::pool::{BioInfo, List, Pool, RqId};

/// Newest requests of a core's queue that a bio is compared with (`blk_bio_list_merge()`).
const MERGE_TRIES: usize = 8;

/// No elevator.
#[derive(Default)]
pub struct NoElevator {
    /// By core (`struct blk_mq_ctx`).
    cores: Vec<List>,
    /// What has been taken from them and not yet been issued.
    spliced: List,
    /// Whose turn it is while the device is busy (`hctx->dispatch_from`).
    turn: usize,
    busy: bool,
}

impl NoElevator {
    /// Without requests.
    pub fn new() -> NoElevator {
        NoElevator::default()
    }

    fn take_all(&mut self, pool: &mut Pool) {
        for list in &mut self.cores {
            while let Some(rq) = list.first() {
                list.remove(pool, rq);
                self.spliced.push(pool, rq);
            }
        }
    }

    fn take_in_turn(&mut self, pool: &mut Pool) -> Option<RqId> {
        let count = self.cores.len();
        for step in 0..count {
            let core = (self.turn + step) % count;
            if let Some(rq) = self.cores[core].first() {
                self.cores[core].remove(pool, rq);
                self.turn = (core + 1) % count;
                return Some(rq);
            }
        }
        None
    }
}

impl Elevator for NoElevator {
    fn starting_at_end(&self, pool: &Pool, bio: &BioInfo) -> Option<RqId> {
        let list = self.cores.get(bio.core as usize)?;
        let newest = std::iter::successors(list.last(), |rq| List::around(pool, *rq).0);
        newest.take(MERGE_TRIES).find(|rq| merge::side(&pool[*rq], bio).is_some())
    }
    fn neighbours(&self, _pool: &Pool, _rq: RqId) -> (Option<RqId>, Option<RqId>) {
        (None, None)
    }
    fn insert(&mut self, cx: &mut ElvCx<'_>, rq: RqId) -> Kick {
        let core = cx.pool[rq].core as usize;
        if self.cores.len() <= core {
            self.cores.resize_with(core + 1, List::default);
        }
        self.cores[core].push(cx.pool, rq);
        Kick::No
    }
    fn absorbed(&mut self, cx: &mut ElvCx<'_>, _kept: RqId, gone: RqId) {
        let core = cx.pool[gone].core as usize;
        self.cores[core].remove(cx.pool, gone);
    }
    fn next(&mut self, cx: &mut ElvCx<'_>) -> Option<RqId> {
        if self.spliced.is_empty() {
            if self.busy {
                return self.take_in_turn(cx.pool);
            }
            self.take_all(cx.pool);
        }
        let rq = self.spliced.first()?;
        self.spliced.remove(cx.pool, rq);
        Some(rq)
    }
    fn pressed(&mut self, busy: bool) {
        self.busy = busy;
    }
    fn queued(&self) -> usize {
        self.cores.iter().map(List::len).sum::<usize>() + self.spliced.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::IoClass;
    use wp_base::event::{Flags, Op};
    use wp_base::{Sector, Time};

    fn info(at: u64, core: u32) -> BioInfo {
        let (at, flags, class) = (Sector(at), Flags::NONE, IoClass::BestEffort);
        let (op, epoch) = (Op::Write, crate::pool::NO_EPOCH);
        BioInfo { op, flags, at, sectors: 8, segments: 1, task: None, core, class, epoch }
    }

    fn order(busy: bool) -> Vec<u64> {
        let (mut pool, mut none) = (Pool::default(), NoElevator::new());
        none.pressed(busy);
        for (at, core) in [(800, 1), (0, 0), (900, 1), (100, 0), (500, 3)] {
            let rq = pool.alloc(&info(at, core), Time(1));
            let mut cx = ElvCx { now: Time(1), pool: &mut pool, timer: None };
            none.insert(&mut cx, rq);
        }
        // Only with the newest of its own core, and on either side.
        assert!(none.starting_at_end(&pool, &info(908, 1)).is_some());
        assert!(none.starting_at_end(&pool, &info(892, 1)).is_some());
        assert!(none.starting_at_end(&pool, &info(908, 0)).is_none());
        std::iter::from_fn(|| {
            let mut cx = ElvCx { now: Time(1), pool: &mut pool, timer: None };
            none.next(&mut cx).map(|rq| cx.pool[rq].at.0)
        })
        .collect()
    }

    #[test]
    fn cores_follow_one_another_or_take_turns_while_the_device_is_busy() {
        assert_eq!(order(false), [0, 100, 800, 900, 500]);
        assert_eq!(order(true), [0, 800, 500, 100, 900]);
    }
}
