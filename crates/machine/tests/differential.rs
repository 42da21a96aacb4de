//! The mounted ext4 beside the kernel of this host: the same programs give the same answers and the
//! same trees, crashed or not; and many tasks at once leave a clean image.
//!
//! Needs root and loop devices for what the kernel judges; skipped by name elsewhere.

use wp_base::{Rng, Sector, Span, live};
use wp_machine::files;
use wp_machine::profile::Profile;
use wp_machine::registry;
use wp_machine::results::{events_to_ndjson, sha256};
use wp_machine::testing::skipped;
use wp_machine::{Machine, MachineSpec};
use wp_medium::{Medium, Slice};
use wp_testkit::host::{tool, unmount};
use wp_testkit::twin::{
    Call, HostXattrs, Tree, call, call_or_xattr, errno_name, host_tree, name, our_tree, ours,
    theirs, wide_call,
};
use wp_vfs::{OpenFlags, Options, Reserve, Vfs};

fn can_mount(check: &str) -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    let (image, at) = (dir.path().join("i"), dir.path().join("m"));
    std::fs::create_dir(&at).expect("made");
    std::fs::File::create(&image).and_then(|f| f.set_len(16 << 20)).expect("made");
    let (i, m) = (image.display().to_string(), at.display().to_string());
    let ok = tool("mke2fs", &["-q", "-F", "-t", "ext4", &i]).is_some_and(|r| r.0)
        && tool("mount", &["-o", "loop", "-t", "ext4", &i, &m]).is_some_and(|r| r.0);
    if ok {
        unmount(&m);
    } else {
        skipped(check, "this host cannot mount an ext4 image (root and loop devices are needed)");
    }
    ok
}

fn spec(options: &str, mib: u64, elevator: &str, seed: u64) -> MachineSpec {
    let fs = registry::FILE_SYSTEMS[0];
    MachineSpec {
        seed,
        cpu: Profile::known("i7-4770").model(),
        device: "ssd-128".to_owned(),
        device_params: Vec::new(),
        more: Vec::new(),
        elevator: elevator.to_owned(),
        start: Sector(0),
        sectors: Some(mib << 11),
        fs,
        fs_options: Options::parse(options, fs.options).expect("known"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (4, 6),
    }
}

fn assert_clean(medium: &Medium, mib: u64, what: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    files::save(medium, Sector(0), mib << 20, &image).expect("saved");
    match tool("e2fsck", &["-fn", &image.display().to_string()]) {
        Some((ok, text)) => assert!(ok, "{what}: e2fsck says\n{text}"),
        None => skipped("e2fsck judges our images", "e2fsck is not installed"),
    }
}

/// A machine whose image has arrived on the device: building one does not wait for its writes.
fn machine(options: &str, mib: u64, elevator: &str, seed: u64, image: Option<Medium>) -> Machine {
    let m = Machine::new(spec(options, mib, elevator, seed), image).expect("builds");
    m.rt.run_until(m.rt.now() + Span::secs(20));
    m
}

/// What the host's kernel finds on the image, which must be clean afterwards.
fn kernel_tree(medium: &Medium, mib: u64) -> Result<Tree, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let (image, at) = (dir.path().join("image"), dir.path().join("mnt"));
    std::fs::create_dir(&at).expect("made");
    files::save(medium, Sector(0), mib << 20, &image).expect("saved");
    let (i, m) = (image.display().to_string(), at.display().to_string());
    let (ok, text) = tool("mount", &["-o", "loop", "-t", "ext4", &i, &m]).expect("mount exists");
    if !ok {
        return Err(text);
    }
    let mut tree = Tree::new();
    host_tree(&at, "", &mut tree);
    unmount(&m);
    let (clean, text) = tool("e2fsck", &["-fn", &i]).expect("e2fsck exists");
    if clean { Ok(tree) } else { Err(format!("e2fsck after the kernel's recovery:\n{text}")) }
}

// ---- the same program on both ----

/// Calls of one program.
const CALLS: u64 = 1500;

