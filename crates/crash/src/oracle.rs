//! The oracles: is what recovery left allowed?
//!
//! Letters as in the literature's list: O0 recoverable, O1 metadata, O2 data, O3 version, O4
//! durability, O5 order, O6 replacing files, O7 errors of the device.

use wp_vfs::FileType;

use crate::ledger::{Basis, FileLife, Ledger, Names, Object, Promise, Scope};
pub(crate) use crate::rules::{Profile, Rule, Telling, Violation};
use crate::subject::{Outcome, Survivor};

/// Judges what is left of a cut at which the operations before `begun` had been called and those
/// before `ended` had returned.
pub fn judge(
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
    let judge = Judge { ledger, outcome, begun, ended, profile };
    judge.data(&mut out);
    judge.links(&mut out);
    judge.xattrs(&mut out);
    judge.promises(&mut out);
    judge.order(&mut out);
    judge.replaced(&mut out);
    judge.went_back(&mut out);
    out
}

struct Judge<'a> {
    ledger: &'a Ledger,
    outcome: &'a Outcome,
    /// Versions up to this one may be there.
    begun: u32,
    ended: u32,
    profile: &'a Profile,
}

/// What a block of a survivor holds.
enum Seen<'a> {
    Whole(u128),
    Tail(&'a [u8]),
}

