//! The oracles: is what recovery left allowed?
//!
//! Letters as in the literature's list: O0 recoverable, O1 metadata, O2 data, O3 version, O4
//! durability, O5 order, O6 replacing files, O7 errors of the device.

use wp_vfs::FileType;

use crate::ledger::{FileLife, Ledger, Object};
pub(crate) use crate::rules::{Profile, Rule, Violation};
use crate::subject::{Outcome, Survivor};

/// Judges what is left of a cut at which `begun` operations had been called, and `ended` had
/// returned.
///
/// Of calls that overlapped nobody says which came first: what is left is allowed if one of their
/// orders allows it. If none does, the order that it breaks least says what is broken.
pub fn judge(
    ledger: &Ledger,
    outcome: &Outcome,
    (begun, ended): (u32, u32),
    profile: &Profile,
) -> Vec<Violation> {
    let mut least = judge_in_order(ledger, outcome, (begun, ended), profile);
    if !least.is_empty() {
        for other in ledger.others() {
            let found = judge_in_order(other, outcome, (begun, ended), profile);
            if found.len() < least.len() {
                least = found;
            }
            if least.is_empty() {
                break;
            }
        }
    }
    least
}

/// [`judge`] by the order that the ledger has.
fn judge_in_order(
    ledger: &Ledger,
    outcome: &Outcome,
    (begun, ended): (u32, u32),
    profile: &Profile,
) -> Vec<Violation> {
    let mut out = Vec::new();
    let whole = |rule, expected: &str, seen: &str| Violation {
        rule,
        path: String::new(),
        offset: None,
        expected: expected.to_owned(),
        seen: seen.to_owned(),
    };
    if let Some(why) = &outcome.refused {
        out.push(whole(Rule::Recoverable, "a mount", why));
        return out;
    }
    if let Some(what) = &outcome.not_idempotent {
        out.push(whole(Rule::Recoverable, "the same after a second recovery", what));
    }
    if let Some(fault) = outcome.faults.first() {
        out.push(whole(Rule::Metadata, "a clean check", fault));
    }
    if profile.image_alone {
        return out;
    }
    let begun = ledger.order.newest_begun(begun);
    let judge = Judge { ledger, outcome, begun, ended, profile };
    judge.of_files(&mut out);
    judge.replaced(&mut out);
    judge.stale_read(&mut out);
    judge.error_reported_at_mount(&mut out);
    judge.snapshots(&mut out);
    out
}

pub(crate) struct Judge<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) outcome: &'a Outcome,
    /// Versions up to this one may be there.
    pub(crate) begun: u32,
    /// Number of operations that had returned.
    pub(crate) ended: u32,
    pub(crate) profile: &'a Profile,
}

/// What a block of a survivor holds.
pub(crate) enum Seen<'a> {
    Whole(u128),
    Tail(&'a [u8]),
}

impl Seen<'_> {
    /// Is it these contents, or the beginning of them?
    pub(crate) fn is(&self, data: &wp_medium::Slice, id: u128) -> bool {
        match self {
            Seen::Whole(seen) => *seen == id,
            Seen::Tail(bytes) => data.starts_with(bytes),
        }
    }
}

