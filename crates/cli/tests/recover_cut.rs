//! `recover` cut short: whatever part of a stage has reached the disk, a second recovery finds the
//! same files. Of all file systems, and of F2FS on two devices.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use wp_base::{FsResult, SECTOR_BYTES, Sector, Zone};
use wp_machine::recover::{Place, Stopped, Target, write};
use wp_machine::{Machine, MachineSpec};
use wp_medium::{Overlay, Sound, View, WithZones, Writes};
use wp_vfs::{FsEntry, ListedFile, OpenFlags, Options, Vfs};
use wp_workload::program::contents;

const BYTES: u64 = 64 << 20;
/// Of the first of two devices, four zones of the second.
const FIRST: u64 = 64 << 20;

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    fs: &'static str,
    options: &'static str,
    bytes: u64,
    two_devices: bool,
    /// Files are removed and cut while they are open.
    orphans: bool,
    /// So many files more are removed while they are open.
    removed: u32,
    /// An image of a real kernel, which may hold what is wrong before and after recovery.
    is_foreign: bool,
}

impl Case {
    fn entry(&self) -> &'static FsEntry {
        let all = wp_machine::registry::FILE_SYSTEMS.iter();
        all.copied().find(|fs| fs.name == self.fs).expect("registered")
    }
}

const CASE: Case = Case {
    name: "ext4",
    fs: "ext4",
    options: "era=6.18",
    bytes: BYTES,
    two_devices: false,
    orphans: true,
    removed: 0,
    is_foreign: false,
};

fn cases() -> Vec<Case> {
    let f2fs = Case { fs: "f2fs", options: "era=6.18", ..CASE };
    vec![
        CASE,
        Case { name: "ext4, 1 KiB blocks", options: "era=6.18,block_size=1024", ..CASE },
        Case { name: "ext4 of 3.4", options: "era=3.4,data=journal", ..CASE },
        Case { name: "ext4 without orphans", orphans: false, ..CASE },
        Case {
            name: "ext4, more orphans than its log holds",
            options: "era=6.18,block_size=1024,inode_size=1024,journal_mb=1",
            removed: 1100,
            ..CASE
        },
        Case { name: "f2fs", bytes: 128 << 20, ..f2fs },
        Case { name: "f2fs on two devices", two_devices: true, ..f2fs },
        Case { name: "btrfs", fs: "btrfs", options: "era=6.12.117", bytes: 256 << 20, ..CASE },
        Case {
            name: "nilfs2",
            fs: "nilfs2",
            options: "era=6.12.117",
            bytes: 256 << 20,
            orphans: false,
            ..CASE
        },
    ]
}

fn machine(case: &Case) -> Machine {
    let params = |list: &[(&str, u64)]| list.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
    let zones = [
        ("zone_bytes", 16 << 20),
        ("blocks_per_plane", 24),
        ("conventional_zones", 0),
        ("pages_per_block", 12),
    ];
    let (bytes, more) = match case.two_devices {
        true => (FIRST, vec![("zn540-4tb-noplp".to_owned(), params(&zones))]),
        false => (case.bytes, Vec::new()),
    };
    let spec = MachineSpec {
        seed: 1,
        cpu: wp_machine::profile::PROFILES[0].model(),
        device: "fixed".to_owned(),
        device_params: params(&[("capacity_bytes", bytes)]),
        more,
        elevator: String::new(),
        start: Sector(0),
        sectors: None,
        fs: case.entry(),
        fs_options: Options::parse(case.options, case.entry().options).expect("options"),
        disk: "sdb".to_owned(),
        device_number: (8, 16),
        kernel: (6, 12),
    };
    Machine::new(spec, None).expect("builds")
}

/// Files with names, lengths and contents that only the log has; with `orphans` one that is open
/// without a name, of so many blocks that its tree has a level, and one that is cut.
async fn program(v: Vfs, orphans: bool, removed: u32) -> FsResult<()> {
    for n in 0..removed {
        v.open(&format!("removed{n}"), OpenFlags::CREATE, 0o644).await?;
        v.unlink(&format!("removed{n}")).await?;
    }
    v.mkdir("d", 0o755).await?;
    let held = v.open("held", OpenFlags::CREATE, 0o644).await?;
    for n in (0..24).step_by(2) {
        v.pwrite(held, n * 4096, &[contents(90 + n as u32, 0, 4096)]).await?;
    }
    v.sync().await?;
    if orphans {
        v.unlink("held").await?;
        v.sync().await?;
    }
    for n in 0..12u32 {
        let fd = v.open(&format!("d/f{n}"), OpenFlags::CREATE, 0o644).await?;
        v.pwrite(fd, 0, &[contents(n, 0, 3000 + n * 2000)]).await?;
        v.fsync(fd).await?;
        v.close(fd).await?;
    }
    v.rename("d/f3", "moved").await?;
    let fd = v.open("last", OpenFlags::CREATE, 0o644).await?;
    v.pwrite(fd, 0, &[contents(99, 0, 100)]).await?;
    v.fsync(fd).await?;
    v.pwrite(fd, 4096, &[contents(98, 0, 8192)]).await?;
    v.fdatasync(fd).await?;
    // In NILFS2 a log of data only, behind the checkpoint.
    v.pwrite(fd, 4096, &[contents(97, 0, 8192)]).await?;
    v.fdatasync(fd).await
}