impl Judge<'_> {
    /// The files that a survivor may be: by inode, else by path.
    fn candidates(&self, file: &Survivor) -> Vec<Object> {
        if let Some(objects) = self.ledger.by_ino.get(&file.ino) {
            return objects.clone();
        }
        let mut found: Vec<Object> =
            self.ledger.names.iter().filter_map(|n| n.get(&file.path)).copied().collect();
        found.dedup();
        found
    }

    /// The newest version at which `life` held in `block` what is seen there; `None`: never.
    fn version_of(&self, life: &FileLife, block: u64, seen: &Seen<'_>) -> Option<u32> {
        let none = Vec::new();
        let versions = life.blocks.get(&block).unwrap_or(&none);
        let held = |data: &wp_medium::Slice, id: u128| match seen {
            Seen::Whole(seen) => *seen == id,
            Seen::Tail(bytes) => data.sub(0, bytes.len() as u32).to_vec() == *bytes,
        };
        let newest = versions
            .iter()
            .rev()
            .filter(|v| v.version <= self.begun)
            .find(|v| held(&v.data, v.id))
            .map(|v| v.version);
        newest.or_else(|| {
            let zero = match seen {
                Seen::Whole(seen) => *seen == self.ledger.zero,
                Seen::Tail(bytes) => bytes.iter().all(|b| *b == 0),
            };
            zero.then_some(0)
        })
    }

    /// What stands in each block below the size that is not a hole.
    fn seen<'f>(&self, file: &'f Survivor) -> impl Iterator<Item = (u64, Seen<'f>)> {
        let last = file.size / self.ledger.block_bytes();
        let tail = file.tail.as_deref().map(|t| (last, Seen::Tail(t)));
        file.blocks.iter().map(|(b, id)| (*b, Seen::Whole(*id))).chain(tail)
    }

    fn seen_at<'f>(&self, file: &'f Survivor, block: u64) -> Seen<'f> {
        let last = file.size / self.ledger.block_bytes();
        match (&file.tail, file.blocks.binary_search_by_key(&block, |b| b.0)) {
            (Some(tail), _) if block == last => Seen::Tail(tail),
            (_, Ok(i)) => Seen::Whole(file.blocks[i].1),
            _ if block == last => Seen::Tail(&[]),
            _ => Seen::Whole(self.ledger.zero),
        }
    }

    fn whose(&self, seen: &Seen<'_>) -> String {
        let Seen::Whole(id) = seen else { return "bytes that were never there".to_owned() };
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

    fn data(&self, out: &mut Vec<Violation>) {
        let bs = self.ledger.block_bytes();
        for file in self.outcome.files.iter().filter(|f| f.kind == FileType::File) {
            let candidates = self.candidates(file);
            let mut life = None;
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
            let names = self.ledger.names.iter().take(self.begun as usize + 1);
            let lives =
                names.filter_map(|n| Some(&self.ledger.files[*n.get(&file.path)? as usize]));
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
            let names = self.ledger.names.iter().take(self.begun as usize + 1);
            objects.extend(names.filter_map(|n| n.get(&file.path)));
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

    /// Attributes of a file, as of version `covers` or later.
    fn kept_xattrs(&self, life: &FileLife, file: &Survivor, due: &Due<'_>) -> Option<Violation> {
        life.xattrs.iter().find_map(|(name, versions)| {
            let required = versions.iter().rev().find(|v| v.version <= due.covers)?;
            let there = file.xattrs.as_ref();
            let seen = there.and_then(|x| x.iter().find(|(n, _)| n == name)).map(|(_, v)| v);
            let mut may = versions
                .iter()
                .filter(|v| v.version >= required.version && v.version <= self.begun);
            let kept = there.is_some() && may.any(|v| v.value.as_ref() == seen);
            if required.version <= due.since || kept {
                return None;
            }
            let set = self.ledger.text(required.version);
            Some(Violation {
                rule: due.rule,
                path: file.path.clone(),
                offset: None,
                expected: format!("{name} as of `{set}` or later, as `{}` promised", due.by),
                seen: match (there, seen) {
                    (None, _) => "attributes that cannot be read".to_owned(),
                    (_, None) => "no such attribute".to_owned(),
                    (_, Some(v)) => format!("an older value of {} bytes", v.len()),
                },
            })
        })
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
                expected: format!("nothing older than `{}`", self.ledger.text(cut)),
                seen: format!("what was there since `{}`", self.ledger.text(held)),
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
                    expected: "contents and length of one moment".to_owned(),
                    seen: format!("{} bytes of several", file.size),
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

    fn promises(&self, out: &mut Vec<Violation>) {
        let counts = |p: &&Promise| match p.basis {
            Basis::Call => true,
            Basis::Direct => self.profile.direct_is_durable,
            Basis::Mark => self.profile.marks_hold,
            Basis::Read => self.profile.reads_stay,
            Basis::New => self.profile.new_by_fdatasync,
            Basis::Reserved => self.profile.fallocate_syncs,
        };
        let made = self.ledger.promises.iter().filter(|p| p.operation < self.ended);
        for promise in made.filter(counts) {
            let by = self.ledger.text(promise.operation + 1);
            // A promise holds from the return of its call on. The cut that is judged by it comes at
            // that moment at the earliest, and whatever was called before may show.
            let begun = self.begun.max(promise.operation + 1);
            let judge = Judge { begun, ..*self };
            let covers = promise.covers;
            let first = self.profile.errors == Telling::First;
            let since = match self.ledger.failed {
                true if first => promise.since_any,
                true => promise.since_own,
                false => 0,
            };
            let told = self.ledger.failed || promise.basis == Basis::Read;
            let rule = if told { Rule::Errors } else { Rule::LostSync };
            let attributes = matches!(promise.scope, Scope::All | Scope::File { names: true, .. });
            let due = Due { covers, since, names: false, attributes, range: None, by, rule };
            match promise.scope {
                Scope::File { object, names } => {
                    let names = names && self.profile.fsync_keeps_names;
                    judge.kept_file(object, &Due { names, ..due }, out);
                }
                Scope::Range { object, from, to } => {
                    let range = Some((from, to));
                    judge.kept_file(object, &Due { range, ..due }, out);
                }
                Scope::Dir(object) => judge.kept_names(Some(object), &due, out),
                Scope::Name { object, mark } => {
                    judge.kept_mark(object, &self.ledger.marks[mark as usize], &due, out);
                }
                Scope::All => {
                    judge.kept_names(None, &due, out);
                    let mut objects: Vec<Object> =
                        self.ledger.names[promise.covers as usize].values().copied().collect();
                    objects.sort_unstable();
                    objects.dedup();
                    for object in objects {
                        judge.kept_file(object, &due, out);
                    }
                }
            }
        }
    }

    /// The survivor that is `object`, if it is there.
    fn find(&self, object: Object) -> Option<&Survivor> {
        let life = &self.ledger.files[object as usize];
        let at_some_time = |path: &str| {
            self.ledger
                .names
                .iter()
                .take(self.begun as usize + 1)
                .any(|n| n.get(path) == Some(&object))
        };
        self.outcome.files.iter().map(|f| &**f).find(|f| {
            f.kind == life.kind && life.ino.is_none_or(|i| i == f.ino) && at_some_time(&f.path)
        })
    }

    /// Was it deleted, and its inode given to another file, which may be what is there?
    fn is_reused(&self, object: Object) -> bool {
        let born = |o: Object| self.ledger.files[o as usize].sizes.first().map_or(0, |s| s.version);
        let ino = self.ledger.files[object as usize].ino;
        let others = ino.and_then(|ino| self.ledger.by_ino.get(&ino));
        others.is_some_and(|o| o.iter().any(|o| *o > object && born(*o) <= self.begun))
    }

    /// Data and length of a file, as of version `covers` or later.
    fn kept_file(&self, object: Object, due: &Due<'_>, out: &mut Vec<Violation>) {
        if self.is_reused(object) {
            return;
        }
        let &Due { covers, names, range, by, .. } = due;
        let life = &self.ledger.files[object as usize];
        let then: Vec<&String> = paths(&self.ledger.names[covers as usize], object).collect();
        let lost = |path: &str, offset, expected: String, seen: String| Violation {
            rule: due.rule,
            path: path.to_owned(),
            offset,
            expected: format!("{expected}, as `{by}` promised"),
            seen,
        };
        let Some(file) = self.find(object) else {
            let must = names && then.iter().any(|p| !self.changed(p, covers, object));
            if must {
                out.push(lost(then[0], None, "the file".into(), "no such file".into()));
            }
            return;
        };
        if names {
            let gone = then.iter().find(|p| {
                !self.changed(p, covers, object)
                    && !self.outcome.files.iter().any(|f| f.path == ***p)
            });
            if let Some(path) = gone {
                out.push(lost(path, None, "this name".into(), "no such name".into()));
            }
        }
        if due.attributes {
            out.extend(self.kept_xattrs(life, file, due));
        }
        if life.kind != FileType::File {
            return;
        }
        let required = life.sizes.iter().rev().find(|s| s.version <= covers && !s.maybe);
        let fits = |s: &&crate::ledger::SizeVersion| {
            required.is_some_and(|r| {
                // Of a range only as much length is promised as makes it readable.
                let long = |to: u64| file.size >= to;
                s.version == r.version && range.map_or(file.size == s.to, |(_, to)| long(to))
                    || s.version > r.version
                        && s.version <= self.begun
                        && s.from <= file.size
                        && file.size <= s.to
            })
        };
        if life.sizes.iter().find(fits).is_none() {
            let want = required.map_or(0, |r| r.to);
            out.push(lost(
                &file.path,
                None,
                match range {
                    Some((_, to)) => format!("a length of {to} or more"),
                    None => format!("a length of {want}"),
                },
                format!("a length of {}", file.size),
            ));
            return;
        }
        let bs = self.ledger.block_bytes();
        let (first, last) = range.map_or((0, u64::MAX), |(from, to)| (from / bs, to.div_ceil(bs)));
        let last = last.min(file.size.div_ceil(bs));
        for (block, versions) in life.blocks.range(first.min(last)..last) {
            let required = versions.iter().rev().find(|v| v.version <= covers && !v.maybe);
            let Some(required) = required.filter(|v| v.version > due.since) else { continue };
            let seen = self.seen_at(file, *block);
            let version = self.version_of(life, *block, &seen);
            if version.is_none_or(|v| v < required.version) {
                out.push(lost(
                    &file.path,
                    Some(block * bs),
                    format!("what `{}` wrote or later", self.ledger.text(required.version)),
                    match version {
                        Some(v) => format!("what was there since `{}`", self.ledger.text(v)),
                        None => self.whose(&seen),
                    },
                ));
                return;
            }
        }
    }

    /// Did any operation after version `covers`, called by then, take the name from the object?
    fn changed(&self, path: &str, covers: u32, object: Object) -> bool {
        let later = &self.ledger.names[covers as usize..=self.begun as usize];
        later.iter().any(|n| n.get(path) != Some(&object))
    }

    /// The names of a directory (`None`: of all) are those of version `covers` or later ones.
    fn kept_names(&self, dir: Option<Object>, due: &Due<'_>, out: &mut Vec<Violation>) {
        let &Due { covers, by, rule, .. } = due;
        let then = &self.ledger.names[covers as usize];
        let within = |path: &str| match dir {
            None => true,
            Some(dir) => {
                let parent = path.rsplit_once('/').map(|(p, _)| p);
                match parent {
                    None => dir == 0,
                    Some(p) => then.get(p) == Some(&dir),
                }
            }
        };
        for (path, object) in then.iter().filter(|(p, _)| within(p)) {
            let there = self.outcome.files.iter().any(|f| f.path == *path);
            if !there && !self.changed(path, covers, *object) {
                out.push(Violation {
                    rule,
                    path: path.clone(),
                    offset: None,
                    expected: format!("this name, as `{by}` promised"),
                    seen: "no such name".to_owned(),
                });
                return;
            }
        }
        for file in self.outcome.files.iter().filter(|f| within(&f.path)) {
            let later = &self.ledger.names[covers as usize..=self.begun as usize];
            if !later.iter().any(|n| n.contains_key(&file.path)) {
                out.push(Violation {
                    rule,
                    path: file.path.clone(),
                    offset: None,
                    expected: format!("no such name, as `{by}` promised"),
                    seen: "the name".to_owned(),
                });
                return;
            }
        }
    }

    /// A name that was told of still leads to the file.
    fn kept_mark(&self, object: Object, path: &str, due: &Due<'_>, out: &mut Vec<Violation>) {
        let ino = self.ledger.files[object as usize].ino;
        let is = |f: &Survivor| f.path == path && ino.is_none_or(|i| i == f.ino);
        if self.outcome.files.iter().any(|f| is(f)) || self.changed(path, due.covers, object) {
            return;
        }
        let other = self.outcome.files.iter().any(|f| f.path == path);
        out.push(Violation {
            rule: due.rule,
            path: path.to_owned(),
            offset: None,
            expected: format!("this name, as `{}` told", due.by),
            seen: if other { "another file of that name" } else { "no such name" }.to_owned(),
        });
    }

    /// O7: a read went back to what was there before a write.
    fn went_back(&self, out: &mut Vec<Violation>) {
        if !self.profile.reads_stay {
            return;
        }
        let back = self.ledger.went_back.iter().find(|(n, ..)| *n < self.ended);
        out.extend(back.map(|(n, path, offset, seen)| Violation {
            rule: Rule::Errors,
            path: path.clone(),
            offset: Some(*offset),
            expected: format!("`{}` to show what the read before did", self.ledger.text(n + 1)),
            seen: seen.clone(),
        }));
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
                    expected: format!("what was there when `{}`", self.ledger.text(r.version)),
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
        let is = |names: &Names| {
            names.len() == files.len()
                && files.iter().all(|f| {
                    names.get(&f.path).is_some_and(|o| {
                        let life = &self.ledger.files[*o as usize];
                        life.kind == f.kind && life.ino.is_none_or(|i| i == f.ino)
                    })
                })
        };
        let may = &self.ledger.names[..=self.begun as usize];
        if !may.iter().rev().any(|n| is(n)) {
            let list: Vec<&str> = files.iter().map(|f| f.path.as_str()).collect();
            out.push(Violation {
                rule: Rule::Order,
                path: String::new(),
                offset: None,
                expected: "the names of some moment".to_owned(),
                seen: format!("{{{}}}", list.join(", ")),
            });
        }
    }
}

/// What is due of a promise.
#[derive(Clone, Copy)]
struct Due<'a> {
    /// Versions up to this one.
    covers: u32,
    /// Of data only those after this one.
    since: u32,
    /// Names of a file too.
    names: bool,
    /// Its extended attributes: `fdatasync` says nothing of them.
    attributes: bool,
    /// Bytes of the file; `None`: all.
    range: Option<(u64, u64)>,
    /// Who made the promise.
    by: &'a str,
    rule: Rule,
}

fn paths(names: &Names, object: Object) -> impl Iterator<Item = &String> {
    names.iter().filter(move |(_, o)| **o == object).map(|(p, _)| p)
}
