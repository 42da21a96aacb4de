//! How many device waits each direct and each `O_DSYNC` call has: ours beside the real 6.12 in
//! virtual time, on a device that takes one time for everything (case `odirect` of the reference).

use std::collections::BTreeMap;

use wp_base::{Sector, Span};
use wp_machine::profile::Profile;
use wp_machine::registry;
use wp_machine::testing::reference;
use wp_machine::{Machine, MachineSpec};
use wp_medium::Slice;
use wp_vfs::{Fd, OpenFlags, Options, Reserve, Vfs};

const LATENCY: u64 = 15_000;
const FOLDER: &str = "linux-6.12-virtual-time";
type Column = (&'static str, &'static str, &'static str, &'static [(&'static str, u64)]);
/// Our options and device for a column of the reference.
const COLUMNS: [Column; 5] = [
    ("ext4-default", "", "fixed", &[]),
    ("ext4-nodelalloc", ",nodelalloc", "fixed", &[]),
    ("ext4-nobarrier", ",nobarrier", "fixed", &[]),
    ("ext4-default-nofua", "", "fixed-nofua", &[]),
    ("ext4-default-nocache", "", "fixed", &[("cache_bytes", 0), ("fua", 0)]),
];

/// (call, index) -> waits.
type Waits = BTreeMap<(String, u64), u64>;

struct Timer {
    v: Vfs,
    found: Waits,
}

impl Timer {
    fn note(&mut self, what: &str, i: u64, from: wp_base::Time) {
        let span = self.v.rt().now().since(from).0;
        assert_eq!(span % LATENCY, 0, "{what} {i} took {span} ns");
        self.found.insert((what.to_owned(), i), span / LATENCY);
    }
    async fn write(&mut self, what: &str, i: u64, fd: Fd, block: u64) {
        let from = self.v.rt().now();
        self.v.pwrite(fd, block * 4096, &[Slice::pattern(block, i, 4096)]).await.expect("writes");
        self.note(what, i, from);
    }
    async fn sync(&mut self, what: &str, i: u64, fd: Fd, data_only: bool) {
        let from = self.v.rt().now();
        if data_only { self.v.fdatasync(fd).await } else { self.v.fsync(fd).await }.expect("syncs");
        self.note(what, i, from);
    }
    async fn nap(&self) {
        self.v.rt().sleep(Span::millis(20)).await;
    }
}

/// The program of `tools/tl.c`, case `odir`.
async fn program(v: Vfs) -> Waits {
    let direct = OpenFlags { direct: true, ..OpenFlags::CREATE };
    let fd = v.open("odir", direct, 0o644).await.expect("opens");
    v.sync().await.expect("syncs");
    // As the reference's script does after the mount: the bitmaps are read by then.
    v.rt().sleep(Span::secs(10)).await;
    let mut t = Timer { v: v.clone(), found: Waits::new() };
    t.nap().await;
    let mut end = 0;
    for i in 0..4 {
        t.write("dappend", i, fd, end).await;
        end += 1;
        t.nap().await;
    }
    for i in 0..4 {
        t.write("dappend_f", i, fd, end).await;
        end += 1;
        t.sync("dappend_f.fsync", i, fd, false).await;
        t.nap().await;
    }
    for i in 0..4 {
        t.write("dover", i, fd, i).await;
        t.nap().await;
    }
    for i in 0..4 {
        t.write("dover_f", i, fd, i).await;
        t.sync("dover_f.fsync", i, fd, false).await;
        t.nap().await;
    }
    for i in 0..4 {
        t.write("dover_fd", i, fd, i).await;
        t.sync("dover_fd.fdatasync", i, fd, true).await;
        t.nap().await;
    }
    let from = v.rt().now();
    let space = Reserve::Space { keep_size: false };
    v.fallocate(fd, space, 64 * 4096, 8 * 4096).await.expect("reserves");
    t.note("fallocate", 0, from);
    t.sync("fallocate.fsync", 0, fd, false).await;
    t.nap().await;
    for i in 0..4 {
        t.write("dunwritten", i, fd, 64 + i).await;
        t.nap().await;
    }
    for i in 0..4 {
        t.write("dunwritten_f", i, fd, 68 + i).await;
        t.sync("dunwritten_f.fsync", i, fd, false).await;
        t.nap().await;
    }
    v.close(fd).await.expect("closes");
    for (over, append, direct) in
        [("dover_dsync", "dappend_dsync", true), ("bover_dsync", "bappend_dsync", false)]
    {
        let flags = OpenFlags { direct, dsync: true, ..OpenFlags::WRITE };
        let fd = v.open("odir", flags, 0).await.expect("opens");
        for i in 0..4 {
            t.write(over, i, fd, i).await;
            t.nap().await;
        }
        for i in 0..4 {
            t.write(append, i, fd, 80 + end).await;
            end += 1;
            t.nap().await;
        }
        v.close(fd).await.expect("closes");
    }
    t.found
}

fn ours(options: &str, device: &str, params: &[(&str, u64)]) -> Waits {
    let fs = registry::FILE_SYSTEMS[0];
    let mut device_params: Vec<(String, u64)> =
        params.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
    device_params.push(("latency_ns".to_owned(), LATENCY));
    let m = Machine::new(
        MachineSpec {
            seed: 1,
            cpu: Profile::known("free").model(),
            device: device.to_owned(),
            device_params,
            more: Vec::new(),
            elevator: "noop".to_owned(),
            start: Sector(0),
            sectors: Some(512 << 11),
            fs,
            fs_options: Options::parse(&format!("era=6.12.117{options}"), fs.options)
                .expect("known"),
            disk: "z0".to_owned(),
            device_number: (250, 0),
            kernel: (6, 12),
        },
        None,
    )
    .expect("builds");
    let vfs = m.mount().expect("mounts");
    let v = vfs.clone();
    let found = m.block_on("tl", program(v)).expect("runs");
    m.unmount(&vfs).expect("unmounts");
    drop(vfs);
    m.rt.cut();
    found
}

fn kernel(table: &str, column: &str) -> Waits {
    let mut lines = table.lines();
    let header: Vec<&str> = lines.next().expect("a header").split('\t').collect();
    let at = header.iter().position(|c| *c == column).expect("a column");
    lines
        .map(|l| l.split('\t').collect::<Vec<_>>())
        .filter(|l| l[0] == "15" && l[1] == "odirect" && l[2] != "syncfs")
        .filter_map(|l| {
            let waits = l[at].parse().ok()?;
            Some(((l[2].to_owned(), l[3].parse().expect("an index")), waits))
        })
        .collect()
}

#[test]
fn direct_and_dsync_calls_wait_for_the_device_as_often_as_in_linux_6_12() {
    let folder = reference(FOLDER);
    let table = std::fs::read_to_string(folder.join("waits.tsv")).expect("readable");
    let mut wrong = Vec::new();
    for (column, options, device, params) in COLUMNS {
        let (ours, theirs) = (ours(options, device, params), kernel(&table, column));
        assert!(theirs.len() >= 60, "{column} has {} calls", theirs.len());
        for (call, waits) in &theirs {
            let found = ours.get(call);
            if found != Some(waits) {
                wrong.push(format!("{column} {call:?}: ours {found:?}, the kernel's {waits}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
