//! Our own check of a file system: every structure against every other that says the same.
//!
//! Picture:    super blocks -> logs (`logs`: which block belongs to whom, by their summaries) ->
//!             super root -> DAT (`numbers`) -> checkpoints and usage of segments (`tables`) -> all
//!             files of all checkpoints (`tree`), noting which numbers and blocks are referred to.
//! Invariants: 1. shares with `image`, `log` and `mkfs` only `disk`: a mistake there is seen here.
//!                (With `recover`, what `image` makes of a crashed image is checked.)
//!             2. no bytes make it panic, and a node is read once a reference.
//!             3. what cannot be read is a finding, and what hangs on it is not reported again.
//! Left out:   contents of files; numbers that no checkpoint sees any more, which wait for the
//!             cleaner.
//! Source:     there is no fsck for NILFS2: what each structure says of the others, and the
//!             kernel's own checks.

#![deny(clippy::indexing_slicing)]

mod finding;
mod logs;
mod numbers;
mod tables;
mod tree;

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult};
use wp_medium::{Overlay, View};
use zerocopy::IntoBytes;

use crate::disk::bmap::Map;
use crate::disk::{Geometry, Inode, Node, SuperBlock, SuperRoot, ino};
use crate::image::{RecoverOptions, recover};

pub use finding::{Finding, Kind, Report};

use numbers::Numbers;

/// How to check.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// Recover in memory first, so; `None`: check what the newest checkpoint has.
    pub recover: Option<RecoverOptions>,
}

/// Checks an image. Never writes to it. Errors: of the view, and of recovery.
pub fn check(view: &dyn View, options: &CheckOptions) -> FsResult<Report> {
    let overlay = Overlay::new(view);
    let mut report = Report::default();
    if let Some(how) = &options.recover {
        report.recovered = recover(&overlay, how)?.is_needed;
    }
    let Some((sb, g)) = super_block(&overlay, &mut report)? else { return Ok(report) };
    let volume = Volume { view: &overlay, g };
    let Some(tip) = logs::newest(&volume, &sb, &mut report)? else { return Ok(report) };
    let at = volume.g.byte_of(tip.block);
    let root = match SuperRoot::load(&volume.read(tip.block)?, &volume.g, at) {
        Ok(root) => root,
        Err(c) => {
            report.corrupt(Kind::SuperRoot, "super root", &c);
            return Ok(report);
        }
    };
    let mut seen = Seen::default();
    let dat = File { ino: ino::DAT, inode: root.dat, cno: tip.cno, place: "DAT".to_owned() };
    let Some(numbers) = Numbers::read(&volume, &dat, &mut seen, &mut report)? else {
        return Ok(report);
    };
    let checker = Checker { volume: &volume, numbers: &numbers, newest: tip.cno };
    let usage = checker.segment_usage(&root, &mut seen, &mut report)?;
    let checkpoints = checker.checkpoints(&root, &mut seen, &mut report)?;
    checker.trees(&checkpoints, &mut seen, &mut report)?;
    numbers.check_all_seen(&mut report);
    let owners = logs::of_segments(&volume, &usage, &mut report)?;
    checker.blocks(&seen, &usage, &owners, &mut report);
    Ok(report)
}

/// The super block that counts, and its layout.
fn super_block(view: &dyn View, report: &mut Report) -> FsResult<Option<(SuperBlock, Geometry)>> {
    let second_at = SuperBlock::second_at(view.len_bytes());
    let mut good: Vec<SuperBlock> = Vec::new();
    let mut wrong = Vec::new();
    for at in [SuperBlock::AT, second_at] {
        let mut sb = SuperBlock::zeroed();
        view.read_at(at, sb.as_mut_bytes())?;
        match sb.verify(at) {
            Ok(()) => good.push(sb),
            Err(c) => wrong.push(c),
        }
    }
    let kind = if good.is_empty() { Kind::SuperBlock } else { Kind::SuperCopies };
    wrong.iter().for_each(|c| report.corrupt(kind, "super block", c));
    good.sort_by_key(|sb| std::cmp::Reverse(sb.last_cno.get()));
    if let [a, b] = good.as_slice() {
        let fixed = |sb: &SuperBlock| (sb.uuid, sb.crc_seed, sb.nsegments, sb.first_data_block);
        if fixed(a) != fixed(b) {
            report.add(
                Kind::SuperCopies,
                "super block",
                "another file system",
                "the same file system",
            );
        }
    }
    let Some(sb) = good.first() else { return Ok(None) };
    match Geometry::from_super(sb, view.len_bytes()) {
        Ok(g) => Ok(Some((*sb, g))),
        Err(FsError::Corrupt(c)) => {
            report.corrupt(Kind::SuperBlock, "super block", &c);
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// The image and its layout.
struct Volume<'a> {
    view: &'a dyn View,
    g: Geometry,
}

impl Volume<'_> {
    /// Reads a block. Errors: `Io` beyond the image.
    fn read(&self, block: u64) -> FsResult<Vec<u8>> {
        let blocks = self.view.len_bytes() >> self.g.block_bits;
        if block >= blocks {
            return Err(FsError::Io);
        }
        let mut out = vec![0; self.g.block_bytes()];
        self.view.read_at(self.g.byte_of(block), &mut out)?;
        Ok(out)
    }
}

/// A file as one checkpoint has it.
#[derive(Clone)]
struct File {
    ino: u64,
    inode: Inode,
    /// That checkpoint.
    cno: u64,
    /// For people.
    place: String,
}

/// Who has a block of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Owner {
    ino: u64,
    /// Its virtual number, 0 in the DAT.
    number: u64,
    /// Its place in the file, for nodes of the map `None`.
    offset: Option<u64>,
}

