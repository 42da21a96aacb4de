//! O4: what a call promised by returning is kept; O5: what one put before others is there if
//! something of those is.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;

use wp_vfs::{FileFlags, FileType, TimeSpec};

use crate::ledger::{Basis, FileLife, Names, Object, Promise, ROOT, Scope, SizeVersion};
use crate::oracle::Judge;
use crate::rules::{Rule, Telling, Violation};
use crate::subject::Survivor;

impl Judge<'_> {
    /// O4, and O5 of barriers.
    pub(crate) fn promises(&self, out: &mut Vec<Violation>) {
        let counts = |p: &&Promise| match p.basis {
            Basis::Call | Basis::Sync | Basis::Order => true,
            Basis::Direct => self.profile.direct_is_durable,
            Basis::Commit => self.profile.commits_hold,
            Basis::Mark => self.profile.marks_hold,
            Basis::Read => self.profile.reads_stay,
            Basis::New => self.profile.new_by_fdatasync,
            Basis::Reserved => self.profile.fallocate_syncs,
        };
        let returned = |n: u32| self.ledger.order.has_returned(n, self.ended);
        let made = self.ledger.promises.iter().filter(|p| p.operation.is_none_or(returned));
        let mut kept = KeptFiles::default();
        let newest = OnceCell::new();
        // The last ones first: what they cover need not be checked again.
        let each = made.filter(counts).rev().map(|promise| {
            let mut broken = Vec::new();
            let before = match self.only_orders(promise) {
                true => Some(*newest.get_or_init(|| self.newest_there())),
                false => None,
            };
            // Nothing that was called after a barrier is there: it has put nothing before it.
            if before.is_none_or(|newest| newest > promise.covers) {
                self.promise(promise, before, &mut kept, &mut broken);
            }
            broken
        });
        let broken: Vec<Vec<Violation>> = each.filter(|b| !b.is_empty()).collect();
        out.extend(broken.into_iter().rev().flatten());
    }

    /// Does it say nothing of what is durable?
    fn only_orders(&self, promise: &Promise) -> bool {
        match promise.basis {
            Basis::Order => true,
            Basis::Sync | Basis::New => self.profile.syncs_only_order,
            _ => false,
        }
    }

    /// One of them; `before`: the newest version that is there, of one that only puts in order.
    fn promise(
        &self,
        promise: &Promise,
        before: Option<u32>,
        kept: &mut KeptFiles,
        out: &mut Vec<Violation>,
    ) {
        let by = By {
            call: self.ledger.text(promise.version()),
            before: before.map(|version| self.ledger.text(version)),
        };
        // A promise holds from the return of its call on. The cut that is judged by it comes at
        // that moment at the earliest, and whatever was called before may show.
        let begun = self.begun.max(promise.version());
        let judge = Judge { begun, ..*self };
        let covers = promise.covers;
        let first = self.profile.errors == Telling::First;
        let since = match self.ledger.failed {
            true if first => promise.since_any,
            true => promise.since_own,
            false => 0,
        };
        let told = self.ledger.failed || promise.basis == Basis::Read;
        let rule = match before {
            Some(_) => Rule::Order,
            None if told => Rule::Errors,
            None => Rule::LostSync,
        };
        let attributes = matches!(promise.scope, Scope::All | Scope::File { names: true, .. });
        let named = matches!(promise.scope, Scope::All);
        let due = Due { covers, since, names: false, named, attributes, range: None, by, rule };
        match promise.scope {
            Scope::File { object, names } => {
                let is_kept = kept.has(object, (begun, covers), names);
                if is_kept && !cfg!(debug_assertions) {
                    return;
                }
                let profiled = names && self.profile.fsync_keeps_names;
                judge.kept_file(object, &Due { names: profiled, named: profiled, ..due }, out);
                debug_assert!(!is_kept || out.is_empty(), "a later promise is kept: {out:?}");
                // Where the device has failed, what is due is no longer only a matter of versions.
                if out.is_empty() && !self.ledger.failed {
                    kept.note(object, (begun, covers), names);
                }
            }
            Scope::Range { object, from, to } => {
                let range = Some((from, to));
                judge.kept_file(object, &Due { range, ..due }, out);
            }
            Scope::Dir(object) => {
                judge.kept_names(Some(object), &due, out);
                let root = if object == ROOT { judge.root() } else { None };
                if let Some(dir) = root.as_ref().or_else(|| judge.find(object))
                    && matches!(promise.basis, Basis::Sync | Basis::Call)
                    && promise.is_full
                {
                    let life = &judge.ledger.files[object as usize];
                    out.extend(judge.kept_stat(life, dir, &due));
                }
            }
            Scope::Name { object, mark } => {
                judge.kept_mark(object, &self.ledger.marks[mark as usize], &due, out);
            }
            Scope::All => {
                judge.kept_names(None, &due, out);
                if let Some(root) = judge.root() {
                    let life = &judge.ledger.files[ROOT as usize];
                    out.extend(judge.kept_stat(life, &root, &due));
                }
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
            expected: format!("{expected}, as {by}"),
            seen,
        };
        let Some(file) = self.find(object) else {
            let must = names && then.iter().any(|p| !self.changed(p, covers, object))
                || due.named && self.was_never_nameless(object, covers);
            if must && let Some(path) = then.first() {
                out.push(lost(path, None, "the file".into(), "no such file".into()));
            }
            return;
        };
        if names && self.is_nameless(object, covers) {
            // generic/764: the removal of its last name came before what was synced.
            out.push(lost(&file.path, None, "no such file".into(), "the file".into()));
            return;
        }
        if names {
            let gone = then.iter().find(|p| {
                !self.changed(p, covers, object)
                    && !self.outcome.files.iter().any(|f| f.path == ***p)
            });
            if let Some(path) = gone {
                out.push(lost(path, None, "this name".into(), "no such name".into()));
            }
            let mut others = self
                .outcome
                .files
                .iter()
                .filter(|f| life.ino == Some(f.ino) && f.kind == life.kind && f.nlink > 1);
            if let Some(other) = others.find(|f| self.had_no_name(&f.path, covers, object)) {
                out.push(lost(&other.path, None, "no such name".into(), "the name".into()));
            }
        }
        if due.attributes {
            out.extend(self.kept_xattrs(life, file, due));
            out.extend(self.kept_stat(life, file, due));
        }
        if life.kind != FileType::File {
            return;
        }
        let required = life.sizes.iter().rev().find(|s| s.version <= covers && !s.maybe);
        let fits = |s: &&SizeVersion| {
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
        // fdatasync too: xfstests generic/468.
        if range.is_none()
            && let Some(want) = self.lost_space(life, file, covers)
        {
            let seen = format!("space up to byte {}", file.allocated.unwrap_or(0));
            out.push(lost(&file.path, None, format!("space up to byte {want}"), seen));
        }
        let bs = self.ledger.block_bytes();
        let (first, last) = range.map_or((0, u64::MAX), |(from, to)| (from / bs, to.div_ceil(bs)));
        let last = last.min(file.size.div_ceil(bs));
        for (block, versions) in life.blocks.range(first.min(last)..last) {
            let required = versions.iter().rev().find(|v| v.version <= covers && !v.maybe);
            let Some(required) = required.filter(|v| v.version > due.since) else { continue };
            let seen = self.seen_at(file, *block);
            let version = self.version_of(life, *block, &seen);
            // What is of no version at all is no matter of order: O2 has it.
            let foreign = due.rule != Rule::Order;
            if version.map_or(foreign, |v| v < required.version) {
                out.push(lost(
                    &file.path,
                    Some(block * bs),
                    format!("data of `{}` or later", self.ledger.text(required.version)),
                    match version {
                        Some(v) => format!("data of `{}`", self.ledger.text(v)),
                        None => self.whose(&seen),
                    },
                ));
                return;
            }
        }
    }

    /// Has the object had some name or other since version `covers`? Then a rename that is half
    /// done may not take it away.
    fn was_never_nameless(&self, object: Object, covers: u32) -> bool {
        // The last one first: of most that are gone that is the end of it.
        let mut since = self.ledger.names[covers as usize..=self.begun as usize].iter().rev();
        since.all(|n| paths(n, object).next().is_some())
    }

    /// Has the object had no name since version `covers`?
    fn is_nameless(&self, object: Object, covers: u32) -> bool {
        let since = &self.ledger.names[covers as usize..=self.begun as usize];
        since.iter().all(|n| paths(n, object).next().is_none())
    }

    /// Has the object not had this name since version `covers`, nor has any other?
    fn had_no_name(&self, path: &str, covers: u32, object: Object) -> bool {
        !self.ledger.had(path, (covers, self.begun)).any(|o| o == object)
    }

    /// Space behind the end that was asked for by version `covers`, never given back, and is not
    /// there: up to which byte.
    fn lost_space(&self, life: &FileLife, file: &Survivor, covers: u32) -> Option<u64> {
        let (then, want) = *life.reserved.iter().rev().find(|r| r.0 <= covers)?;
        let changed = life.reserved.iter().any(|r| r.0 > then && r.0 <= self.begun && r.1 < want);
        (!changed && file.allocated? < want).then_some(want)
    }

    /// The root directory, of which only attributes are known.
    fn root(&self) -> Option<Survivor> {
        let stat = self.outcome.root?;
        Some(Survivor {
            path: ".".to_owned(),
            kind: FileType::Dir,
            ino: 0,
            nlink: 2,
            size: 0,
            stat: Some(stat),
            target: None,
            xattrs: None,
            blocks: Vec::new(),
            tail: None,
            allocated: None,
        })
    }

    /// Permission bits, owner, flags and time of modification, as of version `covers` or later.
    fn kept_stat(&self, life: &FileLife, file: &Survivor, due: &Due<'_>) -> Option<Violation> {
        let stat = file.stat?;
        let mode = |m: &u32| format!("permission bits {m:04o}");
        let owner = |o: &(u32, u32)| format!("owner {}:{}", o.0, o.1);
        let flags = |f: &Option<FileFlags>| match f {
            Some(flags) => format!("flags {flags}"),
            None => "any flags".to_owned(),
        };
        let has_flags = |f: &Option<FileFlags>| f.is_none_or(|f| f == stat.flags);
        let time = |t: &Option<TimeSpec>| match t {
            Some(t) => format!("time of modification {}.{:09}", t.secs, t.nanos),
            None => "any time of modification".to_owned(),
        };
        let of_file = if life.kind == FileType::File { &life.mtimes[..] } else { &[] };
        let is_time = |t: &Option<TimeSpec>| t.is_none_or(|t| t == stat.mtime);
        let lost = self
            .older(&life.modes, due, |m| *m == stat.mode, mode)
            .map(|(want, set)| (want, set, mode(&stat.mode)))
            .or_else(|| {
                let (want, set) = self.older(&life.owners, due, |o| *o == stat.owner, owner)?;
                Some((want, set, owner(&stat.owner)))
            })
            .or_else(|| {
                let (want, set) = self.older(&life.flags, due, has_flags, flags)?;
                Some((want, set, flags(&Some(stat.flags))))
            })
            .or_else(|| {
                let (want, set) = self.older(of_file, due, is_time, time)?;
                Some((want, set, time(&Some(stat.mtime))))
            });
        let (want, version, seen) = lost?;
        let (set, by) = (self.ledger.text(version), due.by);
        Some(Violation {
            rule: due.rule,
            path: file.path.clone(),
            offset: None,
            expected: format!("{want} as of `{set}` or later, as {by}"),
            seen,
        })
    }

    /// The value that is due, in words, and its version, if none is there of those that may be.
    fn older<T>(
        &self,
        versions: &[(u32, T)],
        due: &Due<'_>,
        is: impl Fn(&T) -> bool,
        words: impl Fn(&T) -> String,
    ) -> Option<(String, u32)> {
        let at = versions.iter().rposition(|(v, _)| *v <= due.covers)?;
        let (required, value) = versions.get(at)?;
        let may = versions[at..].iter().filter(|(v, _)| *v <= self.begun);
        let kept = may.map(|(_, value)| value).any(is);
        (!kept && *required > due.since).then(|| (words(value), *required))
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
            let (set, by) = (self.ledger.text(required.version), due.by);
            Some(Violation {
                rule: due.rule,
                path: file.path.clone(),
                offset: None,
                expected: format!("{name} as of `{set}` or later, as {by}"),
                seen: match (there, seen) {
                    (None, _) => "attributes that cannot be read".to_owned(),
                    (_, None) => "no such attribute".to_owned(),
                    (_, Some(v)) => format!("an older value of {} bytes", v.len()),
                },
            })
        })
    }

    /// Did any operation after version `covers`, called by then, take the name from the object?
    fn changed(&self, path: &str, covers: u32, object: Object) -> bool {
        self.ledger.has_left(path, (covers, self.begun), object)
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
                    expected: format!("this name, as {by}"),
                    seen: "no such name".to_owned(),
                });
                return;
            }
        }
        for file in self.outcome.files.iter().filter(|f| within(&f.path)) {
            if !self.ledger.may_have(&file.path, (covers, self.begun)) {
                out.push(Violation {
                    rule,
                    path: file.path.clone(),
                    offset: None,
                    expected: format!("no such name, as {by}"),
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
            expected: format!("this name, as `{}` reported", due.by.call),
            seen: if other { "another file of that name" } else { "no such name" }.to_owned(),
        });
    }
}