#[test]
fn the_same_program_gives_the_same_answers_here_and_on_the_host_kernel() {
    if !can_mount("programs here and on the host kernel") {
        return;
    }
    same_program(
        call,
        &[
            (1, "era=3.4,block_size=1024"),
            (2, "era=4.6"),
            (3, "era=3.8,nodelalloc"),
            (4, "era=4.6"),
            (5, "era=6.1,block_size=1024"),
            (6, "era=4.6"),
            (7, "era=3.4"),
            (8, "era=4.6"),
            (9, "era=4.6,block_size=1024"),
        ],
    );
}

#[test]
fn direct_and_reserved_space_give_the_same_answers_here_and_on_the_host_kernel() {
    if !can_mount("direct I/O and fallocate here and on the host kernel") {
        return;
    }
    if tool("fallocate", &["--version"]).is_none() {
        skipped("fallocate here and on the host kernel", "fallocate is not installed");
        return;
    }
    same_program(
        wide_call,
        &[
            (21, "era=6.18"),
            (22, "era=6.18,block_size=1024"),
            (23, "era=5.10"),
            (24, "era=4.6"),
            (25, "era=3.4,block_size=1024"),
            (26, "era=6.18,nodelalloc"),
            (27, "era=6.18"),
            (28, "era=6.12,dioread_lock"),
        ],
    );
}

/// Runs `CALLS` calls in each of `worlds`, here and there; `DIFFERENTIAL_ROUNDS` times with other
/// seeds.
fn same_program(next: fn(&mut Rng, u64) -> Call, worlds: &[(u64, &str)]) {
    let rounds = std::env::var("DIFFERENTIAL_ROUNDS").ok().and_then(|n| n.parse().ok());
    let rounds: u64 = rounds.unwrap_or(1);
    let all = (0..rounds).flat_map(|r| worlds.iter().map(move |(seed, o)| (seed + 1000 * r, *o)));
    let mut same = 0;
    for (seed, options) in all {
        let dir = tempfile::tempdir().expect("a directory");
        let (image, at) = (dir.path().join("image"), dir.path().join("mnt"));
        std::fs::create_dir(&at).expect("made");
        std::fs::File::create(&image).and_then(|f| f.set_len(64 << 20)).expect("made");
        let (i, m) = (image.display().to_string(), at.display().to_string());
        assert!(tool("mke2fs", &["-q", "-F", "-t", "ext4", &i]).expect("runs").0);
        assert!(tool("mount", &["-o", "loop", &i, &m]).expect("runs").0);
        let mut rng = Rng::stream(seed, "calls");
        let calls = (0..CALLS).map(|step| next(&mut rng, step));
        let calls: Vec<Call> = calls.filter(|c| has_call(options, c)).collect();
        let expected: Vec<Result<String, String>> =
            calls.iter().map(|c| theirs(&at, c).map_err(|e| errno_name(&e))).collect();
        let mut tree = Tree::new();
        host_tree(&at, "", &mut tree);
        unmount(&m);

        let host = machine(options, 64, "cfq", seed, None);
        let vfs = host.mount().expect("mounts");
        let v = vfs.clone();
        let got = host
            .block_on("calls", async move {
                for (i, (c, want)) in calls.iter().zip(&expected).enumerate() {
                    let got = ours(&v, c).await.map_err(|e| e.errno().to_owned());
                    assert_eq!(got, *want, "seed {seed}, call {i}: {c:?}");
                }
                our_tree(&v).await
            })
            .expect("runs");
        assert_eq!(got, tree, "seed {seed}");
        host.unmount(&vfs).expect("unmounts");
        let medium = host.view().medium;
        assert_clean(&medium, 64, &format!("seed {seed}"));
        assert_eq!(kernel_tree(&medium, 64), Ok(got), "seed {seed}: the kernel reads ours");
        drop(vfs);
        host.rt.cut();
        same += CALLS;
    }
    println!("{same} calls, the same answers; trees equal, images clean");
}

/// Features of an image made today, by name: e2fsprogs older than 1.47.1 must be told.
const TODAY: &str = "-O orphan_file,metadata_csum_seed";

