//! Images of ext4: readers, check, recovery, the mounted file system.

use wp_base::FsError;
use wp_ext4::check::{CheckOptions, check};
use wp_ext4::fs::DataMode;
use wp_ext4::image::{
    BlockClasses, Image, InspectOptions, inspect, list, recover, recover_staged, survey,
};
use wp_jbd2::RecoverPolicy;
use wp_medium::{MediumView, Overlay, Slice, View};
use wp_vfs::{FileType, OpenFlags, Readahead, Reserve, Vfs, XattrSet};

use super::base::{Base, Family};
use super::feed::Feed;
use super::image::Counted;
use super::patch::{Patched, patched, reads};
use super::world::{Setup, World};

/// When what is recovered is recovered.
const NOW: u32 = 1_800_000_000;

/// Kernels whose rules of recovery differ, and e2fsck.
const POLICIES: [fn() -> RecoverPolicy; 4] = [
    RecoverPolicy::e2fsck,
    || RecoverPolicy::linux(3, 4),
    || RecoverPolicy::linux(6, 1),
    || RecoverPolicy::linux(6, 18),
];

fn with_image(input: &[u8], use_it: impl FnOnce(&Base, &Overlay<'_>, &Patched<'_>)) {
    patched(Family::Ext4, input, use_it);
}

/// Listing with hashes, classes of blocks, evidence and survey; with and without recovery.
pub fn read(input: &[u8]) {
    with_image(input, |_, over, patched| {
        let view = Counted::new(over, patched.bytes, reads(over));
        let policy = POLICIES[usize::from(patched.how & 3)]();
        let hash = patched.how & 4 != 0;
        let options =
            InspectOptions { hash, hash_bytes_max: 1 << 22, policy, ..Default::default() };
        if patched.how & 8 != 0 {
            let _ = inspect(&view, &options);
            return;
        }
        if patched.how & 16 != 0 {
            let recovered = Overlay::new(&view);
            let _ = survey(&recovered, &policy, NOW);
            return;
        }
        if let Ok(image) = Image::open(&view) {
            let _ = list(&image, &options);
            view.allow(reads(over));
            let _ = BlockClasses::of(&image);
        }
        view.allow(reads(over));
        let _ = wp_ext4::evidence::Blocks::read(&view);
        let _ = wp_ext4::evidence::landmarks(&view);
        let _ = wp_ext4::evidence::journal_super_sector(&view);
        let _ = wp_ext4::evidence::logged(&view, &[(0, u32::MAX)], &[2, 8, 12, 13]);
    });
}

/// Our fsck, with and without recovery. It may refuse features, and nothing else.
pub fn fsck(input: &[u8]) {
    with_image(input, |_, over, patched| {
        let view = Counted::new(over, patched.bytes, 8 * (over.len_bytes() / 1024) + 4096);
        let policy = POLICIES[usize::from(patched.how & 3)]();
        let recover = patched.how & 4 != 0;
        let options = CheckOptions { recover, policy, findings_max: 100, ..Default::default() };
        match check(&view, &options) {
            Ok(report) => {
                assert!(report.findings.len() <= options.findings_max);
                for f in &report.findings {
                    assert!(!f.place.is_empty() && !f.expected.is_empty(), "{f:?}");
                }
            }
            Err(FsError::Unsupported(_)) => {}
            Err(e) => panic!("a check ends with a report, and not with: {e}"),
        }
    });
}

/// Recovery: ends, and what is recovered needs no recovery and is not changed by another.
pub fn recovery(input: &[u8]) {
    with_image(input, |_, over, patched| {
        let view = Counted::new(over, patched.bytes, reads(over));
        let policy = POLICIES[usize::from(patched.how & 3)]();
        let is_staged = patched.how & 8 != 0 && policy != RecoverPolicy::e2fsck();
        recovered_once(&view, &policy, is_staged);
    });
}

/// Recovers, through the log if `is_staged`, and holds what comes out to being recovered.
pub fn recovered_once(view: &Counted<'_>, policy: &RecoverPolicy, is_staged: bool) {
    let first = Overlay::new(view);
    let recover_first = if is_staged { recover_staged } else { recover };
    let Ok(done) = recover_first(&first, policy, NOW) else { return };
    let again = Overlay::new(&first);
    view.allow(64 * (view.len_bytes() / 1024) + 100_000);
    // What was replayed may be anything, of which a first recovery needs less than a second. An
    // orphan that was never there is reported only.
    let Ok(second) = recover(&again, policy, NOW) else { return };
    assert!(!second.is_needed(), "recovered {done:?}, and then again {second:?}");
    let same = |n: u64, page: &wp_medium::Page| {
        let mut before = [0u8; 4096];
        let have = (first.len_bytes() - n * 4096).min(4096) as usize;
        first.read_at(n * 4096, &mut before[..have]).expect("within the image");
        assert!(before[..have] == page.bytes()[..have], "page {n} is changed again");
    };
    again.each_page(same);
}

/// Eras and options of mounts.
const SETUPS: [Setup; 6] = [
    Setup::of("6.18"),
    Setup::of("3.4"),
    Setup { era: "4.6", data: DataMode::Journal, async_commit: false },
    Setup { era: "6.12", data: DataMode::Writeback, async_commit: true },
    Setup::of("5.10"),
    Setup::of("3.8"),
];

