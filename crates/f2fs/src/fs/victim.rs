//! Choosing segments: to be cleaned, or to be filled where they have holes.
//!
//! Source: Linux `fs/f2fs/gc.c` (`get_victim_by_default`, `get_cb_cost`), `segment.c`
//!         (`get_ssr_segment`).

use crate::disk::{Log, SEGMENT_BLOCKS};

use super::space::Space;

/// Most dirty segments that are searched for one victim, except in the foreground
/// (`DEF_MAX_VICTIM_SEARCH`).
const SEARCH_MOST: u32 = 4096;

/// How a section is chosen to be cleaned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Policy {
    /// Where most is gained for its age (background).
    CostBenefit = 0,
    /// Where fewest blocks are in use (foreground).
    Greedy = 1,
}

impl Space {
    /// Is the section out of bounds (`sec_usage_check`)?
    fn is_busy(&self, section: u32) -> bool {
        self.is_cursec(section) || self.segs.victim == Some(section)
    }

    /// Cost-benefit: low for old sections with little in use (`get_cb_cost`).
    fn cb_cost(&mut self, segment: u32) -> u32 {
        let start = self.g.section_of(segment) * self.g.section_segments;
        let n = self.usable_segments();
        let mtime: u64 = (start..start + n).map(|s| self.seg(s).mtime).sum::<u64>() / u64::from(n);
        let valid = self.section_valid(segment) / n;
        let u = valid * 100 / SEGMENT_BLOCKS;
        self.sit.min_mtime = self.sit.min_mtime.min(mtime);
        self.sit.max_mtime = self.sit.max_mtime.max(mtime);
        let (min, max) = (self.sit.min_mtime, self.sit.max_mtime);
        let age = if max == min { 0 } else { 100 - 100 * (mtime - min) / (max - min) };
        u32::MAX - (100 * (100 - u.min(100)) * age as u32) / (100 + u)
    }

    /// A section to be cleaned, as its first segment, or, where sections are large and one was
    /// begun, the segment that is next (`get_victim_by_default` with `LFS`).
    pub fn gc_victim(&mut self, foreground: bool) -> Option<u32> {
        let unit = self.g.section_segments;
        let policy = if foreground { Policy::Greedy } else { Policy::CostBenefit };
        let dirty = if self.is_large() { &self.segs.dirty_sections } else { &self.segs.dirty };
        let mut search = dirty.ones();
        if !foreground {
            search = search.min(SEARCH_MOST);
        }
        if search == 0 {
            return None;
        }
        if self.is_large() {
            for kind in [false, true] {
                if kind && !foreground {
                    continue;
                }
                if let Some(segment) = self.segs.next_victim[usize::from(kind)].take() {
                    self.mark_victim(segment, foreground);
                    return Some(segment);
                }
            }
        }
        if foreground && let Some(section) = self.background_victim() {
            let segment = section * unit;
            self.mark_victim(segment, true);
            return Some(segment);
        }
        let found = self.search(None, policy, search, foreground)?;
        let segment = found / unit * unit;
        self.mark_victim(segment, foreground);
        Some(segment)
    }

    fn mark_victim(&mut self, segment: u32, foreground: bool) {
        let section = self.g.section_of(segment);
        if foreground {
            self.segs.victim = Some(section);
        } else {
            self.segs.victims.put(section, true);
        }
    }

    /// One that background garbage collection had chosen (`check_bg_victims`).
    fn background_victim(&mut self) -> Option<u32> {
        let mut from = 0;
        while let Some(section) = self.segs.victims.next(true, from, self.g.sections) {
            if !self.is_busy(section) {
                self.segs.victims.put(section, false);
                return Some(section);
            }
            from = section + 1;
        }
        None
    }

    /// A segment of `log`, or of its kin, with holes that can be filled (`get_ssr_segment`).
    pub fn ssr_segment(&mut self, log: Log) -> Option<u32> {
        if let Some(found) = self.ssr_of(log) {
            return Some(found);
        }
        let kin = if log.is_node() { Log::NODE } else { Log::DATA };
        // From the cold end, but for the hot log itself.
        let order: Vec<Log> =
            if log == kin[0] { kin.to_vec() } else { kin.iter().rev().copied().collect() };
        order.into_iter().filter(|l| *l != log).find_map(|l| self.ssr_of(l))
    }

    fn ssr_of(&mut self, log: Log) -> Option<u32> {
        let search = self.segs.dirty_of[usize::from(log.number())].ones().min(SEARCH_MOST);
        if search == 0 {
            return None;
        }
        self.search(Some(log), Policy::Greedy, search, false)
    }

    /// The cheapest of up to `search` candidates, from where the last search ended.
    fn search(
        &mut self,
        ssr: Option<Log>,
        policy: Policy,
        search: u32,
        foreground: bool,
    ) -> Option<u32> {
        let unit = if ssr.is_some() { 1 } else { self.g.section_segments };
        let all = self.g.sections * self.g.section_segments;
        let mut last_segment = all;
        let slot = policy as usize;
        let last_victim = self.segs.last_victim[slot];
        let from_start = ssr.is_some_and(|log| log == Log::HotData || log.is_node());
        let mut offset = if from_start { 0 } else { last_victim };
        let mut best: Option<u32> = None;
        let mut cost_min = match (ssr, policy) {
            (Some(_), _) => SEGMENT_BLOCKS,
            (None, Policy::Greedy) => 2 * SEGMENT_BLOCKS * unit,
            (None, Policy::CostBenefit) => u32::MAX,
        };
        let mut seen = 0;
        loop {
            let bits = match ssr {
                Some(log) => &self.segs.dirty_of[usize::from(log.number())],
                None if self.is_large() => &self.segs.dirty_sections,
                None => &self.segs.dirty,
            };
            let found = bits.next(true, offset / unit, last_segment / unit);
            let Some(segment) = found.map(|n| n * unit) else {
                if self.segs.last_victim[slot] == 0 {
                    break;
                }
                last_segment = std::mem::take(&mut self.segs.last_victim[slot]);
                offset = 0;
                continue;
            };
            offset = segment + unit;
            seen += 1;
            let section = self.g.section_of(segment);
            if !self.is_busy(section) && (foreground || !self.segs.victims.test(section)) {
                let cost = match (ssr, policy) {
                    (Some(_), _) => self.seg(segment).ckpt_valid,
                    (None, Policy::Greedy) => self.section_valid(segment),
                    (None, Policy::CostBenefit) => self.cb_cost(segment),
                };
                if cost < cost_min {
                    (best, cost_min) = (Some(segment), cost);
                }
            }
            if seen >= search {
                let wrapped = self.segs.last_victim[slot] == 0 && segment <= last_victim;
                let next = if wrapped { last_victim } else { segment } + unit;
                self.segs.last_victim[slot] = next % all;
                break;
            }
        }
        best
    }
}
