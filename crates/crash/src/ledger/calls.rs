//! What each call does to files, names and promises.

use wp_base::FsError;
use wp_medium::Slice;
use wp_vfs::{FileFlags, FileType, RenameHow};
use wp_workload::program::{Alloc, Call, contents};

use crate::paths::Follow;

use super::{Basis, Did, InFlight, Ledger, Object, Open, Replacement, Scope, SizeVersion, Walk};

/// Bytes of a page of memory.
const PAGE: u64 = 4096;

/// Most bytes that a call copies or clones: for a clone 0 is all that there are.
fn cloned(call: &Call, len: u64) -> u64 {
    match (call, len) {
        (Call::Reflink { .. }, 0) => u64::MAX,
        _ => len,
    }
}

/// A write of no bytes: it changes neither the length nor a time, and promises nothing
/// (`generic_write_checks`).
fn writes_nothing(call: &Call) -> bool {
    matches!(
        call,
        Call::Pwrite { len: 0, .. }
            | Call::AioWrite { len: 0, .. }
            | Call::MmapWrite { len: 0, .. }
    ) || matches!(call, Call::CopyFileRange { len: 0, .. })
}

impl Ledger {
    /// A call that found no space: stores of some pages stay; `fallocate` keeps what it got until
    /// then, with the length that this gives.
    pub(super) fn partly(&mut self, n: u32, did: &Did, walk: &Walk) {
        self.touched(n, did, walk);
        self.stored_in_part(n, did, walk);
        let Call::Fallocate(fd, Alloc::Extend | Alloc::Zero, at, len) = &did.call else { return };
        let Some(open) = walk.open.get(fd) else { return };
        let (object, version) = (open.object, n + 1);
        self.grow(object, version, at + len, None);
        let grown = self.files[object as usize].sizes.last_mut();
        if let Some(size) = grown.filter(|s| s.version == version) {
            size.maybe = true;
        }
    }

    /// A call that failed because the device did, or because the file system was stopped for that.
    pub(super) fn failure(&mut self, n: u32, did: &Did, walk: &mut Walk) {
        let version = n + 1;
        self.touched(n, did, walk);
        self.stored_in_part(n, did, walk);
        if let Call::CopyFileRange { from, to, .. }
        | Call::Reflink { from, to, .. }
        | Call::Dedupe { from, to, .. } = &did.call
        {
            let files = [from, to].map(|fd| walk.open.get(fd).is_some_and(|o| o.synced));
            // Both files are synced in the call, so both descriptors are told.
            for fd in [from, to].into_iter().filter(|_| files.contains(&true)) {
                let Some(open) = walk.open.get_mut(fd) else { continue };
                open.since = version;
                walk.told.insert(open.object, version);
            }
        }
        let (Call::Pwrite { fd, .. }
        | Call::Fsync(fd)
        | Call::Fdatasync(fd)
        | Call::Msync(fd, ..)
        | Call::SyncFileRange(fd, ..)
        | Call::Syncfs(fd)) = &did.call
        else {
            return;
        };
        let Some(open) = walk.open.get_mut(fd) else { return };
        let synced = self.is_synchronous(*open);
        match &did.call {
            Call::Syncfs(_) => open.since_fs = version,
            Call::Pwrite { .. } if !synced => {}
            _ => {
                open.since = version;
                walk.told.insert(open.object, version);
            }
        }
        if let (Call::Pwrite { at, len, data, .. }, Some(FsError::Io)) = (&did.call, &did.error) {
            let (object, to) = (open.object, self.place(*open, *at));
            self.write(object, version, to, &data.slices(*at, *len), true);
        }
    }

    /// A call that changes data has set the time before it fails (`file_modified`).
    fn touched(&mut self, n: u32, did: &Did, walk: &Walk) {
        let object = match &did.call {
            Call::Pwrite { fd, .. }
            | Call::MmapWrite { fd, .. }
            | Call::CopyFileRange { to: fd, .. }
            | Call::Reflink { to: fd, .. }
            | Call::Ftruncate(fd, _)
            | Call::Fallocate(fd, ..) => walk.open.get(fd).map(|o| o.object),
            Call::Truncate(path, _) => {
                let path = self.name(n, path, Follow::All);
                self.at(&path)
            }
            _ => None,
        };
        if let Some(object) = object {
            self.files[object as usize].touch(n + 1);
        }
    }

