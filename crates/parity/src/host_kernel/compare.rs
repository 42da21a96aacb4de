//! What our recovery left beside what the kernel's left.

use std::collections::BTreeMap;

use wp_btrfs::disk::root::{INO_BITS, OTHER_TREE};
use wp_crash::{Outcome, Survivor};
use wp_medium::Slice;
use wp_vfs::{Stat, TimeSpec};

use super::kernel::{Found, Theirs};

/// How a survey's fault begins that no call answers: the kernel reports it and goes on.
const REPORTED: &str = "reported ";

/// Seconds since 1970 (late in 2023) that no host's clock is before, and no program sets.
pub const MOUNTED_FROM: i64 = 1_700_000_000;

/// The time of every mount of ours: power-on.
const OUR_MOUNT: TimeSpec = TimeSpec { secs: wp_machine::EPOCH_SECS, nanos: 0 };

/// The first difference between the two, in words.
pub fn difference(ours: &Outcome, theirs: &Theirs, block: u32) -> Option<String> {
    let theirs = match (&ours.refused, theirs) {
        (Some(_), Theirs::Refused(_)) => return None,
        (Some(why), Theirs::Files(_)) => {
            return Some(format!("only Writepath refuses the mount: {why}"));
        }
        (None, Theirs::Refused(why)) => {
            return Some(format!("only the kernel refuses the mount: {why}"));
        }
        (None, Theirs::Files(files)) => files,
    };
    let ours_by_path: BTreeMap<&str, &Survivor> =
        ours.files.iter().map(|f| (f.path.as_str(), &**f)).collect();
    let faults: Vec<&str> =
        ours.faults.iter().map(String::as_str).filter(|f| !f.starts_with(REPORTED)).collect();
    let is_fault_of = |fault: &str, path: &str| {
        fault.strip_prefix(path).is_some_and(|rest| rest.starts_with(": "))
    };
    for (path, found) in theirs {
        let (mine, found) = (ours_by_path.get(path.as_str()), found);
        let fault = faults.iter().find(|f| is_fault_of(f, path));
        let file = match (found, fault) {
            (Found::Unreadable(_), Some(_)) => continue,
            (Found::Unreadable(why), None) => {
                return Some(format!("{path}: only the kernel cannot read it: {why}"));
            }
            (Found::File(_), Some(fault)) => {
                return Some(format!("only Writepath cannot read it: {fault}"));
            }
            (Found::File(file), None) => file,
        };
        let Some(mine) = mine else { return Some(format!("{path}: only the kernel has it")) };
        let (mut mine, mut file) = (plain(mine, block), timed(file));
        let at_mount = |f: &Survivor, is: fn(TimeSpec) -> bool| f.stat.is_some_and(|s| is(s.mtime));
        if at_mount(&file, |t| t.secs >= MOUNTED_FROM) && at_mount(&mine, |t| t == OUR_MOUNT) {
            // Each mount has finished a truncate (`ext4_orphan_cleanup`), at its own time.
            for stat in [&mut mine.stat, &mut file.stat].into_iter().flatten() {
                stat.mtime = TimeSpec::default();
            }
        }
        if let Some(what) = of_files(&mine, &file) {
            return Some(format!("{path}: {what}"));
        }
    }
    if let Some(path) = ours_by_path.keys().find(|p| !theirs.contains_key(**p)) {
        return Some(format!("{path}: only Writepath has it"));
    }
    let unmatched = faults.iter().find(|f| !theirs.keys().any(|p| is_fault_of(f, p)));
    unmatched.map(|f| format!("only Writepath cannot read it: {f}"))
}

/// A survivor without times that say nothing: replaying a name changes its directory, when the
/// mount comes.
fn timed(file: &Survivor) -> Survivor {
    let mut out = file.clone();
    if file.kind != wp_vfs::FileType::File {
        out.stat = out.stat.map(|s| Stat { mtime: TimeSpec::default(), ..s });
    }
    out
}

/// A survivor as the kernel's are written: without blocks of zeros, with the last partial one.
fn plain(file: &Survivor, block: u32) -> Survivor {
    let zero = Slice::zero(block).id();
    let mut out = timed(file);
    out.blocks.retain(|(_, id)| *id != zero);
    out.allocated = None;
    if out.ino & OTHER_TREE != 0 {
        // In Linux the device number tells subvolumes apart, not the inode's.
        out.ino &= (1 << INO_BITS) - 1;
    }
    let rest = (file.size % u64::from(block)) as usize;
    let has_tail = file.kind == wp_vfs::FileType::File && rest > 0;
    out.tail = has_tail.then(|| file.tail.clone().unwrap_or_else(|| vec![0; rest]));
    out
}