/// Shows the image that the power failure leaves to `f`, with the options of its recovery.
fn crashed<T>(case: &Case, f: impl FnOnce(&dyn View, &Options) -> T) -> T {
    let m = machine(case);
    let v = m.mount().expect("mounts");
    let vfs = v.clone();
    let done = m.block_on("program", program(vfs, case.orphans, case.removed)).expect("it ends");
    done.expect("every call succeeds");
    let options = Options::parse(case.options, case.entry().options).expect("options");
    let zones: Vec<Zone> = m.more.iter().flat_map(|(q, _)| q.with_device(|d| d.zones())).collect();
    let view = m.view();
    f(&WithZones::new(&view, zones), &options)
}

fn lay(over: &Overlay<'_>, writes: &Writes) {
    for (at, slice) in writes {
        over.write_at(at.bytes(), &slice.to_vec()).expect("inside");
    }
}

/// Every file with its contents, and what is wrong.
fn files(case: &Case, view: &dyn View, options: &Options) -> (Vec<ListedFile>, Vec<String>) {
    let found = (case.entry().inspect)(view, options, true).expect("it can be read");
    (found.files, found.findings)
}

/// What a recovery comes to: the files, and what is wrong with an image of a real kernel, which may
/// have come damaged.
type State = (Vec<ListedFile>, Vec<String>);

/// Recovers what is there, as a second call of `recover` would, and checks all of it.
fn again(case: &Case, view: &dyn View, options: &Options, what: &str) -> State {
    let plan = (case.entry().recover)(view, options).unwrap_or_else(|e| panic!("{what}: {e}"));
    let over = Overlay::new(view);
    plan.stages.iter().for_each(|stage| lay(&over, stage));
    over.set_zones(plan.zones);
    let (files, findings) = files(case, &over, options);
    let checked = (case.entry().check)(&over, options, false, &Sound::default()).expect("checked");
    if case.is_foreign {
        let faults = checked.faults.iter().map(|f| format!("{f:?}"));
        return (files, findings.into_iter().chain(faults).collect());
    }
    assert_eq!(findings, Vec::<String>::new(), "{what}");
    let found = (case.entry().inspect)(&over, options, false).expect("it can be read");
    // On zones every recovery since 6.9 has the logs leave theirs, as it cannot know better.
    assert!(!found.recovered || case.two_devices, "{what}: nothing is left to recover");
    assert!(checked.is_clean, "{what}: {:?}", checked.faults);
    (files, Vec::new())
}

/// Which of `n` writes are there: all choices of few; of many each alone, all but each, prefixes.
fn choices(n: usize) -> Vec<Vec<bool>> {
    if n <= 5 {
        return (0..1u32 << n).map(|m| (0..n).map(|i| m >> i & 1 == 1).collect()).collect();
    }
    // Of hundreds every so manieth.
    let step = n / 64 + 1;
    let each = |f: fn(usize, usize) -> bool| {
        (0..=n)
            .step_by(step)
            .map(move |i| (0..n).map(|j| f(i, j)).collect())
            .collect::<Vec<Vec<bool>>>()
    };
    [each(|i, j| i == j), each(|i, j| i != j), each(|i, j| j < i)].concat()
}

/// Recovers what every cut of the recovery of `view` leaves. How many stages and cuts there are.
fn every_cut(case: &Case, view: &dyn View, options: &Options) -> (usize, usize) {
    let plan = (case.entry().recover)(view, options).expect("recovers");
    let want = again(case, view, options, case.name);
    let mut tried = 0;
    for (n, stage) in plan.stages.iter().enumerate() {
        for choice in choices(stage.len()) {
            let over = Overlay::new(view);
            plan.stages[..n].iter().for_each(|whole| lay(&over, whole));
            let kept = stage.iter().zip(&choice).filter(|(_, kept)| **kept);
            lay(&over, &kept.map(|(write, _)| write.clone()).collect());
            let what = format!("{}: stage {n} of {}: {choice:?}", case.name, plan.stages.len());
            assert_eq!(again(case, &over, options, &what), want, "{what}");
            tried += 1;
        }
    }
    println!("{}: {} stages, {tried} cuts, all equal", case.name, plan.stages.len());
    (plan.stages.len(), tried)
}

#[test]
fn a_recovery_that_is_cut_at_any_write_recovers_again_to_the_same_files() {
    for case in cases() {
        let name = case.name;
        let (stages, _) = crashed(&case, |view, options| {
            let (want, _) = again(&case, view, options, name);
            assert!(want.iter().any(|f| f.path == "d/f11"), "{name}: {want:?}");
            assert_eq!(want.iter().any(|f| f.path == "held"), !case.orphans, "{name}");
            every_cut(&case, view, options)
        });
        // Of so many orphans more than one transaction: each has five stages.
        let least = if case.removed > 0 { 15 } else { 2 };
        assert!(stages >= least, "{name}: {stages} stages");
    }
}

