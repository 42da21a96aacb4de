//! Files of all checkpoints: inodes, names, links.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::FsResult;
use wp_vfs::FileType;

use crate::disk::{BlockMap, Checkpoint, Inode, dir, ino, view};

use super::numbers::{Allocated, allocated};
use super::{Checker, File, Kind, Report, Seen};

/// The inodes of a checkpoint.
struct Inodes {
    cno: u64,
    given: BTreeSet<u64>,
    all: BTreeMap<u64, Inode>,
}

/// A file with the block map that it had.
type Version = (u64, [u64; 7]);

/// What was seen in the tree of a checkpoint.
#[derive(Default)]
struct Names {
    /// Names of an inode; of a directory those of `.` and `..` too.
    links: BTreeMap<u64, u64>,
}

impl Checker<'_> {
    /// The trees of all checkpoints, the newest with all counts.
    pub(super) fn trees(
        &self,
        checkpoints: &BTreeMap<u64, Checkpoint>,
        seen: &mut Seen,
        report: &mut Report,
    ) -> FsResult<()> {
        let mut versions = BTreeSet::new();
        for (cno, cp) in checkpoints.iter().rev() {
            let place = format!("inode file of {cno}");
            let ifile = File { ino: ino::IFILE, inode: cp.ifile_inode, cno: *cno, place };
            let is_new = versions.insert(version(ino::IFILE, &cp.ifile_inode.bmap));
            if !is_new {
                continue;
            }
            let walked = self.walk(&ifile, seen, report)?;
            if walked.is_bad {
                continue;
            }
            let p = self.volume.g.ifile;
            let found = allocated(self.volume, &p, &ifile.place, &walked.data, report)?;
            let inodes = self.inodes(*cno, found, report)?;
            let blocks = walked.count + walked.nodes;
            self.tree(&inodes, (cp, blocks), &mut versions, seen, report)?;
        }
        Ok(())
    }

    fn inodes(&self, cno: u64, found: Allocated, report: &mut Report) -> FsResult<Inodes> {
        let mut all = BTreeMap::new();
        let p = self.volume.g.ifile;
        for (first, (count, block)) in &found.entries {
            let bytes = self.volume.read(*block)?;
            for n in (*first..first.saturating_add(*count)).filter(|n| found.given.contains(n)) {
                if let Some(inode) = view::<Inode>(&bytes, p.place(n).1) {
                    all.insert(n, *inode);
                }
            }
        }
        for n in found.given.iter().filter(|n| !all.contains_key(n)) {
            let place = format!("inode {n} of {cno}");
            report.add(Kind::Inode, place, "a hole", "an inode");
        }
        Ok(Inodes { cno, given: found.given, all })
    }

    /// One checkpoint's files; `ifile_blocks`: of its inode file.
    fn tree(
        &self,
        inodes: &Inodes,
        (cp, ifile_blocks): (&Checkpoint, u64),
        versions: &mut BTreeSet<Version>,
        seen: &mut Seen,
        report: &mut Report,
    ) -> FsResult<()> {
        let (cno, is_newest) = (inodes.cno, inodes.cno == self.newest);
        let mut names = Names::default();
        let (mut blocks, mut files) = (ifile_blocks, 0);
        let first = self.volume.g.first_ino;
        for (number, inode) in &inodes.all {
            if *number != ino::ROOT && *number < first {
                continue;
            }
            files += 1;
            let place = format!("inode {number} of {cno}");
            let is_open = inode.links_count.get() == 0;
            if is_open && is_newest {
                report.add(Kind::Orphan, place.as_str(), "no links", "a name, or not allocated");
            }
            if FileType::from_mode(inode.mode.get().into()).is_none() {
                let found = format!("{:#o}", inode.mode.get());
                report.add(Kind::Inode, format!("{place}: i_mode"), found, "a known type");
                continue;
            }
            // Files of the newest checkpoint are checked first, and not again in older ones.
            let is_new = inode.has_map() && versions.insert(version(*number, &inode.bmap));
            if !is_new && !is_newest {
                continue;
            }
            let file = File { ino: *number, inode: *inode, cno, place };
            blocks += self.file(&file, inodes, &mut names, seen, report)?;
        }
        if is_newest {
            self.links(inodes, &names, report);
            let counts = [
                ("cp_inodes_count", cp.inodes_count.get(), files),
                ("cp_blocks_count", cp.blocks_count.get(), blocks),
            ];
            for (field, found, right) in counts.into_iter().filter(|(_, a, b)| a != b) {
                let place = format!("checkpoint {cno}: {field}");
                report.add(Kind::CheckpointCount, place, found, right);
            }
        }
        Ok(())
    }

    /// One file: its map, its length, its names if it is a directory. The blocks that it has.
    fn file(
        &self,
        file: &File,
        inodes: &Inodes,
        names: &mut Names,
        seen: &mut Seen,
        report: &mut Report,
    ) -> FsResult<u64> {
        if !file.inode.has_map() {
            return Ok(0);
        }
        let g = &self.volume.g;
        let walked = match file.inode.is_dir() {
            true => self.walk(file, seen, report)?,
            false => self.count(file, seen, report)?,
        };
        let blocks = walked.count + walked.nodes;
        if walked.is_bad {
            return Ok(blocks);
        }
        let end = file.inode.size.get().div_ceil(g.block_bytes() as u64);
        // A directory that was removed has no length any more, and its blocks until it is evicted
        // (`nilfs_do_rmdir`, `nilfs_evict_inode`).
        let is_orphan = file.inode.links_count.get() == 0;
        if walked.end > end && !is_orphan {
            let last = walked.end - 1;
            let expected = format!("a block before {end}, its end");
            report.add(Kind::Inode, format!("{}: i_size", file.place), last, expected);
        }
        // mkfs counts blocks of its own in another unit.
        let right = blocks << (g.block_bits - 9);
        if file.ino >= g.first_ino && file.inode.blocks.get() != right {
            let found = file.inode.blocks.get();
            report.add(Kind::InodeBlocks, format!("{}: i_blocks", file.place), found, right);
        }
        if file.inode.is_dir() && !is_orphan {
            for (offset, block) in (0..).zip(&walked.data) {
                if block.0 != offset {
                    report.add(Kind::Dentry, file.place.as_str(), "a hole", "a block");
                    break;
                }
                self.names(file, *block, inodes, names, report)?;
            }
        }
        Ok(blocks)
    }

    /// The names in one block of a directory.
    fn names(
        &self,
        file: &File,
        (offset, block): (u64, u64),
        inodes: &Inodes,
        names: &mut Names,
        report: &mut Report,
    ) -> FsResult<()> {
        let bytes = self.volume.read(block)?;
        let slots = match dir::slots(&bytes, self.volume.g.byte_of(block)) {
            Ok(slots) => slots,
            Err(c) => {
                report.corrupt(Kind::Dentry, &file.place, &c);
                return Ok(());
            }
        };
        for (n, slot) in slots.iter().enumerate() {
            let number = slot.entry.inode.get();
            let place = || format!("{}, `{}`", file.place, String::from_utf8_lossy(slot.name));
            let dots: [&[u8]; 2] = [b".", b".."];
            let dot = if offset == 0 { dots.get(n) } else { None };
            if let Some(dot) = dot
                && slot.name != *dot
            {
                let expected = String::from_utf8_lossy(dot).into_owned();
                report.add(Kind::Dentry, place(), "another name", expected);
            }
            if number == 0 {
                continue;
            }
            let Some(inode) = inodes.all.get(&number) else {
                let found = if inodes.given.contains(&number) { "a hole" } else { "not allocated" };
                report.add(Kind::NotAllocated, place(), found, format!("inode {number}"));
                continue;
            };
            if dot == Some(&b".".as_slice()) && number != file.ino {
                report.add(Kind::Dentry, place(), number, file.ino);
            }
            let kind = FileType::from_mode(inode.mode.get().into());
            let told = FileType::from_entry(slot.entry.file_type);
            if kind != told {
                report.add(Kind::Dentry, place(), FileType::word_of(told), FileType::word_of(kind));
            }
            *names.links.entry(number).or_default() += 1;
        }
        Ok(())
    }

    /// Links that inodes claim against names.
    fn links(&self, inodes: &Inodes, names: &Names, report: &mut Report) {
        for (number, inode) in &inodes.all {
            if *number != ino::ROOT && *number < self.volume.g.first_ino {
                continue;
            }
            let found = u64::from(inode.links_count.get());
            let right = names.links.get(number).copied().unwrap_or(0);
            let place = format!("inode {number}: i_links_count");
            if right == 0 && found != 0 {
                report.add(Kind::InodeLost, place, "no name", "a name");
            } else if found != right {
                report.add(Kind::Links, place, found, right);
            }
        }
    }
}

fn version(number: u64, map: &BlockMap) -> Version {
    (number, map.words.map(|w| w.get()))
}