    /// Stores through a mapping that failed: those in the pages before the one that got no space,
    /// or could not be read, are there. Of a copy that failed in its first piece, as of a `pwrite`,
    /// nobody knows how far it came, nor of a clone, which goes from extent to extent.
    fn stored_in_part(&mut self, n: u32, did: &Did, walk: &Walk) {
        let is_partial = match did.call {
            Call::Reflink { .. } => true,
            _ => did.error == Some(FsError::Io),
        };
        if let Call::CopyFileRange { from, from_at, to, to_at, len }
        | Call::Reflink { from, from_at, to, to_at, len } = &did.call
            && is_partial
            && let (Some(from), Some(to)) = (walk.open.get(from), walk.open.get(to))
        {
            let target = to.object;
            for (at, piece) in self.bytes(from.object, *from_at, cloned(&did.call, *len)) {
                self.write(target, n + 1, *to_at + at, &[piece], true);
            }
        }
        self.cut_in_part(n, did, walk);
        if let Call::MmapWrite { fd, len, at, data } = &did.call
            && let Some(object) = walk.open.get(fd).map(|o| o.object)
        {
            let kept = self.size(object).saturating_sub(*at).min(u64::from(*len)) as u32;
            if kept > 0 {
                let data = data.part(*at, *len, (0, kept));
                self.write(object, n + 1, *at, &data, true);
            }
        }
    }

    /// A change of length, or of where blocks stand, that failed: any block may be as it was, as it
    /// was to be, or gone, and the file is as long as the program sees it now.
    fn cut_in_part(&mut self, n: u32, did: &Did, walk: &Walk) {
        let Some(size) = did.size else { return };
        let (version, fd) = (n + 1, |fd: &u32| walk.open.get(fd).map(|o| o.object));
        let object = match &did.call {
            Call::Ftruncate(of, _) | Call::Fallocate(of, ..) => fd(of),
            Call::Truncate(path, _) => {
                let path = self.name(n, path, Follow::All);
                self.at(&path)
            }
            _ => None,
        };
        let Some(o) = object else { return };
        let old = self.size(o);
        match &did.call {
            Call::Ftruncate(_, to) | Call::Truncate(_, to) => {
                self.reserve(o, version, 0);
                self.zero_in_part(o, version, (*to).min(size), old);
            }
            Call::Fallocate(_, Alloc::Punch | Alloc::Zero | Alloc::ZeroKeep, at, len) => {
                self.zero_in_part(o, version, *at, at.saturating_add(*len).min(old));
            }
            Call::Fallocate(_, how @ (Alloc::Collapse | Alloc::Insert), at, len) => {
                self.shift_in_part(o, version, *how == Alloc::Insert, (*at, *len));
            }
            _ => return,
        }
        if size != old {
            let sized = SizeVersion { version, from: size, to: size, wrote: None, maybe: true };
            self.files[o as usize].sizes.push(sized);
        }
    }

    /// An asynchronous write begins: from now on it may be there, and nobody promises it.
    fn submit(&mut self, n: u32, (open, at, data): (Open, u64, Slice), walk: &mut Walk) {
        let range = (at, at + u64::from(data.len()));
        let is_raced = walk.is_raced(open.object, range);
        let same = walk.in_flight.iter_mut().filter(|w| w.touches(open.object, range));
        same.for_each(|w| w.is_raced = true);
        self.write(open.object, n + 1, at, std::slice::from_ref(&data), true);
        walk.in_flight.push(InFlight { operation: n, open, at, data, is_raced });
    }

