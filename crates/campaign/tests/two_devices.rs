//! F2FS on a conventional device with a zoned one behind it: made, mounted, filled, recovered,
//! checked, cut.

use wp_base::event::{Class, Event, Op, Record};
use wp_base::{SECTOR_BYTES, Sector, Zone};
use wp_campaign::{Bench, Campaign, Source, play, run};
use wp_f2fs::image::Image;
use wp_machine::{Machine, MachineSpec};
use wp_medium::{View, WithZones};
use wp_vfs::{OpenFlags, Options, Vfs};
use wp_workload::program::{Program, contents};

/// Bytes of the conventional device, four zones of the other: what lies before the main area, and
/// the first two of its sections, which are those of hot and of warm nodes.
const FIRST: u64 = 64 << 20;

fn params(list: &[(&str, u64)]) -> Vec<(String, u64)> {
    list.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect()
}

/// With a cache that is lost.
fn first() -> Vec<(String, u64)> {
    params(&[("capacity_bytes", FIRST), ("cache_bytes", 1 << 20)])
}

/// Zones of 16 MiB, 24 of them, none conventional.
fn zoned() -> (String, Vec<(String, u64)>) {
    let small = [
        ("zone_bytes", 16 << 20),
        ("blocks_per_plane", 24),
        ("conventional_zones", 0),
        ("pages_per_block", 12),
    ];
    ("zn540-4tb-noplp".to_owned(), params(&small))
}

fn spec(options: &str) -> MachineSpec {
    let fs = &wp_f2fs::ENTRY;
    MachineSpec {
        seed: 1,
        cpu: wp_machine::profile::PROFILES[0].model(),
        device: "fixed".to_owned(),
        device_params: first(),
        more: vec![zoned()],
        elevator: String::new(),
        start: Sector(0),
        sectors: None,
        fs,
        fs_options: Options::parse(options, fs.options).expect("options"),
        disk: "sdb".to_owned(),
        device_number: (8, 16),
        kernel: (6, 12),
    }
}

/// What a machine's devices hold, with the zones as a mount sees them.
fn with_view<T>(m: &Machine, f: impl FnOnce(&dyn View) -> T) -> T {
    let zones: Vec<Zone> = m.more.iter().flat_map(|(q, _)| q.with_device(|d| d.zones())).collect();
    let view = m.view();
    f(&WithZones::new(&view, zones))
}

async fn fill(vfs: &Vfs, files: u32, bytes: u32) {
    for n in 0..files {
        let fd = vfs.open(&format!("f{n}"), OpenFlags::CREATE, 0o644).await.expect("made");
        vfs.pwrite(fd, 0, &[contents(n, 0, bytes)]).await.expect("room");
        vfs.fsync(fd).await.expect("written");
        vfs.close(fd).await.expect("open");
    }
}

fn read_back(vfs: &Vfs, m: &Machine, files: u32, bytes: u32) {
    let v = vfs.clone();
    let all = async move {
        for n in 0..files {
            let fd = v.open(&format!("f{n}"), OpenFlags::READ, 0).await.expect("there");
            let got = v.pread(fd, 0, u64::from(bytes)).await.expect("readable");
            let got: Vec<u8> = wp_medium::Slice::concat(&got);
            assert!(got == contents(n, 0, bytes).to_vec(), "f{n}");
            v.close(fd).await.expect("open");
        }
    };
    m.block_on("reader", all).expect("it ends");
}

/// Flushes and writes of the records by device: those of the second lie behind the first.
fn by_device(records: &[Record]) -> [(usize, usize); 2] {
    let mut out = [(0, 0); 2];
    for r in records {
        if let Event::Command { op, at, .. } = r.event {
            let n = usize::from(at.0 >= FIRST / SECTOR_BYTES);
            match op {
                Op::Write => out[n].0 += 1,
                Op::Flush => out[0].1 += 1,
                _ => {}
            }
        }
    }
    out
}

#[test]
fn it_is_made_mounted_filled_over_both_devices_and_mounted_again() {
    let (files, bytes) = (64, 1 << 20);
    let m = Machine::new(spec("era=6.12.117"), None).expect("builds");
    let vfs = m.mount().expect("mounts");
    let v = vfs.clone();
    m.record(Class::DEVICE);
    m.block_on("writer", async move { fill(&v, files, bytes).await }).expect("it ends");
    let records = m.rt.probe().take();
    m.record(Class(0));
    read_back(&vfs, &m, files, bytes);
    m.unmount(&vfs).expect("unmounts");
    let [first, second] = by_device(&records);
    assert!(first.0 > 0 && second.0 > 64, "{first:?} {second:?}");
    with_view(&m, |view| {
        let image = Image::open(view).expect("an image");
        let g = image.geometry();
        assert_eq!(g.devices.len(), 2);
        let end = (FIRST / 4096) as u32;
        assert_eq!((g.devices[0].end, g.devices[1].start), (end, end));
        assert!(g.main < end && g.end() > end, "the main area is on both: {g:?}");
        let report = (wp_f2fs::ENTRY.check)(view, &Options::default(), false, &Default::default());
        let report = report.expect("it is checked");
        assert!(report.is_clean, "{:?}", report.faults);
    });
    let vfs = m.mount().expect("mounts again");
    read_back(&vfs, &m, files, bytes);
    m.unmount(&vfs).expect("unmounts");
}