/// An image that `mkfs.ext4` makes with these arguments.
fn real_image(args: &str, mib: u64) -> Medium {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    std::fs::File::create(&image).and_then(|f| f.set_len(mib << 20)).expect("made");
    let name = image.display().to_string();
    let mut all: Vec<&str> = vec!["-q", "-F"];
    all.extend(args.split_whitespace());
    all.push(&name);
    let (ok, text) = tool("mkfs.ext4", &all).expect("mkfs.ext4 exists");
    assert!(ok, "mkfs.ext4 {args}: {text}");
    files::load(&image).expect("read").0
}

#[test]
fn images_of_the_real_mkfs_serve_the_same_program_with_attributes_as_the_host_kernel() {
    if !can_mount("programs with attributes on default images, here and on the host kernel") {
        return;
    }
    for (seed, args) in [
        (21, format!("{TODAY} -b 4096")),
        (22, format!("{TODAY} -b 1024")),
        (23, "-O ^extents,^64bit -b 1024".to_owned()),
        (24, "-I 128 -b 2048".to_owned()),
    ] {
        let Some(mut host) = HostXattrs::new() else {
            skipped("programs with attributes on default images", "python3 is not installed");
            return;
        };
        let start = real_image(&args, 64);
        let dir = tempfile::tempdir().expect("a directory");
        let (image, at) = (dir.path().join("image"), dir.path().join("mnt"));
        std::fs::create_dir(&at).expect("made");
        files::save(&start, Sector(0), 64 << 20, &image).expect("saved");
        let (i, m) = (image.display().to_string(), at.display().to_string());
        assert!(tool("mount", &["-o", "loop", &i, &m]).expect("runs").0);
        let mut rng = Rng::stream(seed, "calls");
        let calls: Vec<Call> = (0..1500).map(|step| call_or_xattr(&mut rng, step)).collect();
        let expected: Vec<Result<String, String>> =
            calls.iter().map(|c| host.ask(&at, c)).collect();
        let mut tree = Tree::new();
        host_tree(&at, "", &mut tree);
        drop(host);
        unmount(&m);

        let here = machine("era=6.1", 64, "noop", seed, Some(start));
        let vfs = here.mount().expect("mounts");
        let v = vfs.clone();
        let what = args.clone();
        let got = here
            .block_on("calls", async move {
                for (i, (c, want)) in calls.iter().zip(&expected).enumerate() {
                    let got = ours(&v, c).await.map_err(|e| e.errno().to_owned());
                    assert_eq!(got, *want, "{what}, call {i}: {c:?}");
                }
                our_tree(&v).await
            })
            .expect("runs");
        assert_eq!(got, tree, "{args}");
        here.unmount(&vfs).expect("unmounts");
        let medium = here.view().medium;
        assert_clean(&medium, 64, &args);
        assert_eq!(kernel_tree(&medium, 64), Ok(got), "{args}: the kernel reads ours");
        drop(vfs);
        here.rt.cut();
    }
}

// ---- many tasks ----

/// Has ext4 of this era the call? ZERO_RANGE came with 3.15.
fn has_call(options: &str, call: &Call) -> bool {
    let is_old = ["era=3.4", "era=3.8"].iter().any(|era| options.starts_with(era));
    !(is_old && matches!(call, Call::Reserve(_, Reserve::Zero { .. }, ..)))
}

