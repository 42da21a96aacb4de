//! The search for free blocks.
//!
//! Picture:    exactly at the goal if it continues something; else group by group, from the goal's
//!             on or by the groups' largest buddies and mean runs, with criteria that ask for less
//!             each time.
//! Source:     Linux `fs/ext4/mballoc.c` (`ext4_mb_regular_allocator`, `ext4_mb_scan_groups`).

use wp_base::FsResult;
use wp_rt::soon;

use super::bits::Bits;
use super::era::Era;
use super::mballoc::{FLEX_SIZE_DIRS, Found, Search, Status};
use super::mount::Ext4;
use crate::disk::GroupDesc;

/// After this many finds the best is taken if it suffices (`s_mb_min_to_scan`).
const MIN_TO_SCAN: u32 = 10;
/// After this many finds the search ends (`s_mb_max_to_scan`).
const MAX_TO_SCAN: u32 = 200;
/// Groups from which on kernels choose groups by their largest order and mean run
/// (`MB_DEFAULT_LINEAR_SCAN_THRESHOLD`).
const OPTIMIZE_FROM: u32 = 16;
/// Groups that are searched in order of their number first on a rotating disk
/// (`s_mb_max_linear_groups`).
const LINEAR_GROUPS: u32 = 4;
/// Orders by which a goal may be cut (`s_mb_best_avail_max_trim_order`).
const TRIM_ORDERS: u32 = 3;
/// How choosy a search is (`enum criteria`; before 6.5 without `BestAvail`, from 0 to 3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Criteria {
    /// A buddy of the goal's size.
    Power2,
    /// A group whose runs are as long as the goal on average.
    GoalFast,
    /// The same with a shorter goal.
    BestAvail,
    /// A group with as much free space as the goal.
    GoalSlow,
    /// Anything.
    AnyFree,
}

impl Criteria {
    fn is_expensive(self) -> bool {
        self >= Criteria::GoalSlow
    }
}

impl Ext4 {
    /// The list of mean run lengths that a group with runs of `len` is in
    /// (`mb_avg_fragment_size_order`).
    fn mean_order(&self, len: u32) -> u32 {
        let order = len.max(1).ilog2().saturating_sub(1);
        if order == self.max_order() + 1 { order - 1 } else { order }
    }

    /// Looks in all groups (`ext4_mb_regular_allocator`).
    pub(super) async fn search(&self, s: &mut Search<'_>) -> FsResult<()> {
        if s.try_goal && self.free_in(s.group) > 0 {
            soon!(self.load_group(s.group))?;
            let len = self.groups.with(s.group, |b| b.extent(s.start, s.len));
            if len >= s.len {
                s.seen += 1;
                self.use_found(s, (s.group, s.start, len));
                return Ok(());
            }
        }
        let is_order = s.len > 1 && s.len.is_power_of_two() && s.len.ilog2() <= self.max_order();
        s.order = if is_order { s.len.ilog2() } else { 0 };
        if s.stream {
            s.group = self.groups.stream_group(s.rq.inode.ino).get();
        }
        s.criteria = if is_order { Criteria::Power2 } else { Criteria::GoalFast };
        loop {
            self.search_by(s).await?;
            let Some((group, start, len)) =
                s.best.filter(|_| s.status != Status::Found && !s.take_first)
            else {
                return Ok(());
            };
            // The best there was, if it is still there.
            soon!(self.load_group(group))?;
            let len = self.groups.with(group, |b| b.extent(start, len));
            if len > 0 {
                self.use_found(s, (group, start, len));
                return Ok(());
            }
            s.best = None;
            s.status = Status::Continue;
            s.take_first = true;
            s.criteria = Criteria::AnyFree;
        }
    }

