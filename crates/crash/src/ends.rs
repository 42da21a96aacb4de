//! Until when a power failure can leave a state of a frame: the same answer as
//! [`History::until`], for the thousands of states of one frame.
//!
//! A state is possible until one of its lost units is there for good. Units in the order of that
//! make the first lost one of them the answer, and a state loses most often one of the first.

use crate::history::History;
use crate::states::Kept;

/// The ends of a frame's states.
pub(crate) struct Ends {
    /// Unpersisted units of the frame by the frame in which each is there, and that frame.
    order: Vec<(u32, u32)>,
    /// The same of units that come later, the first of them.
    later: u32,
    frame: usize,
}

impl Ends {
    pub(crate) fn of(history: &History, frame: usize) -> Ends {
        let live = &history.frames[frame].live;
        let mut order: Vec<(u32, u32)> =
            (0..).zip(live).map(|(i, n)| (history.gone(*n), i)).collect();
        order.sort_unstable();
        Ends { order, later: history.later_gone(frame), frame }
    }

    /// The last position on the tape, exclusive, at which a power failure can leave this state.
    #[inline]
    pub(crate) fn until(&self, history: &History, kept: &Kept) -> usize {
        let lost = self.order.iter().find(|(_, unit)| !kept.has(*unit as usize));
        let own = lost.map_or(u32::MAX, |(gone, _)| *gone);
        let end = history.position(own.min(self.later));
        // Of one state in 61: of all it would take as long as what is asserted saves.
        debug_assert!(
            kept.words().first().is_some_and(|w| w % 61 != 0)
                || end == history.until(self.frame, |i| kept.has(i))
        );
        end
    }
}