    /// The program knows that asynchronous calls have ended: their writes are as if made now.
    fn ended(&mut self, n: u32, did: &Did, walk: &mut Walk) {
        for end in &did.ended {
            let submitted = self.order.version(end.tag).map(|version| version - 1);
            let place = walk.in_flight.iter().position(|w| Some(w.operation) == submitted);
            let Some(w) = place.map(|place| walk.in_flight.remove(place)) else { continue };
            let Ok(wrote) = end.result else { continue };
            if w.is_raced {
                continue;
            }
            let len = u32::try_from(wrote).unwrap_or(u32::MAX).min(w.data.len());
            self.write(w.open.object, n + 1, w.at, &[w.data.sub(0, len)], false);
            self.grown(w.open.object, n + 1, (w.at, w.at + u64::from(len)));
            // Others may have made it longer still.
            let object = w.open.object;
            for other in walk.in_flight.iter().filter(|o| o.open.object == object) {
                let (from, to) = (self.size(object), other.at + u64::from(other.data.len()));
                if to > from {
                    let wrote = Some((other.at, to));
                    let size = SizeVersion { version: n + 1, from, to, wrote, maybe: true };
                    self.files[object as usize].sizes.push(size);
                }
            }
            self.written(n, w.open, (w.at, w.at + u64::from(len)), walk);
        }
    }

    /// The length that a write gave a file for certain, of which so far nobody knew.
    fn grown(&mut self, o: Object, version: u32, (at, to): (u64, u64)) {
        let sizes = &mut self.files[o as usize].sizes;
        let from = sizes.iter().rev().find(|s| !s.maybe).map_or(0, |s| s.to);
        if to > from {
            sizes.push(SizeVersion { version, from, to, wrote: Some((at, to)), maybe: false });
        }
    }

    /// Is a write through the descriptor durable when it returns, by how it was opened or by a flag
    /// of the file (`iocb_is_dsync`)?
    fn is_synchronous(&self, open: Open) -> bool {
        let flags = self.files[open.object as usize].flags.last().and_then(|(_, flags)| *flags);
        open.synced || flags.is_some_and(|flags| flags.has(FileFlags::SYNC))
    }

    /// The file has these flags, from its beginning or from a `chattr` on. While a `chattr` changes
    /// `journal-data` and others, the others change first, in a transaction of their own
    /// (`ext4_ioctl_setflags`, then `ext4_change_inode_journal_flag`).
    fn learns_flags(&mut self, version: u32, o: Object, did: &Did) {
        let all = &mut self.files[o as usize].flags;
        let before = all.last().and_then(|(_, flags)| *flags);
        if did.flags.is_none() || all.last().is_some_and(|(_, flags)| *flags == did.flags) {
            return;
        }
        if let (Some(before), Some(now)) = (before, did.flags) {
            let last = FileFlags::JOURNAL_DATA.0;
            let between = FileFlags(now.0 & !last | before.0 & last);
            if between != before && between != now {
                all.push((version, Some(between)));
            }
        }
        all.push((version, did.flags));
    }

    /// What a write promises that has ended.
    pub(super) fn written(&mut self, n: u32, open: Open, (from, to): (u64, u64), walk: &Walk) {
        let synced = self.is_synchronous(open);
        if !synced && !open.direct {
            return;
        }
        let basis = if synced { Basis::Call } else { Basis::Direct };
        let any = walk.told.get(&open.object).copied().unwrap_or(0);
        let scope = Scope::Range { object: open.object, from, to };
        self.promise(n, scope, basis, (open.since, any));
    }