    /// From the search's criteria on to the last.
    async fn search_by(&self, s: &mut Search<'_>) -> FsResult<()> {
        let era = &self.opts.era;
        loop {
            let optimize = era.groups_by_order()
                && self.geo.groups >= OPTIMIZE_FROM
                && !s.criteria.is_expensive();
            if era.skips_unread_groups() && self.groups.unread.get() > 0 {
                s.unread = Some(s.group % self.geo.groups);
            }
            let next = match s.criteria {
                Criteria::Power2 => Some(Criteria::GoalFast),
                Criteria::GoalFast if optimize && era.five_criteria() && s.is_data() => {
                    Some(Criteria::BestAvail)
                }
                Criteria::GoalFast | Criteria::BestAvail => Some(Criteria::GoalSlow),
                Criteria::GoalSlow => Some(Criteria::AnyFree),
                Criteria::AnyFree => None,
            };
            if !optimize {
                let start = if s.group < self.geo.groups { s.group } else { 0 };
                for i in 0..self.geo.groups {
                    let group = (start + i) % self.geo.groups;
                    if self.groups.peek(group, |_| ()).is_some() {
                        self.look_in_loaded(s, group);
                    } else {
                        self.look_in(s, group).await?;
                    }
                    if s.status != Status::Continue {
                        return Ok(());
                    }
                }
            } else {
                self.search_lists(s).await?;
            }
            match next {
                Some(next) if s.status == Status::Continue => s.criteria = next,
                _ => return Ok(()),
            }
        }
    }

    /// Looks in groups by their largest order or mean run, as the search's criteria are
    /// (`ext4_mb_choose_next_group`, since 6.17 `ext4_mb_scan_groups`).
    async fn search_lists(&self, s: &mut Search<'_>) -> FsResult<()> {
        let (n, max) = (self.geo.groups, self.max_order());
        let in_order = self.opts.era.groups_in_order();
        let near = if self.opts.rotational { LINEAR_GROUPS } else { 0 } + u32::from(!in_order);
        let mut start = if s.group < n { s.group } else { 0 };
        for _ in 0..near {
            self.look_in(s, start).await?;
            start = (start + 1) % n;
        }
        let ranges = if in_order { [start..n, 0..start] } else { [0..n, 0..0] };
        for range in ranges {
            let mut goals = vec![(s.len, 0)];
            match s.criteria {
                Criteria::Power2 => goals[0].1 = s.order,
                Criteria::GoalFast => goals[0].1 = self.mean_order(s.len),
                _ => {
                    let order = s.full_len.max(1).ilog2();
                    let mut least = order.saturating_sub(TRIM_ORDERS);
                    if 1 << least < s.want {
                        least = s.want.ilog2() + 1;
                    }
                    let lens = (least..=order).rev().map(|o| 1u32 << o);
                    goals = lens.map(|len| (len, self.mean_order(len))).collect();
                }
            }
            for (len, order) in goals {
                s.len = len;
                let last = if s.criteria == Criteria::BestAvail { order } else { max };
                let which = usize::from(s.criteria != Criteria::Power2);
                let mut groups: Vec<(u32, u64, u32)> = range
                    .clone()
                    .filter_map(|g| {
                        let (o, joined) = self.groups.list_of(g, which, |b| match which {
                            0 => b.largest_order(),
                            _ => (b.free_blocks() > 0).then(|| self.mean_order(b.mean_fragment())),
                        })?;
                        let at = if in_order { 0 } else { joined };
                        (order..=last).contains(&o).then_some((o, at, g))
                    })
                    .collect();
                groups.sort_unstable();
                for (_, _, group) in groups {
                    if s.status != Status::Continue {
                        return Ok(());
                    }
                    self.look_in(s, group).await?;
                }
            }
            if s.status != Status::Continue {
                return Ok(());
            }
        }
        if s.criteria == Criteria::BestAvail {
            s.len = s.full_len;
        }
        Ok(())
    }

    /// Free blocks of a group as far as is known without its bitmap.
    fn free_in(&self, group: u32) -> u32 {
        self.groups
            .peek(group, Bits::free_blocks)
            .unwrap_or_else(|| self.group_desc(group).free_blocks_count())
    }

