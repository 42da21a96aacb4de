//! A machine that is dropped takes everything with it: pages, tasks, the runtime.

use wp_base::{Sector, live};
use wp_machine::profile::PROFILES;
use wp_machine::registry::FILE_SYSTEMS;
use wp_machine::{Machine, MachineSpec};
use wp_medium::Slice;
use wp_vfs::{FsEntry, OpenFlags, Options};

/// Writes files of held bytes, syncs one, and drops the machine without an unmount.
fn used_and_dropped(fs: &'static FsEntry, options: &str) -> u64 {
    let spec = MachineSpec {
        seed: 1,
        cpu: PROFILES[0].model(),
        device: "ssd-128".to_owned(),
        device_params: Vec::new(),
        more: Vec::new(),
        elevator: String::new(),
        start: Sector(2048),
        sectors: Some((512 << 20) / 512),
        fs,
        fs_options: Options::parse(options, fs.options).expect("options"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (6, 12),
    };
    let m = Machine::new(spec, None).expect("builds");
    let vfs = m.mount().expect("mounts");
    let v = vfs.clone();
    m.block_on("program", async move {
        for n in 0..40u8 {
            let fd = v.open(&format!("f{n}"), OpenFlags::CREATE, 0o644).await.expect("opens");
            v.pwrite(fd, 0, &[Slice::from_bytes(&[n + 1; 4096])]).await.expect("writes");
            if n == 20 {
                v.fsync(fd).await.expect("syncs");
            }
        }
    })
    .expect("it ends");
    live::count(live::Kind::Page)
}

#[test]
fn nothing_of_a_machine_is_left_when_it_is_dropped() {
    for fs in FILE_SYSTEMS.iter().copied().filter(|fs| fs.mount.is_some()) {
        for more in ["", if fs.name == "ext4" { ",nobarrier" } else { "" }] {
            let before = live::census();
            let options = format!("era={}{more}", fs.newest());
            let pages = used_and_dropped(fs, &options);
            assert!(pages >= 40, "{}: {pages} pages while it ran", fs.name);
            assert_eq!(live::census(), before, "{} {options}", fs.name);
        }
    }
}