async fn worker(v: Vfs, (who, seed, steps): (u64, u64, u64), options: String) {
    let mut rng = Rng::stream(seed * 100 + who, "worker");
    for step in 0..steps {
        let c = wide_call(&mut rng, who * 1_000_000 + step);
        // Any answer will do, if it is one that the call can have.
        if let Err(e) = ours(&v, &c).await {
            let known = [
                "ENOENT",
                "EEXIST",
                "ENOTDIR",
                "EISDIR",
                "ENOTEMPTY",
                "EINVAL",
                "EPERM",
                "ELOOP",
                "ENAMETOOLONG",
                "ENOSPC",
            ];
            let is_missing = e == wp_base::FsError::NotInKernel && !has_call(&options, &c);
            assert!(
                is_missing || known.contains(&e.errno()),
                "task {who}, step {step}, {c:?}: {e}"
            );
        }
        if rng.below(12) == 0
            && let Ok(fd) = v.open(&name(&mut rng), OpenFlags::WRITE, 0).await
        {
            drop(v.pwrite(fd, rng.below(50_000), &[Slice::pattern(step, 0, 5_000)]).await);
            let synced = if rng.below(2) == 0 { v.fsync(fd).await } else { v.fdatasync(fd).await };
            synced.expect("syncs");
            v.rt().sleep(Span::millis(rng.below(3_000))).await;
            v.pwrite(fd, rng.below(50_000), &[Slice::pattern(step, 0, 5_000)])
                .await
                .expect("writes");
            v.ftruncate(fd, rng.below(60_000)).await.expect("cuts");
            v.close(fd).await.expect("closes");
        }
    }
}

fn crowd(options: &str, mib: u64, elevator: &str, seed: u64, tasks: u64) -> String {
    let m = machine(options, mib, elevator, seed, None);
    let vfs = m.mount().unwrap_or_else(|e| panic!("{options} {mib} {elevator}: {e}"));
    m.record(wp_base::event::Class::ALL);
    let v = vfs.clone();
    let rt = m.rt.clone();
    let what = options.to_owned();
    m.block_on("crowd", async move {
        let all: Vec<_> = (0..tasks)
            .map(|who| {
                rt.spawn(format!("task-{who}"), worker(v.clone(), (who, seed, 250), what.clone()))
            })
            .collect();
        for one in all {
            one.await;
        }
    })
    .unwrap_or_else(|e| panic!("{options} {elevator} seed {seed}: {e}"));
    let events = events_to_ndjson(&m.rt.probe().take());
    let v = vfs.clone();
    let tree = m.block_on("walk", async move { our_tree(&v).await }).expect("walks");
    m.unmount(&vfs).expect("unmounts");
    let medium = m.view().medium;
    let what = format!("{options} {elevator} seed {seed}");
    assert_clean(&medium, mib, &what);
    drop(vfs);
    let rt = m.rt.clone();
    drop(m);
    rt.cut();
    drop(rt);
    // What a fresh mount reads is what the tasks left.
    let again = machine(options, mib, elevator, seed, Some(medium));
    let vfs = again.mount().expect("mounts again");
    let v = vfs.clone();
    let read = again.block_on("walk", async move { our_tree(&v).await }).expect("walks");
    assert_eq!(read, tree, "{what}");
    drop(vfs);
    again.rt.cut();
    sha256(&events)
}

#[test]
fn many_tasks_on_the_same_names_leave_a_clean_image_and_one_history() {
    let before = live::census();
    let eras = [
        "era=3.4,block_size=1024",
        "era=3.8",
        "era=4.6,nodelalloc",
        "era=4.6,block_size=1024",
        "era=6.18",
        "era=6.18,block_size=1024",
    ];
    for (i, options) in eras.iter().enumerate() {
        for (elevator, tasks) in [("cfq", 8), ("noop", 5)] {
            let seed = i as u64 + 1;
            let first = crowd(options, 48, elevator, seed, tasks);
            assert_eq!(live::census(), before, "{options} {elevator}");
            if i == 1 {
                assert_eq!(
                    first,
                    crowd(options, 48, elevator, seed, tasks),
                    "one seed, one history"
                );
            }
        }
    }
    // A disk that is full most of the time.
    for seed in 10..13 {
        crowd("era=4.6,block_size=1024", 10, "cfq", seed, 6);
        crowd("era=6.18,block_size=1024", 10, "cfq", seed, 6);
    }
    assert_eq!(live::census(), before);
}

// ---- orphans across a crash ----