    /// Looks in one group if it is good enough (`ext4_mb_scan_group`).
    async fn look_in(&self, s: &mut Search<'_>, group: u32) -> FsResult<()> {
        if s.status != Status::Continue || !self.has_enough(s, group) {
            return Ok(());
        }
        if self.groups.peek(group, |_| ()).is_none() {
            let unused =
                self.csum.descriptors() && self.group_desc(group).has(GroupDesc::BLOCK_UNINIT);
            if self.opts.era.skips_unread_groups()
                && !s.criteria.is_expensive()
                && (self.geo.groups_per_flex == 1
                    || !group.is_multiple_of(self.geo.groups_per_flex))
                && !unused
            {
                return Ok(());
            }
            soon!(self.load_group(group))?;
        }
        self.look_in_loaded(s, group);
        Ok(())
    }

    /// Has the group as many free blocks as the search cannot do without?
    fn has_enough(&self, s: &Search<'_>, group: u32) -> bool {
        let free = self.free_in(group);
        free > 0 && (s.criteria == Criteria::AnyFree || free >= s.len)
    }

    /// [`Ext4::look_in`] a group whose bitmap is known.
    fn look_in_loaded(&self, s: &mut Search<'_>, group: u32) {
        if s.status != Status::Continue || !self.has_enough(s, group) || !self.is_good(s, group) {
            return;
        }
        if s.criteria == Criteria::Power2 {
            if let Some((order, at)) = self.groups.with(group, |b| b.buddy(s.order)) {
                s.seen += 1;
                self.use_found(s, (group, at, 1 << order));
            }
            return;
        }
        if let Some(found) = self.groups.with(group, |b| scan(s, b, group, &self.opts.era)) {
            self.use_found(s, found);
        }
    }

    /// Is the group good enough (`ext4_mb_good_group`)?
    fn is_good(&self, s: &Search, group: u32) -> bool {
        let flex = self.geo.groups_per_flex;
        self.groups.with(group, |b| match s.criteria {
            _ if b.free_blocks() == 0 => false,
            Criteria::Power2 => {
                // A flex group's first group is left to metadata.
                (!s.is_data() || flex < FLEX_SIZE_DIRS || !group.is_multiple_of(flex))
                    && b.free_blocks() >= s.len
                    && b.largest_order().is_some_and(|o| o >= s.order)
            }
            Criteria::GoalFast | Criteria::BestAvail => b.mean_fragment() >= s.len,
            Criteria::GoalSlow => b.free_blocks() >= s.len,
            Criteria::AnyFree => true,
        })
    }
}

/// Looks at a group's runs in order. `Some`: the one to take (`ext4_mb_complex_scan_group`).
fn scan(s: &mut Search, b: &Bits, group: u32, era: &Era) -> Option<Found> {
    let mut free = b.free_blocks();
    let mut at = b.first_free();
    while free > 0 {
        at = b.next(at, true)?;
        if era.skips_short_runs() && !s.criteria.is_expensive() {
            let end = b.next(at, false).unwrap_or(b.blocks);
            if end - at < s.len {
                free -= end - at;
                at = end;
                continue;
            }
        }
        // It follows on a busy block, or on a buddy that was measured.
        let len = b.extent_at(at, s.len);
        s.seen += 1;
        let this = (group, at, len);
        if s.take_first || len == s.len {
            return Some(this);
        }
        // `ext4_mb_measure_extent`: the first is only remembered.
        if let Some((_, _, best)) = s.best {
            let better = if best < s.len { len > best } else { len > s.len && len < best };
            if better {
                s.best = Some(this);
            }
            if let Some(found) = enough(s, s.seen > MIN_TO_SCAN) {
                return Some(found);
            }
            if s.status != Status::Continue {
                return None;
            }
        } else {
            s.best = Some(this);
        }
        at += len;
        free -= len;
    }
    enough(s, true)
}

/// Is the best so far to be taken (`ext4_mb_check_limits`)?
fn enough(s: &mut Search, now: bool) -> Option<Found> {
    if s.seen > MAX_TO_SCAN && !s.take_first {
        s.status = Status::Break;
        return None;
    }
    s.best.filter(|(_, _, len)| now && *len >= s.len)
}
