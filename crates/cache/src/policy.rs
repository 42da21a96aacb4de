//! How a flusher behaves.

use wp_base::Span;
use wp_rt::Ticks;

use crate::era::Era;

/// How a flusher behaves: kernel settings and what differs between eras.
#[derive(Clone, Debug)]
pub struct WbPolicy {
    /// Name of the flusher's task as traces show it: `flush-8:16`, later `kworker/u4:1`.
    pub task: String,
    /// Timer ticks a second. 250 is what the paper's distributions and the reference kernels use.
    pub hz: u64,
    /// `dirty_writeback_centisecs`: how often the flusher looks (5 s).
    pub interval: Span,
    /// `dirty_expire_centisecs`: the age at which data must be written (30 s).
    pub expire: Span,
    /// The rules of its kernel.
    pub era: Era,
    /// Dirty blocks above which the flusher starts by itself (`dirty_background_ratio`).
    pub background_blocks: u64,
    /// Dirty blocks above which writers wait (`dirty_ratio`).
    pub dirty_blocks: u64,
    /// Blocks that other devices had written shortly before. The background limit is shared by what
    /// each has written lately: where others have, a device that has written nothing for some
    /// seconds has no part of it, and its flusher writes at its next look all that is dirty
    /// (`wb_over_bg_thresh`). To the flusher a file system can be a device of its own, beside the
    /// block device through which mkfs wrote (`super_setup_bdi`).
    pub others_wrote: u64,
}

impl WbPolicy {
    /// A kernel's defaults, for the device with this number.
    pub fn of(era: Era, (major, minor): (u32, u32)) -> WbPolicy {
        let task = match era.flusher_is_kworker() {
            true => "kworker/u4:1".to_owned(),
            false => format!("flush-{major}:{minor}"),
        };
        WbPolicy { task, era, ..WbPolicy::default() }
    }

    /// With the limits of dirty data that `vm.dirty_background_bytes` and `vm.dirty_bytes` give,
    /// where they are set. The background limit stays below half of the other
    /// (`domain_dirty_limits()`).
    #[must_use]
    pub fn limited(mut self, background_bytes: Option<u64>, bytes: Option<u64>) -> WbPolicy {
        const BLOCK: u64 = 4096;
        self.dirty_blocks = bytes.map_or(self.dirty_blocks, |n| n / BLOCK);
        let background = background_bytes.map_or(self.background_blocks, |n| n / BLOCK);
        self.background_blocks = background.min(self.dirty_blocks / 2);
        self
    }

    /// Its timer ticks.
    pub fn ticks(&self) -> Ticks {
        Ticks { hz: self.hz, wheel: self.era.wheel_timers() }
    }
}

impl Default for WbPolicy {
    fn default() -> WbPolicy {
        WbPolicy {
            task: "kworker/u4:1".to_owned(),
            hz: 250,
            interval: Span::secs(5),
            expire: Span::secs(30),
            era: Era::default(),
            // 10 % and 20 % of the 6 GB of the paper's PC, in 4 KiB blocks.
            background_blocks: 157_000,
            dirty_blocks: 314_000,
            others_wrote: 0,
        }
    }
}