/// An image in memory.
struct Bytes(Vec<u8>);

impl View for Bytes {
    fn len_bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        let held = self.0.get(at as usize..).and_then(|b| b.get(..out.len()));
        out.copy_from_slice(held.ok_or(wp_base::FsError::Io)?);
        Ok(())
    }
}

/// Fast commits, revokes, wrapped logs, orphan files, roll-forward chains, log trees.
#[test]
fn images_of_real_kernels_recover_again_to_the_same_files_wherever_it_is_cut() {
    let all = std::env::var_os("WRITEPATH_REFERENCE")
        .map_or_else(|| wp_machine::testing::reference("."), PathBuf::from);
    let entries = std::fs::read_dir(&all).expect("a folder of reference data");
    let mut images: Vec<PathBuf> =
        entries.map(|e| e.expect("listed").path().join("image.img.zst")).collect();
    images.retain(|path| path.exists());
    images.sort();
    let mut recovered = Vec::new();
    for path in images {
        let packed = std::fs::read(&path).expect("there");
        let image = Bytes(zstd::decode_all(packed.as_slice()).expect("whole"));
        let known = wp_machine::registry::FILE_SYSTEMS.iter();
        let Some(fs) = known.copied().find(|fs| (fs.probe)(&image)) else { continue };
        let mut options = Options::default();
        options.set("era", fs.newest(), fs.options).expect("an option");
        // Zones are not in the image: without them a zoned one is refused, or recovered as is.
        let name = path.parent().and_then(|p| p.file_name()).expect("a folder");
        let name: &'static str = Box::leak(name.to_string_lossy().into_owned().into_boxed_str());
        let plan = (fs.recover)(&image, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
        if plan.stages.is_empty() {
            continue;
        }
        let case = Case { name, fs: fs.name, is_foreign: true, ..CASE };
        every_cut(&case, &image, &options);
        recovered.push(name);
    }
    assert_eq!(recovered.len(), 31, "{recovered:?}");
    for name in ["ext4-fc", "ext4-fcnodir", "ext4-orphan", "ext4-orphanfile", "ext4-wrap"] {
        assert!(recovered.contains(&name), "{name} is not among {recovered:?}");
    }
}

/// Devices in memory whose host refuses from a number of writes and syncs on; the last write is
/// there in part.
struct Full<'a, 'b> {
    over: &'a Overlay<'b>,
    start: u64,
    left: Rc<std::cell::Cell<usize>>,
}

impl Full<'_, '_> {
    fn one(&self) -> std::io::Result<()> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(std::io::ErrorKind::StorageFull.into()),
        }
    }
}

impl Target for Full<'_, '_> {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.one()?;
        self.over.write_at(self.start + at, bytes).map_err(std::io::Error::other)
    }
    fn sync(&mut self) -> std::io::Result<()> {
        self.one()
    }
}

#[test]
fn a_host_that_is_full_at_any_write_leaves_an_image_that_recovers_to_the_same_files() {
    for case in cases() {
        let name = case.name;
        crashed(&case, |view, options| {
            let plan = (case.entry().recover)(view, options).expect("recovers");
            let want = again(&case, view, options, name);
            let lengths = match case.two_devices {
                true => vec![FIRST, view.len_bytes() - FIRST],
                false => vec![view.len_bytes()],
            };
            let places: Vec<Place> =
                lengths.iter().map(|bytes| Place { at: 0, bytes: *bytes }).collect();
            for room in 0.. {
                let over = Overlay::new(view);
                let left = Rc::new(std::cell::Cell::new(room));
                let starts = std::iter::once(0).chain(lengths.first().copied());
                let mut devices: Vec<Full<'_, '_>> = starts
                    .zip(&lengths)
                    .map(|(start, _)| Full { over: &over, start, left: left.clone() })
                    .collect();
                let done = write(&mut devices, &places, &plan, &AtomicBool::new(false));
                let what = format!("{name}: full after {room}");
                assert_eq!(again(&case, &over, options, &what), want, "{what}");
                match done {
                    Ok(()) => break,
                    Err(Stopped::Failed { error, .. }) => {
                        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
                    }
                    Err(Stopped::Interrupted) => panic!("nobody asked"),
                }
            }
        });
    }
}

#[test]
fn the_new_checkpoint_of_two_devices_waits_for_both() {
    let case = cases().into_iter().find(|c| c.two_devices).expect("one of them");
    crashed(&case, |view, options| {
        let plan = (case.entry().recover)(view, options).expect("recovers");
        let [first, last] = &plan.stages[..] else { panic!("{} stages", plan.stages.len()) };
        let second = Sector(FIRST / SECTOR_BYTES);
        assert!(first.iter().any(|(at, _)| *at >= second), "nodes go to the second device");
        assert_eq!(last.len(), 1, "the block that makes the pack valid");
        assert!(last[0].0 < second);
    });
}