    pub(super) fn operation(&mut self, n: u32, did: &Did, walk: &mut Walk) {
        let version = n + 1;
        if writes_nothing(&did.call) {
            return;
        }
        walk.race(&did.call);
        let open = &mut walk.open;
        let object = |fd: &u32| open.get(fd).map(|o| o.object);
        match &did.call {
            Call::Open(fd, path, how) => {
                let mut replaces = false;
                let path = &self.name(n, path, Follow::All);
                let object = match self.at(path) {
                    dir if how.tmpfile => {
                        let made = self.make_unnamed(version, FileType::File, did.ino);
                        self.made_with(made, how.mode);
                        self.inherits(made, dir);
                        made
                    }
                    Some(o) => {
                        if how.truncate && self.files[o as usize].kind == FileType::File {
                            let beside = walk.in_flight.iter_mut();
                            beside.filter(|w| w.open.object == o).for_each(|w| w.is_raced = true);
                            replaces = self.is_kept(o);
                            self.resize(o, version, 0);
                        }
                        o
                    }
                    None => {
                        let made = self.make(version, path, FileType::File, did.ino);
                        self.made_with(made, how.mode);
                        made
                    }
                };
                self.learns_flags(version, object, did);
                open.insert(
                    *fd,
                    Open {
                        object,
                        synced: how.dsync || how.sync,
                        append: how.append,
                        direct: how.direct,
                        since: version,
                        since_fs: version,
                        replaces,
                    },
                );
            }
            Call::Close(fd) => {
                let Some(o) = open.remove(fd) else { return };
                let names = self.names_now();
                let path = names.iter().find(|(_, x)| **x == o.object).map(|(p, _)| p.clone());
                if let Some(path) = path.filter(|_| o.replaces) {
                    self.replacements.push(Replacement { version, path, object: o.object });
                }
            }
            Call::Pwrite { fd, len, at, data, atomic } => {
                let Some(o) = open.get(fd).copied() else { return };
                let (asked, all) = (*at, *len);
                let at = &self.place(o, asked);
                self.grows_directly(o, version, at + u64::from(all));
                let len = did.short.unwrap_or(all).min(all);
                // Beside an asynchronous write of the same bytes it need not be the later one.
                let is_raced = walk.is_raced(o.object, (*at, *at + u64::from(len)));
                self.write(o.object, version, *at, &data.part(asked, all, (0, len)), is_raced);
                if o.direct && len < all {
                    // What it does not answer for may have gone to the device all the same.
                    let (at, rest) = (*at + u64::from(len), data.part(asked, all, (len, all)));
                    self.write(o.object, version, at, &rest, true);
                }
                if !is_raced {
                    self.wrote(n, o, (*at, *at + u64::from(len)), (*atomic, walk));
                }
            }
            Call::MmapWrite { fd, len, at, data } => {
                let Some(o) = object(fd) else { return };
                // What is behind the end of the file is lost with its page.
                let kept = self.size(o).saturating_sub(*at).min(u64::from(*len)) as u32;
                let is_raced = walk.is_raced(o, (*at, *at + u64::from(kept)));
                if kept > 0 {
                    let data = data.part(*at, *len, (0, kept));
                    self.write(o, version, *at, &data, is_raced);
                }
            }
            Call::CopyFileRange { from, from_at, to, to_at, len }
            | Call::Reflink { from, from_at, to, to_at, len } => {
                let (Some(source), Some(target)) = (object(from), object(to)) else { return };
                let len = did.short.map_or(cloned(&did.call, *len), u64::from);
                let data = self.bytes(source, *from_at, len);
                if let Some((last, piece)) = data.last() {
                    let range = (*to_at, *to_at + last + u64::from(piece.len()));
                    let is_raced = walk.is_raced(target, range);
                    let mut open = walk.open.get(to).copied();
                    if let (Call::Reflink { .. }, Some(open)) = (&did.call, &mut open) {
                        // Both files are synced if one of the descriptors or files is
                        // synchronous, and nothing goes past the cache.
                        let from = walk.open.get(from).copied();
                        open.synced |= from.is_some_and(|from| self.is_synchronous(from));
                        open.direct = false;
                    }
                    self.grow(target, version, range.1, Some(range));
                    for (at, piece) in &data {
                        self.write(
                            target,
                            version,
                            *to_at + at,
                            std::slice::from_ref(piece),
                            is_raced,
                        );
                    }
                    if let Some(open) = open.filter(|_| !is_raced) {
                        self.written(n, open, range, walk);
                    }
                }
            }
            Call::Msync(fd, at, len) => {
                let Some(open) = open.get(fd).copied() else { return };
                // Of whole pages, and of what the file has of them.
                let size = self.size(open.object);
                let end = at.saturating_add(*len).min(size);
                let to =
                    if *len == 0 { *at } else { end.div_ceil(PAGE).saturating_mul(PAGE).min(size) };
                let (object, from) = (open.object, at / PAGE * PAGE);
                // Where nothing was written, nothing is: the file need not even be so long.
                let to = self.last_written(object, from, to);
                if from < to {
                    let any = walk.told.get(&object).copied().unwrap_or(0);
                    let scope = Scope::Range { object, from, to };
                    self.promise(n, scope, Basis::Sync, (open.since, any));
                }
            }
            // Nothing is promised: not even that the data can be found.
            Call::SyncFileRange(..) => {}
            // The bytes are the same as before.
            Call::Dedupe { .. } => {}
            Call::AioWrite { fd, len, at, seed } => {
                let Some(o) = open.get(fd).copied() else { return };
                let to = self.place(o, *at);
                self.grows_directly(o, version, to + u64::from(*len));
                self.submit(n, (o, to, contents(*seed, *at, *len)), walk);
            }
            Call::AioRead { .. } | Call::Fadvise(..) => {}
            Call::AioWait(_) => self.ended(n, did, walk),
            Call::Fsync(fd) | Call::Fdatasync(fd) => {
                let full = matches!(did.call, Call::Fsync(_));
                if let Some(Open { object: o, since, .. }) = open.get(fd).copied() {
                    let scope = self.scope_of(o, full);
                    let any = walk.told.get(&o).copied().unwrap_or(0);
                    self.promise(n, scope, Basis::Sync, (since, any));
                    if let Some(promise) = self.promises.last_mut() {
                        promise.is_full = full;
                    }
                    if !full {
                        self.keeps_new(n, o);
                    }
                    walk.synced.insert(o, version);
                    let seen: Vec<(u64, u32)> = walk
                        .seen
                        .range((o, 0)..=(o, u64::MAX))
                        .map(|((_, block), v)| (*block, *v))
                        .collect();
                    seen.into_iter().for_each(|(block, v)| self.relies(n, o, block, v));
                }
            }
            Call::Fbarrier(fd) | Call::Fdatabarrier(fd) => {
                if let Some(o) = object(fd) {
                    let scope = self.scope_of(o, matches!(did.call, Call::Fbarrier(_)));
                    self.promise(n, scope, Basis::Order, (0, 0));
                }
            }
            Call::Syncfs(fd) => {
                let since = open.get(fd).map_or(0, |o| o.since_fs);
                self.promise(n, Scope::All, Basis::Call, (since, version));
            }
            // sync(2) reports no errors, so it promises nothing about what failed.
            Call::Sync => self.promise(n, Scope::All, Basis::Call, (version, version)),
            Call::Pread { fd, at, .. } => {
                if let Some(o) = object(fd) {
                    self.looked(n, o, *at, &did.read, walk);
                }
            }
            Call::Mark(path) => {
                let path = self.name(n, path, Follow::Parents);
                let Some(object) = self.at(&path) else {
                    self.vain_marks.push(n);
                    return;
                };
                let scope = Scope::Name { object, mark: self.marks.len() as u32 };
                self.marks.push(path);
                self.promise(n, scope, Basis::Mark, (0, 0));
            }
            Call::DropCaches | Call::Ack(_) => {}
            Call::Truncate(path, len) => {
                let path = self.name(n, path, Follow::All);
                if let Some(o) = self.at(&path) {
                    let beside = walk.in_flight.iter_mut();
                    beside.filter(|w| w.open.object == o).for_each(|w| w.is_raced = true);
                    self.resize(o, version, *len);
                }
            }
            Call::Chmod(path, mode) => {
                let path = self.name(n, path, Follow::All);
                if let Some(o) = self.at(&path) {
                    self.files[o as usize].modes.push((version, *mode));
                }
            }
            Call::Chattr(path, _) => {
                let path = self.name(n, path, Follow::Parents);
                if let Some(o) = self.at(&path) {
                    self.learns_flags(version, o, did);
                }
            }
            Call::Seek(..) | Call::Rmcp(_) | Call::Atomic(..) => {}
            Call::Mkcp(is_snapshot) => {
                self.promise(n, Scope::All, Basis::Call, (version, version));
                if let Some(number) = did.checkpoint {
                    self.checkpoints.made(version, number, *is_snapshot);
                }
            }
            Call::Chcp(is_snapshot, number) => {
                self.checkpoints.changed(version, *number, *is_snapshot);
            }
            Call::Chown(path, uid, gid) => {
                let path = self.name(n, path, Follow::All);
                if let Some(o) = self.at(&path) {
                    self.files[o as usize].chown(version, (*uid, *gid));
                }
            }
            Call::Utimensat(path, ..) => {
                let path = self.name(n, path, Follow::All);
                if let Some(o) = self.at(&path) {
                    self.files[o as usize].mtimes.push((version, did.mtime));
                }
            }
            Call::Ftruncate(fd, len) => {
                if let Some(o) = object(fd) {
                    self.resize(o, version, *len);
                }
            }
            Call::Fallocate(fd, how, at, len) => {
                let Some(o) = object(fd) else { return };
                self.files[o as usize].touch(version);
                let size = self.size(o);
                match how {
                    Alloc::Punch | Alloc::ZeroKeep => {
                        self.reserve(o, version, 0);
                        self.zero_range(o, version, *at, (at + len).min(size));
                    }
                    Alloc::Zero => {
                        self.zero_range(o, version, *at, (at + len).min(size));
                        self.grow(o, version, at + len, None);
                    }
                    Alloc::Extend => {
                        self.grow(o, version, at + len, None);
                        let own = walk.open.get(fd).copied().filter(|o| o.synced);
                        if let Some(open) = own {
                            // So much length is durable; of what was written before nothing is
                            // said.
                            let to = at + len;
                            let from = to.next_multiple_of(self.block);
                            let any = walk.told.get(&o).copied().unwrap_or(0);
                            let scope = Scope::Range { object: o, from, to };
                            self.promise(n, scope, Basis::Reserved, (open.since, any));
                        }
                    }
                    Alloc::Keep => self.reserve(o, version, at + len),
                    Alloc::Collapse => self.collapse(o, version, *at, *len),
                    Alloc::Insert => self.insert(o, version, *at, *len),
                }
            }
            Call::Rename(a, b) => {
                let (a, b) = (self.name(n, a, Follow::Parents), self.name(n, b, Follow::Parents));
                self.rename(version, &a, &b);
            }
            Call::Renameat2(a, b, how) => {
                let (a, b) = (self.name(n, a, Follow::Parents), self.name(n, b, Follow::Parents));
                match how {
                    RenameHow::Exchange => self.exchange(&a, &b),
                    _ => {
                        let moves = self.at(&a) != self.at(&b);
                        self.rename(version, &a, &b);
                        if moves && how.left_behind().is_some() {
                            let device = self.make(version, &a, FileType::Char, None);
                            self.files[device as usize].modes = vec![(version, 0)];
                        }
                    }
                }
            }
            Call::Linkat(fd, path) => {
                let Some(o) = object(fd) else { return };
                let path = self.name(n, path, Follow::Parents);
                self.names_now().insert(path, o);
            }
            Call::Mknod(path, kind, device) => {
                let path = self.name(n, path, Follow::Parents);
                let object = self.make(version, &path, *kind, None);
                self.files[object as usize].device = *device;
            }
            Call::Mkfifo(path) => {
                let path = self.name(n, path, Follow::Parents);
                self.make(version, &path, FileType::Fifo, None);
            }
            Call::Link(a, b) => {
                let (a, b) = (self.name(n, a, Follow::Parents), self.name(n, b, Follow::Parents));
                if let Some(o) = self.at(&a) {
                    self.names_now().insert(b, o);
                }
            }
            Call::Unlink(a) | Call::Rmdir(a) => {
                let a = self.name(n, a, Follow::Parents);
                self.names_now().remove(&a);
            }
            Call::Mkdir(a) => {
                let a = self.name(n, a, Follow::Parents);
                self.make(version, &a, FileType::Dir, None);
            }
            Call::SubvolumeCreate(path) => {
                let path = self.name(n, path, Follow::Parents);
                self.make_subvolume(version, &path);
            }
            Call::Snapshot { from, to, .. } => {
                let from = self.name(n, from, Follow::All);
                let to = self.name(n, to, Follow::Parents);
                self.snapshot(n, &from, &to);
            }
            Call::SubvolumeDelete(path) => {
                let path = self.name(n, path, Follow::Parents);
                self.take_tree(&path);
            }
            Call::Symlink(target, path) => {
                let path = self.name(n, path, Follow::Parents);
                let object = self.make(version, &path, FileType::Symlink, None);
                self.files[object as usize].target = Some(target.clone());
            }
            Call::SetXattr { path, name, len, data } => {
                let value = data.bytes(*len);
                let path = self.name(n, path, Follow::All);
                self.set_xattr(version, &path, name, Some(value));
            }
            Call::RemoveXattr(path, name) => {
                let path = self.name(n, path, Follow::All);
                self.set_xattr(version, &path, name, None);
            }
        }
    }
}