/// What was referred to.
#[derive(Default)]
struct Seen {
    /// Blocks of the device.
    blocks: BTreeMap<u64, Owner>,
    /// Parts of maps in which nothing is wrong, by the file and the pointer to their first node.
    parts: BTreeMap<(u64, u64), Part>,
}

/// A part of a block map that several checkpoints can share.
#[derive(Clone, Copy)]
struct Part {
    /// The key that leads to it.
    key: u64,
    /// Checkpoints that may refer to it: those that every number in it lives in.
    life: Life,
    /// Blocks of data in it, and nodes below its first.
    data: u64,
    nodes: u64,
    /// The key behind its last.
    next: u64,
}

/// The checkpoint that a number appears in, and the first that does not see it any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Life {
    start: u64,
    end: u64,
}

impl Life {
    const ALWAYS: Life = Life { start: 0, end: u64::MAX };

    /// The checkpoints that both live in.
    fn with(self, other: Life) -> Life {
        Life { start: self.start.max(other.start), end: self.end.min(other.end) }
    }
}

/// What a walk over a map found.
#[derive(Default)]
struct Walked {
    /// Blocks of data: place in the file and block of the device. Without them where only their
    /// number is asked for.
    data: Vec<(u64, u64)>,
    /// How many blocks of data.
    count: u64,
    /// Nodes of the map.
    nodes: u64,
    /// The key behind the last block of data.
    end: u64,
    /// Was something wrong?
    is_bad: bool,
}

/// A walk over a map that is going on.
struct Walk<'w> {
    file: &'w File,
    /// The key that comes next at the earliest.
    next: u64,
    /// Is only the number of blocks asked for, so that a part that was walked before tells all?
    counts: bool,
    /// Checkpoints that all that was met lives in.
    life: Life,
    out: Walked,
}

impl Walk<'_> {
    /// A block of data is met.
    fn data(&mut self, key: u64, block: u64) {
        self.next = key.saturating_add(1);
        self.out.count += 1;
        if !self.counts {
            self.out.data.push((key, block));
        }
    }

    /// A part is met that was walked before.
    fn add(&mut self, part: &Part) {
        self.next = part.next;
        self.out.count += part.data;
        self.out.nodes += part.nodes;
        self.life = self.life.with(part.life);
    }

    /// A part begins: what was met before it.
    fn begin(&mut self, key: u64) -> Part {
        let life = std::mem::replace(&mut self.life, Life::ALWAYS);
        Part { key, life, data: self.out.count, nodes: self.out.nodes, next: self.next }
    }

    /// The part that began when `before` had been met has ended.
    fn end(&mut self, before: Part) -> Part {
        let (data, nodes) = (self.out.count - before.data, self.out.nodes - before.nodes);
        let part = Part { key: before.key, life: self.life, data, nodes, next: self.next };
        self.life = before.life.with(part.life);
        part
    }
}

/// Where a pointer leads, block of the device and life of the pointer; or that was reported.
type Locate<'l> =
    dyn Fn(&File, u64, Option<u64>, &mut Seen, &mut Report) -> Option<(u64, Life)> + 'l;