/// A mount in the simulator, one read of the whole tree, what the rest of the input says of calls,
/// and an unmount.
pub fn mount(input: &[u8]) {
    with_image(input, |base, over, patched| {
        let bytes = patched.bytes / 4096 * 4096;
        if bytes < 65_536 {
            return;
        }
        let setup = SETUPS[usize::from(patched.how) % SETUPS.len()];
        let world = World::new(&base.image.medium(over), bytes);
        if let Ok(vfs) = world.mount(&setup) {
            let (v, calls) = (vfs.clone(), patched.rest.to_vec());
            world.run(async move {
                let paths = walk(&v).await;
                act(&v, &paths, &calls).await;
                let _ = v.fs().unmount().await;
            });
            drop(vfs);
            let view = MediumView { medium: world.medium(), start: wp_base::Sector(0), bytes };
            let _ = check(&view, &CheckOptions { findings_max: 10, ..Default::default() });
        }
        world.end();
    });
}

/// Most that is read of a mounted file system.
const NAMES_MAX: usize = 200;
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Reads everything up to a limit; the paths that were seen.
async fn walk(v: &Vfs) -> Vec<String> {
    let mut seen = Vec::new();
    let mut dirs = vec![String::new()];
    let mut left = NAMES_MAX;
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = v.read_dir(&dir).await else { continue };
        for e in entries {
            if left == 0 {
                return seen;
            }
            left -= 1;
            let name = String::from_utf8_lossy(&e.name).into_owned();
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let fs = v.fs().clone();
            let Ok(attr) = fs.attr(e.ino).await else { continue };
            if let Ok(names) = fs.list_xattrs(e.ino).await {
                for name in names.iter().take(10) {
                    let _ = fs.get_xattr(e.ino, name).await;
                }
            }
            match attr.kind {
                FileType::Dir if dir.split('/').count() < 8 => dirs.push(path.clone()),
                FileType::Symlink => drop(fs.read_link(e.ino).await),
                FileType::File => {
                    let _ = fs.read(e.ino, 0, FILE_BYTES_MAX, &Readahead::default()).await;
                    let end = attr.size.saturating_sub(4096);
                    let _ = fs.read(e.ino, end, FILE_BYTES_MAX, &Readahead::default()).await;
                }
                _ => {}
            }
            seen.push(path);
        }
    }
    seen
}

/// Most calls of one input.
const CALLS_MAX: usize = 24;

/// Calls on existing paths, as the bytes say. The answers are not checked: only that each call
/// answers.
async fn act(v: &Vfs, paths: &[String], bytes: &[u8]) {
    let mut feed = Feed::new(bytes);
    let any = |n: u8| match paths.len() {
        0 => "new".to_owned(),
        len => paths[usize::from(n) % len].clone(),
    };
    for n in 0..CALLS_MAX {
        if feed.is_empty() {
            break;
        }
        let what = feed.u8();
        let path = any(feed.u8());
        match what % 16 {
            0..=3 => {
                let at = u64::from(feed.u16()) << (feed.u8() % 12);
                let len = 1 + u32::from(feed.u16()) % 20_000;
                let Ok(fd) = v.open(&path, OpenFlags::WRITE, 0o644).await else { continue };
                let _ = v.pwrite(fd, at, &[Slice::pattern(n as u64, 0, len)]).await;
                if what & 16 != 0 {
                    let _ = v.fsync(fd).await;
                }
                let _ = v.close(fd).await;
            }
            4 => drop(v.unlink(&path).await),
            5 => drop(v.rename(&path, &any(feed.u8())).await),
            6 => drop(v.link(&path, &format!("{}-{n}", any(feed.u8()))).await),
            7 => drop(v.mkdir(&format!("{path}/d{n}"), 0o755).await),
            8 => drop(v.rmdir(&path).await),
            9 | 10 => {
                let len = u64::from(feed.u16()) << (feed.u8() % 12);
                let Ok(fd) = v.open(&path, OpenFlags::WRITE, 0o644).await else { continue };
                let how = match what >> 4 & 3 {
                    0 => Reserve::Space { keep_size: true },
                    1 => Reserve::Punch,
                    2 => Reserve::Zero { keep_size: false },
                    _ => Reserve::Space { keep_size: false },
                };
                let _ = match what & 64 {
                    0 => v.ftruncate(fd, len).await,
                    _ => v.fallocate(fd, how, len, u64::from(feed.u16()) * 64).await,
                };
                let _ = v.close(fd).await;
            }
            11 | 12 => {
                let file = format!("{path}/new-{n}");
                let Ok(fd) = v.open(&file, OpenFlags::CREATE, 0o644).await else { continue };
                let _ = v.pwrite(fd, 0, &[Slice::pattern(7, 0, 3000)]).await;
                let _ = v.close(fd).await;
            }
            13 => {
                let Ok(fd) = v.open(&path, OpenFlags::WRITE, 0o644).await else { continue };
                let value = vec![b'v'; usize::from(feed.u16() % 900)];
                if let Ok(ino) = v.ino(fd) {
                    let _ = v.fs().set_xattr(ino, b"user.x", Some(&value), XattrSet::Any).await;
                }
                let _ = v.close(fd).await;
            }
            14 => drop(v.symlink(&"t".repeat(1 + usize::from(feed.u8())), &format!("s{n}")).await),
            _ => drop(v.sync().await),
        }
    }
}
