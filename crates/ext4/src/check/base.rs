//! A sound image of a set, with which the others are compared: parts that are the same as in this
//! one need not be checked again, so the time of a check depends on the number of differences and
//! not on the number of groups.

use std::rc::Rc;

use wp_medium::Sound;

use crate::disk::{Checksums, Geometry, GroupDesc, SuperBlock};

use super::bits::Bits;
use super::state::State;

/// What the super block says of the shape of everything else.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    g: Geometry,
    sums: Checksums,
    features: [u32; 3],
    mmp_block: u64,
    uuid: [u8; 16],
}

impl Shape {
    fn of(sb: &SuperBlock, g: &Geometry, sums: &Checksums) -> Shape {
        let features = [sb.feature_compat, sb.feature_incompat, sb.feature_ro_compat];
        Shape {
            g: *g,
            sums: *sums,
            features: features.map(|f| f.get()),
            mmp_block: sb.mmp_block.get(),
            uuid: sb.uuid,
        }
    }
}

/// See the module.
pub(super) struct Base {
    shape: Shape,
    groups: Vec<GroupDesc>,
    /// Those of which nothing is used but what their metadata takes.
    unused: Vec<bool>,
    /// Clusters of all metadata that descriptors name.
    pub meta: Rc<Bits>,
}

impl Base {
    /// The one of the set, if what it says can be said of an image with this super block.
    pub(super) fn find(
        sound: &Sound,
        sb: &SuperBlock,
        g: &Geometry,
        sums: &Checksums,
    ) -> Option<Rc<Base>> {
        sound.kept::<Base>().filter(|base| base.shape == Shape::of(sb, g, sums))
    }

    /// Keeps the image that `s` has found nothing wrong with, if it is the first.
    pub(super) fn keep(s: State<'_>) {
        if s.sound.kept::<Base>().is_some() {
            return;
        }
        let unused = (0..s.g.groups).map(|n| is_unused(&s, n)).collect();
        let State { sb, g, sums, groups, meta, sound, .. } = s;
        // What it stands on itself goes.
        let meta = Rc::new(meta.flat());
        sound.keep(Base { shape: Shape::of(&sb, &g, &sums), groups, unused, meta });
    }

    /// Is this descriptor group `n`'s?
    pub(super) fn has(&self, n: u32, desc: &GroupDesc) -> bool {
        self.groups.get(n as usize) == Some(desc)
    }

    /// Do all descriptors name the same places?
    pub(super) fn has_places(&self, groups: &[GroupDesc]) -> bool {
        let places = |d: &GroupDesc| (d.block_bitmap(), d.inode_bitmap(), d.inode_table());
        self.groups.len() == groups.len()
            && self.groups.iter().zip(groups).all(|(a, b)| a == b || places(a) == places(b))
    }

    /// Are the bitmaps and counts of group `n`, and everything that they are compared with, the
    /// same as here?
    pub(super) fn has_counts(&self, s: &State<'_>, n: u32, desc: &GroupDesc) -> bool {
        let is_absent = |flag| s.sums.descriptors() && desc.has(flag);
        let is_kept = |flag, bitmap: u64| is_absent(flag) || s.is_fixed(bitmap, 1);
        let (start, count) = s.group_clusters(n);
        self.has(n, desc)
            && self.unused.get(n as usize) == Some(&true)
            && s.claimed.is_as_below(start, count.into())
            && is_unused_of_inodes(s, n)
            && is_kept(GroupDesc::BLOCK_UNINIT, desc.block_bitmap())
            && is_kept(GroupDesc::INODE_UNINIT, desc.inode_bitmap())
    }
}

fn is_unused(s: &State<'_>, n: u32) -> bool {
    let (start, count) = s.group_clusters(n);
    let count = u64::from(count);
    let mut words = (0..count.div_ceil(64)).map(|w| start + w * 64);
    is_unused_of_inodes(s, n)
        && (s.claimed.is_untouched(start, count) || words.all(|b| s.claimed.at(b) == s.meta.at(b)))
}

fn is_unused_of_inodes(s: &State<'_>, n: u32) -> bool {
    let first = n * s.g.inodes_per_group + 1;
    let last = first + (s.g.inodes_per_group - 1);
    first >= s.g.first_inode && s.used.range(first..=last).next().is_none()
}
