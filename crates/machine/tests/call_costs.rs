//! What changes names and inodes costs CPU time, on every file system.

use wp_base::{Sector, Span};
use wp_machine::registry::FILE_SYSTEMS;
use wp_machine::{Machine, MachineSpec};
use wp_rt::{CostProfile, CpuModel, CpuOp};
use wp_vfs::{FsEntry, OpenFlags, Options};

/// Of these a call takes few; a device of 1 us takes none for longer.
const NAME: Span = Span::millis(1);
const INODE: Span = Span::millis(100);

/// Names and inodes that each call changes: its time in whole [`NAME`]s and [`INODE`]s.
fn changes(fs: &'static FsEntry) -> Vec<(&'static str, u64, u64)> {
    let mut costs = CostProfile::zero();
    costs.set(CpuOp::NameChange, NAME.0);
    costs.set(CpuOp::InodeChange, INODE.0);
    let spec = MachineSpec {
        seed: 1,
        cpu: CpuModel { cores: 2, profile: costs },
        device: "fixed".to_owned(),
        device_params: vec![
            ("capacity_bytes".to_owned(), 256 << 20),
            ("latency_ns".to_owned(), 1000),
        ],
        more: Vec::new(),
        elevator: String::new(),
        start: Sector(0),
        sectors: None,
        fs,
        fs_options: Options::parse("era=6.12", fs.options).expect("options"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (6, 12),
    };
    let machine = Machine::new(spec, None).expect("a machine");
    let vfs = machine.mount().expect("a mount");
    let v = vfs.clone();
    let task = async move {
        let mut out = Vec::new();
        // Blocks of directories are in memory from here on.
        v.mkdir("/d", 0o755).await.expect("made");
        let file = OpenFlags { write: true, create: true, ..OpenFlags::default() };
        macro_rules! timed {
            ($name:literal, $call:expr) => {{
                let start = v.rt().now();
                let done = $call.await.expect($name);
                let took = v.rt().now().since(start).0;
                out.push(($name, took % INODE.0 / NAME.0, took / INODE.0));
                done
            }};
        }
        timed!("mkdir", v.mkdir("/d/a", 0o755));
        let fd = timed!("creat", v.open("/d/f", file, 0o644));
        v.close(fd).await.expect("closed");
        timed!("symlink", v.symlink("f", "/d/s"));
        timed!("link", v.link("/d/f", "/d/g"));
        timed!("rename", v.rename("/d/g", "/d/h"));
        timed!("unlink of one of two", v.unlink("/d/h"));
        let fd = v.open("/d/t", file, 0o644).await.expect("made");
        v.close(fd).await.expect("closed");
        timed!("rename over another", v.rename("/d/s", "/d/t"));
        timed!("unlink of the last", v.unlink("/d/f"));
        timed!("rmdir", v.rmdir("/d/a"));
        let fd = v.open("/d/o", file, 0o644).await.expect("made");
        timed!("unlink of an open one", v.unlink("/d/o"));
        timed!("its close", v.close(fd));
        out
    };
    let out = machine.block_on("calls", task).expect("it ends");
    machine.unmount(&vfs).expect("an unmount");
    out
}

#[test]
fn calls_that_change_names_and_inodes_cost_the_same_on_every_file_system() {
    let right = [
        ("mkdir", 1, 1),
        ("creat", 1, 1),
        ("symlink", 1, 1),
        ("link", 1, 0),
        ("rename", 2, 0),
        ("unlink of one of two", 1, 0),
        ("rename over another", 2, 1),
        ("unlink of the last", 1, 1),
        ("rmdir", 1, 1),
        ("unlink of an open one", 1, 0),
        ("its close", 0, 1),
    ];
    for fs in FILE_SYSTEMS {
        assert_eq!(changes(fs), right, "{}", fs.name);
    }
}