impl Judge<'_> {
    /// The files that a survivor may be: by inode, else by path.
    pub(crate) fn candidates(&self, file: &Survivor) -> Vec<Object> {
        if let Some(objects) = self.ledger.by_ino.get(&file.ino) {
            return objects.clone();
        }
        let mut found: Vec<Object> = self.ledger.had(&file.path, (0, u32::MAX)).collect();
        found.dedup();
        found
    }

    /// The newest version at which `life` held in `block` what is seen there; `None`: never.
    pub(crate) fn version_of(&self, life: &FileLife, block: u64, seen: &Seen<'_>) -> Option<u32> {
        let none = Vec::new();
        let versions = life.blocks.get(&block).unwrap_or(&none);
        let newest = versions
            .iter()
            .rev()
            .filter(|v| v.version <= self.begun)
            .find(|v| seen.is(&v.data, v.id))
            .map(|v| v.version);
        newest.or_else(|| self.is_zero(seen).then_some(0))
    }

    pub(crate) fn is_zero(&self, seen: &Seen<'_>) -> bool {
        match seen {
            Seen::Whole(seen) => *seen == self.ledger.zero,
            Seen::Tail(bytes) => bytes.iter().all(|b| *b == 0),
        }
    }

    /// What stands in each block below the size that is not a hole.
    pub(crate) fn seen<'f>(&self, file: &'f Survivor) -> impl Iterator<Item = (u64, Seen<'f>)> {
        let last = file.size / self.ledger.block_bytes();
        let tail = file.tail.as_deref().map(|t| (last, Seen::Tail(t)));
        file.blocks.iter().map(|(b, id)| (*b, Seen::Whole(*id))).chain(tail)
    }

    pub(crate) fn seen_at<'f>(&self, file: &'f Survivor, block: u64) -> Seen<'f> {
        let last = file.size / self.ledger.block_bytes();
        // Without holes a block stands at its number.
        let place = match file.blocks.get(block as usize) {
            Some((b, _)) if *b == block => Ok(block as usize),
            _ => file.blocks.binary_search_by_key(&block, |b| b.0),
        };
        match (&file.tail, place) {
            (Some(tail), _) if block == last => Seen::Tail(tail),
            (_, Ok(i)) => Seen::Whole(file.blocks[i].1),
            _ if block == last => Seen::Tail(&[]),
            _ => Seen::Whole(self.ledger.zero),
        }
    }

    pub(crate) fn whose(&self, seen: &Seen<'_>) -> String {
        let Seen::Whole(id) = seen else { return "bytes that the program never wrote".to_owned() };
        match self.ledger.owners.get(id) {
            Some((object, block, version)) => {
                let names = self.ledger.names.iter().rev();
                let name = names
                    .flat_map(|n| n.iter())
                    .find(|(_, o)| *o == object)
                    .map_or("a deleted file", |(p, _)| p);
                format!("block {block} of {name} (`{}`)", self.ledger.text(*version))
            }
            None => "bytes that the program never wrote".to_owned(),
        }
    }

    /// O2 to O5 of the files that are there.
    pub(crate) fn of_files(&self, out: &mut Vec<Violation>) {
        self.data(out);
        self.commits(out);
        self.links(out);
        self.xattrs(out);
        self.stats(out);
        self.promises(out);
        self.order(out);
    }

    fn data(&self, out: &mut Vec<Violation>) {
        let bs = self.ledger.block_bytes();
        for file in self.outcome.files.iter().filter(|f| f.kind == FileType::File) {
            let candidates = self.candidates(file);
            // Of a file that is all hole there is nothing to see, and nothing to tell lives apart
            // by.
            let mut life = match &candidates[..] {
                [one] if file.size > 0 => Some(&self.ledger.files[*one as usize]),
                _ => None,
            };
            for (block, seen) in self.seen(file) {
                let held = candidates
                    .iter()
                    .map(|o| &self.ledger.files[*o as usize])
                    .find(|l| self.version_of(l, block, &seen).is_some());
                match held {
                    Some(l) => life = Some(l),
                    None => {
                        out.push(Violation {
                            rule: Rule::Exposure,
                            path: file.path.clone(),
                            offset: Some(block * bs),
                            expected: "a version of this block, or zeroes".to_owned(),
                            seen: self.whose(&seen),
                        });
                        break;
                    }
                }
            }
            if let Some(life) = life {
                self.versions(file, life, out);
            }
        }
    }

    /// O2 of symbolic links: one points where it was made to point.
    fn links(&self, out: &mut Vec<Violation>) {
        for file in self.outcome.files.iter().filter(|f| f.kind == FileType::Symlink) {
            // Links are made by path, so their inodes are not known.
            let objects = self.ledger.had(&file.path, (0, self.begun));
            let lives = objects.map(|o| &self.ledger.files[o as usize]);
            let mut targets = lives.filter_map(|l| l.target.as_ref()).peekable();
            let first = targets.peek().map_or("no symbolic link", |t| t).to_owned();
            if !targets.any(|t| Some(t) == file.target.as_ref()) {
                out.push(Violation {
                    rule: Rule::Exposure,
                    path: file.path.clone(),
                    offset: None,
                    expected: format!("a link to {first}"),
                    seen: format!("a link to {:?}", file.target.as_deref().unwrap_or_default()),
                });
            }
        }
    }

    /// O2 of extended attributes: a value is one that was set.
    fn xattrs(&self, out: &mut Vec<Violation>) {
        let files = self.outcome.files.iter();
        for (file, xattrs) in files.filter_map(|f| Some((f, f.xattrs.as_ref()?))) {
            if xattrs.is_empty() {
                continue;
            }
            let mut objects = self.candidates(file);
            objects.extend(self.ledger.had(&file.path, (0, self.begun)));
            let lives = || objects.iter().map(|o| &self.ledger.files[*o as usize]);
            let was_set = |(name, value): &&(String, Vec<u8>)| {
                let versions = lives().filter_map(|l| l.xattrs.get(name)).flatten();
                let mut begun = versions.filter(|v| v.version <= self.begun);
                begun.any(|v| v.value.as_ref() == Some(value))
            };
            if let Some((name, value)) = xattrs.iter().find(|x| !was_set(x)) {
                out.push(Violation {
                    rule: Rule::Exposure,
                    path: file.path.clone(),
                    offset: None,
                    expected: format!("a value of {name} that was set"),
                    seen: format!("{} other bytes", value.len()),
                });
            }
        }
    }

    /// O2 of permission bits, owner and device number: each is one that was given.
    fn stats(&self, out: &mut Vec<Violation>) {
        for (file, stat) in self.outcome.files.iter().filter_map(|f| Some((f, f.stat?))) {
            let mut objects = self.candidates(file);
            objects.extend(self.ledger.had(&file.path, (0, self.begun)));
            let lives: Vec<&FileLife> = objects
                .iter()
                .map(|o| &self.ledger.files[*o as usize])
                .filter(|l| l.kind == file.kind)
                .collect();
            if lives.is_empty() {
                // Whose name it is, is for others to say.
                continue;
            }
            let begun = |version: &u32| *version <= self.begun;
            let mut modes = lives.iter().flat_map(|l| &l.modes).filter(|(v, _)| begun(v));
            let mut owners = lives.iter().flat_map(|l| &l.owners).filter(|(v, _)| begun(v));
            let wrong = if !modes.any(|(_, mode)| *mode == stat.mode) {
                ("permission bits that were set", format!("{:04o}", stat.mode))
            } else if !owners.any(|(_, owner)| *owner == stat.owner) {
                ("an owner that was set", format!("{}:{}", stat.owner.0, stat.owner.1))
            } else if !lives.iter().any(|l| l.device == stat.device) {
                let (major, minor) = (stat.device.major, stat.device.minor);
                ("the number of the device", format!("{major}:{minor}"))
            } else {
                continue;
            };
            out.push(Violation {
                rule: Rule::Exposure,
                path: file.path.clone(),
                offset: None,
                expected: wrong.0.to_owned(),
                seen: wrong.1,
            });
        }
    }

    /// O3, both readings.
    fn versions(&self, file: &Survivor, life: &FileLife, out: &mut Vec<Violation>) {
        let p = self.profile;
        if !p.size_with_data && !p.tail_with_data && !p.one_version && !p.cut_stays_cut {
            return;
        }
        let bs = self.ledger.block_bytes();
        let fitting = || {
            let may = life.sizes.iter().enumerate().filter(|(_, s)| s.version <= self.begun);
            may.filter(|(_, s)| s.from <= file.size && file.size <= s.to)
        };
        // A length that a growing write gave, without what it wrote below that length.
        let ahead = |s: &crate::ledger::SizeVersion| {
            let (from, to) = s.wrote?;
            (from / bs..to.min(file.size).div_ceil(bs)).find(|b| {
                self.version_of(life, *b, &self.seen_at(file, *b)).is_some_and(|v| v < s.version)
            })
        };
        let within = |s: &crate::ledger::SizeVersion| {
            !s.from.is_multiple_of(bs) && s.from < file.size && s.from / bs == (s.to - 1) / bs
        };
        if (p.size_with_data || p.tail_with_data)
            && fitting().all(|(_, s)| ahead(s).is_some())
            && let Some((_, s)) = fitting().next_back()
        {
            let block = ahead(s).unwrap_or(0);
            let held = self.version_of(life, block, &self.seen_at(file, block)).unwrap_or(0);
            let mut broken = |rule| {
                out.push(Violation {
                    rule,
                    path: file.path.clone(),
                    offset: Some(block * bs),
                    expected: format!("what `{}` wrote", self.ledger.text(s.version)),
                    seen: format!("length {} over data of `{}`", file.size, self.ledger.text(held)),
                });
            };
            if p.size_with_data {
                broken(Rule::SizeAhead);
            }
            if p.tail_with_data && within(s) {
                broken(Rule::TailAhead);
            }
        }
        if self.profile.cut_stays_cut
            && let Some(since) = fitting().map(|(_, s)| s.version).min()
            && let Some((block, held, cut)) = self.cut_back(file, life, since)
        {
            out.push(Violation {
                rule: Rule::SizeAhead,
                path: file.path.clone(),
                offset: Some(block * bs),
                expected: format!("no data older than `{}`", self.ledger.text(cut)),
                seen: format!("data of `{}`", self.ledger.text(held)),
            });
        }
        if self.profile.one_version {
            let is = |version: u32| {
                let of = |block: u64| {
                    let versions = life.blocks.get(&block).map_or(&[][..], |v| &v[..]);
                    versions.iter().rev().find(|v| v.version <= version)
                };
                let last = file.size.div_ceil(bs);
                (0..last).all(|b| match (self.seen_at(file, b), of(b)) {
                    (Seen::Whole(id), Some(v)) => id == v.id,
                    (Seen::Whole(id), None) => id == self.ledger.zero,
                    (Seen::Tail(t), Some(v)) => v.data.sub(0, t.len() as u32).to_vec() == t,
                    (Seen::Tail(t), None) => t.iter().all(|b| *b == 0),
                })
            };
            let whole = (0..=self.begun).rev().any(|version| {
                let size = life.sizes.iter().rev().find(|s| s.version <= version);
                size.is_some_and(|s| s.to == file.size) && is(version)
            });
            if !whole {
                out.push(Violation {
                    rule: Rule::MixedVersions,
                    path: file.path.clone(),
                    offset: None,
                    expected: "contents and length of one version".to_owned(),
                    seen: format!("{} bytes of several versions", file.size),
                });
            }
        }
    }

    /// A block of a file whose length is of version `since` at the earliest, with data older than a
    /// cut before that took it away: the block, the version of its data, and the cut's.
    fn cut_back(&self, file: &Survivor, life: &FileLife, since: u32) -> Option<(u64, u32, u32)> {
        let bs = self.ledger.block_bytes();
        let lengths = life.sizes.iter().zip(life.sizes.iter().skip(1));
        let mut cuts = lengths.filter(|(a, b)| b.to < a.to && b.version < since);
        cuts.find_map(|(_, cut)| {
            let held = |b: u64| self.version_of(life, b, &self.seen_at(file, b));
            let first = cut.to / bs;
            let mut touched = life.blocks.range(first..file.size.div_ceil(bs).max(first));
            touched.find_map(|(b, versions)| {
                let was_cut = versions.iter().any(|v| v.version == cut.version);
                held(*b).filter(|v| was_cut && *v < cut.version).map(|v| (*b, v, cut.version))
            })
        })
    }

    /// The survivor that is `object`, if it is there.
    pub(crate) fn find(&self, object: Object) -> Option<&Survivor> {
        let life = &self.ledger.files[object as usize];
        let at_some_time = |path: &str| self.ledger.had(path, (0, self.begun)).any(|o| o == object);
        self.outcome.files.iter().map(|f| &**f).find(|f| {
            f.kind == life.kind && life.ino.is_none_or(|i| i == f.ino) && at_some_time(&f.path)
        })
    }

    /// Was it deleted, and its inode given to another file, which may be what is there?
    pub(crate) fn is_reused(&self, object: Object) -> bool {
        let born = |o: Object| self.ledger.files[o as usize].sizes.first().map_or(0, |s| s.version);
        let ino = self.ledger.files[object as usize].ino;
        let others = ino.and_then(|ino| self.ledger.by_ino.get(&ino));
        others.is_some_and(|o| o.iter().any(|o| *o > object && born(*o) <= self.begun))
    }

    /// O7: a read went back to what was there before a write.
    fn stale_read(&self, out: &mut Vec<Violation>) {
        if !self.profile.reads_stay {
            return;
        }
        let returned = |n: u32| self.ledger.order.has_returned(n, self.ended);
        let back = self.ledger.stale_reads.iter().find(|(n, ..)| returned(*n));
        out.extend(back.map(|(n, path, offset, seen)| Violation {
            rule: Rule::Errors,
            path: path.clone(),
            offset: Some(*offset),
            expected: format!(
                "`{}` to return the data of the previous read",
                self.ledger.text(n + 1)
            ),
            seen: seen.clone(),
        }));
    }

    /// O7: who mounts next is told that the file system had stopped.
    fn error_reported_at_mount(&self, out: &mut Vec<Violation>) {
        let returned = |n: u32| self.ledger.order.has_returned(n, self.ended);
        let left = self.ledger.error_recorded_on_disk.is_some_and(returned);
        if left && !self.outcome.knows_errors {
            out.push(Violation {
                rule: Rule::Errors,
                path: String::new(),
                offset: None,
                expected: "a report that the last mount stopped after an error".to_owned(),
                seen: "an image without a recorded error".to_owned(),
            });
        }
    }

    /// O6: whoever took another's name is not empty, if it was not then.
    fn replaced(&self, out: &mut Vec<Violation>) {
        if !self.profile.replaces_whole {
            return;
        }
        for r in self.ledger.replacements.iter().filter(|r| r.version <= self.begun) {
            let ino = self.ledger.files[r.object as usize].ino;
            let mut there = self.outcome.files.iter();
            let Some(file) = there.find(|f| f.path == r.path && Some(f.ino) == ino) else {
                continue;
            };
            let life = &self.ledger.files[r.object as usize];
            let then = life.sizes.iter().rev().find(|s| s.version <= r.version);
            let mut later = life.sizes.iter().filter(|s| s.version > r.version);
            let may_be_empty = then.is_none_or(|s| s.to == 0) || later.any(|s| s.to == 0);
            if file.size == 0 && !may_be_empty && !self.is_reused(r.object) {
                out.push(Violation {
                    rule: Rule::Replaced,
                    path: r.path.clone(),
                    offset: None,
                    expected: format!("the contents at `{}`", self.ledger.text(r.version)),
                    seen: "an empty file".to_owned(),
                });
            }
        }
    }

    /// O5: the tree is that of some version.
    fn order(&self, out: &mut Vec<Violation>) {
        if !self.profile.names_in_order {
            return;
        }
        let files = &self.outcome.files;
        let may = &self.ledger.names[..=self.begun as usize];
        if !may.iter().rev().any(|n| self.is_tree(n)) {
            let list: Vec<&str> = files.iter().map(|f| f.path.as_str()).collect();
            out.push(Violation {
                rule: Rule::Order,
                path: String::new(),
                offset: None,
                expected: "the names of one version".to_owned(),
                seen: format!("{{{}}}", list.join(", ")),
            });
        }
    }
}