fn of_files(ours: &Survivor, theirs: &Survivor) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let mut what = Vec::new();
    let mut field = |name: &str, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| {
        let (a, b) = (format!("{a:?}"), format!("{b:?}"));
        if a != b {
            what.push(format!("{name} {a} in Writepath, {b} in Linux"));
        }
    };
    field("kind", &ours.kind, &theirs.kind);
    field("inode", &ours.ino, &theirs.ino);
    field("links", &ours.nlink, &theirs.nlink);
    field("size", &ours.size, &theirs.size);
    field("mode, owner, time, device", &ours.stat, &theirs.stat);
    field("target", &ours.target, &theirs.target);
    field("attributes", &ours.xattrs, &theirs.xattrs);
    let by_block = |f: &Survivor| f.blocks.iter().copied().collect::<BTreeMap<u64, u128>>();
    let (a, b) = (by_block(ours), by_block(theirs));
    let unlike = a.keys().chain(b.keys()).filter(|n| a.get(n) != b.get(n)).min();
    if let Some(n) = unlike {
        let id = |m: &BTreeMap<u64, u128>| {
            m.get(n).map_or_else(|| "zeros".to_owned(), |id| format!("{id:032x}"))
        };
        what.push(format!("block {n} {} in Writepath, {} in Linux", id(&a), id(&b)));
    }
    if ours.tail != theirs.tail {
        what.push("other bytes in the last, partial block".to_owned());
    }
    Some(what.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survivor(path: &str, size: u64) -> Survivor {
        Survivor {
            path: path.to_owned(),
            kind: wp_vfs::FileType::File,
            ino: 12,
            nlink: 1,
            size,
            stat: None,
            target: None,
            xattrs: Some(Vec::new()),
            blocks: vec![(0, 7), (1, Slice::zero(4096).id())],
            tail: None,
            allocated: None,
        }
    }

    fn theirs(files: &[Survivor]) -> Theirs {
        let of = |f: &Survivor| (f.path.clone(), Found::File(Box::new(plain(f, 4096))));
        Theirs::Files(files.iter().map(of).collect())
    }

    #[test]
    fn every_kind_of_difference_is_one_and_holes_are_zeros() {
        let ours = Outcome { files: vec![survivor("a", 9000).into()], ..Outcome::default() };
        let diff = |t: &Theirs| difference(&ours, t, 4096);
        assert_eq!(diff(&theirs(&[survivor("a", 9000)])), None);
        let mut other = survivor("a", 9000);
        other.tail = Some(vec![1; 808]);
        assert!(diff(&theirs(&[other])).is_some_and(|d| d.contains("last, partial")));
        let mut other = survivor("a", 9000);
        other.blocks[0].1 = 8;
        assert!(diff(&theirs(&[other])).is_some_and(|d| d.contains("block 0")));
        let mut other = survivor("a", 9000);
        (other.ino, other.nlink) = (13, 2);
        assert!(
            diff(&theirs(&[other]))
                .is_some_and(|d| d.contains("inode 12 in Writepath, 13 in Linux"))
        );
        let subvolume = Survivor { ino: OTHER_TREE | 256 << INO_BITS | 12, ..survivor("a", 9000) };
        let in_subvolume = Outcome { files: vec![subvolume.into()], ..Outcome::default() };
        assert_eq!(difference(&in_subvolume, &theirs(&[survivor("a", 9000)]), 4096), None);
        assert!(diff(&theirs(&[])).is_some_and(|d| d == "a: only Writepath has it"));
        // A time that the program set is compared, one of the mount is that of our mount.
        let at = |secs| {
            let stat = Some(Stat { mtime: TimeSpec { secs, nanos: 0 }, ..Stat::default() });
            Survivor { stat, ..survivor("a", 9000) }
        };
        let then = |ours, theirs_then| {
            let ours = Outcome { files: vec![at(ours).into()], ..Outcome::default() };
            difference(&ours, &theirs(&[at(theirs_then)]), 4096)
        };
        assert_eq!((then(1000, 1000), then(OUR_MOUNT.secs, MOUNTED_FROM)), (None, None));
        for (ours, other) in [(1000, 1001), (1000, MOUNTED_FROM), (OUR_MOUNT.secs, 1000)] {
            assert!(then(ours, other).is_some_and(|d| d.contains("time")), "{ours} {other}");
        }
        let more = [survivor("a", 9000), survivor("b", 0)];
        assert!(diff(&theirs(&more)).is_some_and(|d| d == "b: only the kernel has it"));
        assert!(diff(&Theirs::Refused("EIO".to_owned())).is_some());
        let bad = [("a".to_owned(), Found::Unreadable("EIO".to_owned()))];
        assert!(diff(&Theirs::Files(bad.clone().into())).is_some());
        let faulty = Outcome { faults: vec!["a: bad".to_owned()], ..Outcome::default() };
        assert_eq!(difference(&faulty, &Theirs::Files(bad.into()), 4096), None);
        assert!(difference(&faulty, &theirs(&[survivor("a", 1)]), 4096).is_some());
        assert!(difference(&faulty, &theirs(&[]), 4096).is_some());
        let refused = Outcome { refused: Some("no".to_owned()), ..Outcome::default() };
        assert_eq!(difference(&refused, &Theirs::Refused("EIO".to_owned()), 4096), None);
        assert!(difference(&refused, &theirs(&[]), 4096).is_some());
    }
}