/// `f2fs_issue_flush`: an fsync flushes the devices that hold something of the file, and no others.
#[test]
fn an_fsync_flushes_the_devices_that_its_file_was_written_to() {
    let m = Machine::new(spec("era=6.12.117"), None).expect("builds");
    let vfs = m.mount().expect("mounts");
    let v = vfs.clone();
    let queues = [m.queue.clone(), m.more[0].0.clone()];
    let flushes = move || queues.iter().map(|q| q.counters().flushes).collect::<Vec<u64>>();
    let all = async move {
        let mut seen = Vec::new();
        // Nodes go to the first device, data to the second; of a small file the data are in its
        // node.
        for (name, bytes) in [("inline", 100), ("blocks", 8192), ("inline", 200)] {
            let fd = v.open(name, OpenFlags::CREATE, 0o644).await.expect("made");
            v.pwrite(fd, 0, &[contents(7, 0, bytes)]).await.expect("room");
            let before = flushes();
            v.fsync(fd).await.expect("written");
            seen.push([flushes()[0] - before[0], flushes()[1] - before[1]]);
            v.close(fd).await.expect("open");
        }
        // A checkpoint: the second device before the last block, which flushes the first.
        let before = flushes();
        v.sync().await.expect("written");
        seen.push([flushes()[0] - before[0], flushes()[1] - before[1]]);
        let before = flushes();
        let fd = v.open("inline", OpenFlags::WRITE, 0o644).await.expect("there");
        v.pwrite(fd, 0, &[contents(8, 0, 50)]).await.expect("room");
        v.sync().await.expect("written");
        seen.push([flushes()[0] - before[0], flushes()[1] - before[1]]);
        seen
    };
    let seen = m.block_on("writer", all).expect("it ends");
    assert_eq!(seen[..3], [[1, 0], [1, 1], [1, 0]]);
    assert_eq!((seen[3][0] > 0, seen[3][1]), (true, 1), "{seen:?}");
    assert_eq!((seen[4][0] > 0, seen[4][1]), (true, 0), "{seen:?}");
    m.unmount(&vfs).expect("unmounts");
}

/// One file after the other over the devices' border, the power failure anywhere: what fsync
/// promised is there, and every state recovers to a sound file system.
#[test]
fn every_state_that_a_cut_of_both_devices_leaves_recovers_to_what_was_promised() {
    // Linux does not wait for the first node after a checkpoint, nor for strict's last one, so that
    // the flush may precede it.
    for mode in [
        "wait_first_node",
        "fsync_mode=strict,wait_first_node,wait_last_node",
        "wait_first_node,oprw",
    ] {
        let options = format!("era=6.12.117,{mode}");
        let bench = Bench {
            device_params: first(),
            more: vec![zoned()],
            settle_s: 1,
            stale: false,
            ..Bench::new(&wp_f2fs::ENTRY, &options).expect("a bench")
        };
        let program = Program::parse(
            "open 0 a rw,creat\npwrite 0 40960 0 1\nfsync 0\nopen 1 b rw,creat\n\
             pwrite 1 8192 0 2\nfsync 1\nrename a c\npwrite 1 4096 8192 3\nfsync 1\nsync\n",
        )
        .expect("a program");
        let played = play(&bench, &program).expect("it plays");
        let sectors = FIRST / SECTOR_BYTES;
        let written = |second: bool| {
            played.tape.entries.iter().any(|(_, e)| match e {
                wp_crash::Entry::Submit { op: Op::Write, at, .. } => (at.0 >= sectors) == second,
                _ => false,
            })
        };
        assert!(written(false) && written(true), "{mode}: both devices are written");
        let c = Campaign { check: true, ..Campaign::new(bench, Source::Text(program), (0, 1)) };
        let found = run(&c, 2, &|_| true);
        assert!(found.not_played.is_empty(), "{mode}: {:?}", found.not_played);
        assert_eq!(found.totals.broken.iter().sum::<u64>(), 0, "{mode}: {:#?}", found.found);
        assert!(found.totals.distinct > 10, "{mode}: {:?}", found.totals);
    }
}

#[test]
fn devices_that_do_not_fit_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut MachineSpec)| {
        let mut s = spec("era=6.12.117");
        change(&mut s);
        Machine::new(s, None).err().map(|e| e.to_string()).unwrap_or_default()
    };
    let odd = refused(&|s| s.device_params = params(&[("capacity_bytes", FIRST + (2 << 20))]));
    assert!(odd.contains("no whole zones"), "{odd}");
    let ext4 = refused(&|s| {
        s.fs = &wp_ext4::ENTRY;
        s.fs_options = Options::default();
    });
    assert!(ext4.contains("ext4 supports one device"), "{ext4}");
    // An image of two devices on one.
    let both = Machine::new(spec("era=6.12.117"), None).expect("builds");
    let mut alone = spec("era=6.12.117");
    alone.more.clear();
    alone.device_params = params(&[("capacity_bytes", both.sectors() * SECTOR_BYTES)]);
    let m = Machine::new(alone, Some(both.medium())).expect("builds");
    let e = m.mount().err().expect("refused").to_string();
    assert!(e.contains("made on 2 devices, mounted on 1"), "{e}");
}