impl Volume<'_> {
    /// All blocks of a file, by its map; with `counts` how many they are, and the last key.
    fn walk(
        &self,
        (file, counts): (&File, bool),
        locate: &Locate<'_>,
        seen: &mut Seen,
        report: &mut Report,
    ) -> FsResult<Walked> {
        let out = Walked::default();
        let mut walk = Walk { file, next: 0, counts, life: Life::ALWAYS, out };
        match file.inode.bmap.load(0) {
            Err(c) => {
                report.corrupt(Kind::BlockMap, &file.place, &c);
                walk.out.is_bad = true;
            }
            Ok(Map::Direct(pointers)) => {
                for (key, pointer) in (0..).zip(pointers).filter(|(_, p)| *p != 0) {
                    match locate(file, pointer, Some(key), seen, report) {
                        Some((block, _)) => walk.data(key, block),
                        None => walk.out.is_bad = true,
                    }
                }
            }
            Ok(Map::Tree(root)) => self.walk_node(&root, None, &mut walk, locate, seen, report)?,
        }
        walk.out.end = walk.next;
        Ok(walk.out)
    }

    fn walk_node(
        &self,
        node: &Node,
        expected: Option<u64>,
        walk: &mut Walk<'_>,
        locate: &Locate<'_>,
        seen: &mut Seen,
        report: &mut Report,
    ) -> FsResult<()> {
        let (place, first) = (walk.file.place.as_str(), node.children.first().map(|(k, _)| *k));
        if let (Some(expected), Some(first)) = (expected, first)
            && expected != first
        {
            report.add(Kind::BlockMap, place, first, format!("first key {expected}"));
        }
        for (key, pointer) in &node.children {
            if *key < walk.next {
                let expected = format!("a key of at least {}", walk.next);
                report.add(Kind::BlockMap, walk.file.place.as_str(), key, expected);
                walk.out.is_bad = true;
                return Ok(());
            }
            let is_leaf = node.level == 1;
            let found = locate(walk.file, *pointer, is_leaf.then_some(*key), seen, report);
            let Some((block, life)) = found else {
                walk.out.is_bad = true;
                continue;
            };
            walk.life = walk.life.with(life);
            if is_leaf {
                walk.data(*key, block);
                continue;
            }
            walk.out.nodes += 1;
            let part = (walk.file.ino, *pointer);
            if walk.counts
                && let Some(known) = seen.parts.get(&part)
                && (known.life.start..known.life.end).contains(&walk.file.cno)
                && known.key == *key
            {
                walk.add(known);
                continue;
            }
            let before = walk.begin(*key);
            let findings = (report.findings.len(), report.left_out);
            match Node::load(&self.read(block)?, node.level - 1, self.g.byte_of(block)) {
                Ok(child) => self.walk_node(&child, Some(*key), walk, locate, seen, report)?,
                Err(c) => {
                    report.corrupt(Kind::BlockMap, &walk.file.place, &c);
                    walk.out.is_bad = true;
                }
            }
            let found = walk.end(before);
            if walk.counts
                && !walk.out.is_bad
                && (report.findings.len(), report.left_out) == findings
            {
                seen.parts.insert(part, found);
            }
        }
        Ok(())
    }

    /// A block is referred to. `false`, after saying so, if it can be no block of a log, or is
    /// something else already.
    fn claim(
        &self,
        block: u64,
        owner: Owner,
        place: impl Fn() -> String,
        s: &mut Seen,
        r: &mut Report,
    ) -> bool {
        if !self.g.is_in_segment(block) {
            r.add(Kind::Address, place(), block, "a block of a segment");
            return false;
        }
        match s.blocks.insert(block, owner) {
            Some(other) if other != owner => {
                let expected = format!("a block that is not part of file {}", other.ino);
                r.add(Kind::BlockShared, place(), block, expected);
                false
            }
            _ => true,
        }
    }
}

/// What later steps need.
struct Checker<'a> {
    volume: &'a Volume<'a>,
    numbers: &'a Numbers,
    newest: u64,
}

impl Checker<'_> {
    /// All blocks of a file whose pointers are virtual numbers.
    fn walk(&self, file: &File, seen: &mut Seen, report: &mut Report) -> FsResult<Walked> {
        let locate = |file: &File, number, key, seen: &mut Seen, report: &mut Report| {
            self.numbers.locate(self.volume, self.newest, file, (number, key), seen, report)
        };
        self.volume.walk((file, false), &locate, seen, report)
    }

    /// How many blocks a file has. Parts of maps that checkpoints share are walked once.
    fn count(&self, file: &File, seen: &mut Seen, report: &mut Report) -> FsResult<Walked> {
        let locate = |file: &File, number, key, seen: &mut Seen, report: &mut Report| {
            self.numbers.locate(self.volume, self.newest, file, (number, key), seen, report)
        };
        self.volume.walk((file, true), &locate, seen, report)
    }
}