async fn orphan_maker(v: Vfs, who: u64, seed: u64) {
    let mut rng = Rng::stream(seed * 10 + who, "orphans");
    for step in 0..u64::MAX {
        let n = format!("o{who}-{}", rng.below(3));
        let Ok(fd) = v.open(&n, OpenFlags::CREATE, 0o644).await else { continue };
        let base = rng.below(50_000);
        for i in 0..1 + rng.below(60) {
            v.pwrite(fd, base + i * 8192, &[Slice::pattern(step, i, 4000)]).await.expect("writes");
        }
        if rng.below(2) == 0 {
            v.fsync(fd).await.expect("syncs");
        }
        match rng.below(5) {
            0 => {
                // A direct write that grows the file is an orphan while its data is under way.
                let flags = OpenFlags { direct: true, append: true, ..OpenFlags::WRITE };
                let size = v.fstat(fd).await.expect("tells").size.next_multiple_of(4096);
                v.ftruncate(fd, size).await.expect("extends");
                let direct = v.open(&n, flags, 0).await.expect("opens");
                let data = Slice::pattern(step, 7, 4096 * (1 + rng.below(20)) as u32);
                v.write(direct, &[data]).await.expect("writes");
                v.close(direct).await.expect("closes");
            }
            1 => {
                let space = Reserve::Space { keep_size: true };
                v.fallocate(fd, space, 100_000, 500_000).await.expect("reserves");
                v.fallocate(fd, Reserve::Punch, 9_000, 90_000).await.expect("punches");
            }
            _ => {}
        }
        match rng.below(4) {
            0 => v.unlink(&n).await.expect("removes"),
            1 => v.ftruncate(fd, rng.below(300_000)).await.expect("cuts"),
            2 => {
                v.unlink(&n).await.expect("removes");
                v.sync().await.expect("syncs");
            }
            _ => {
                v.ftruncate(fd, rng.below(9_000)).await.expect("cuts");
                v.ftruncate(fd, 200_000).await.expect("extends");
            }
        }
        v.rt().sleep(Span::micros(rng.below(2_500_000))).await;
        v.close(fd).await.expect("closes");
    }
}

#[test]
fn orphans_and_half_done_cuts_are_finished_alike_here_and_by_the_host_kernel() {
    if !can_mount("orphans after a crash, here and on the host kernel") {
        return;
    }
    for (options, seed) in [
        ("era=3.4,block_size=1024", 1),
        ("era=4.6", 2),
        ("era=4.6,block_size=1024", 3),
        ("era=6.18", 4),
        ("era=6.18,block_size=1024", 5),
        ("era=6.1", 6),
    ] {
        // The last one lists its orphans in a file.
        let image = (seed == 6).then(|| real_image(&format!("{TODAY} -b 1024"), 48));
        let m = machine(options, 48, "cfq", seed, image);
        let vfs = m.mount().expect("mounts");
        for who in 0..3 {
            drop(m.rt.spawn(format!("maker-{who}"), orphan_maker(vfs.clone(), who, seed)));
        }
        let mut rng = Rng::stream(seed, "cuts");
        for cut in 0..25 {
            m.rt.run_until(m.rt.now() + Span::micros(rng.below(1_500_000)));
            let now = m.rt.now();
            let view = m.queue.with_device(|d| d.crash_view(now));
            let mut medium = view.medium.clone();
            for unit in &view.loss {
                if rng.below(2) == 0 {
                    unit.apply(&mut medium);
                }
            }
            let what = format!("{options} cut {cut} at {now}");
            let theirs = kernel_tree(&medium, 48).unwrap_or_else(|e| panic!("{what}: {e}"));
            let r = machine(options, 48, "cfq", seed, Some(medium));
            let again = r.mount().unwrap_or_else(|e| panic!("{what}: {e}"));
            let v = again.clone();
            let ours = r.block_on("walk", async move { our_tree(&v).await }).expect("walks");
            assert_eq!(ours, theirs, "{what}");
            r.unmount(&again).expect("unmounts");
            assert_clean(&r.view().medium, 48, &what);
            drop(again);
            r.rt.cut();
        }
        drop(vfs);
        m.rt.cut();
    }
}