/// Files of which all that some promise said was found kept. What was promised of such a file
/// before, and is judged for the same moment, is kept too: whatever it asks for, this promise asks
/// for the same or something later.
#[derive(Default)]
struct KeptFiles(BTreeMap<Object, (u32, u32, bool)>);

impl KeptFiles {
    /// Is this promise kept because a later one is? `(begun, covers)`; `names`: of a file's names
    /// and attributes too.
    fn has(&self, object: Object, (begun, covers): (u32, u32), names: bool) -> bool {
        let later = self.0.get(&object);
        later.is_some_and(|(b, c, n)| *b == begun && *c >= covers && (*n || !names))
    }

    fn note(&mut self, object: Object, (begun, covers): (u32, u32), names: bool) {
        self.0.insert(object, (begun, covers, names));
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
    /// It had a durable name: it cannot be gone as long as it has one.
    named: bool,
    /// Its extended attributes: `fdatasync` says nothing of them.
    attributes: bool,
    /// Bytes of the file; `None`: all.
    range: Option<(u64, u64)>,
    /// Who made the promise.
    by: By<'a>,
    rule: Rule,
}

/// The call that says so.
#[derive(Clone, Copy)]
struct By<'a> {
    call: &'a str,
    /// A call that came after it, of which something is there.
    before: Option<&'a str>,
}

impl fmt::Display for By<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.before {
            None => write!(f, "`{}` promised", self.call),
            Some(later) => write!(f, "`{}` ordered before `{later}`, which survived", self.call),
        }
    }
}

fn paths(names: &Names, object: Object) -> impl Iterator<Item = &String> {
    names.iter().filter(move |(_, o)| **o == object).map(|(p, _)| p)
}
