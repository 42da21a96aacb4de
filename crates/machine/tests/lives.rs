//! Lives of one file system, one after the other, each ended by a power failure.

use wp_base::{Sector, Zone};
use wp_machine::{Machine, MachineSpec};
use wp_medium::{Medium, Slice};
use wp_vfs::{OpenFlags, Options, Vfs};

/// F2FS on small zones of a drive that loses nothing, as Linux 6.12 but for one thing: an fsync
/// waits for its node also if that is the first since a checkpoint.
fn spec() -> MachineSpec {
    let fs = &wp_f2fs::ENTRY;
    let params = [
        ("zone_bytes", 16 << 20),
        ("blocks_per_plane", 24),
        ("conventional_zones", 2),
        ("pages_per_block", 12),
    ];
    MachineSpec {
        seed: 1,
        cpu: wp_machine::profile::PROFILES[0].model(),
        device: "zn540-4tb".to_owned(),
        device_params: params.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
        more: Vec::new(),
        elevator: String::new(),
        start: Sector(0),
        sectors: None,
        fs,
        fs_options: Options::parse("era=6.12.117,wait_first_node", fs.options).expect("options"),
        disk: "vda".to_owned(),
        device_number: (254, 0),
        kernel: (6, 12),
    }
}

/// What the drive holds when power fails behind `life`, and what that has told.
fn life<F, T>(left: Option<(Medium, Vec<Zone>)>, life: F) -> (Option<(Medium, Vec<Zone>)>, T)
where
    F: AsyncFnOnce(Vfs) -> T + 'static,
    T: 'static,
{
    let (image, zones) = left.map_or((None, Vec::new()), |(m, z)| (Some(m), z));
    let m =
        Machine::with_zones(spec(), image, &zones, None, |_, device| device).expect("a machine");
    let vfs = m.mount().expect("it mounts");
    let v = vfs.clone();
    let told = m.block_on("life", async move { life(v).await }).expect("it ends");
    let left = (m.medium(), m.zones());
    drop(vfs);
    m.rt.cut();
    (Some(left), told)
}

async fn write(vfs: &Vfs, version: u64) {
    let fd = vfs.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
    vfs.pwrite(fd, 0, &[Slice::pattern(version, 0, 4096)]).await.expect("room");
    vfs.fsync(fd).await.expect("durable");
    vfs.close(fd).await.expect("open");
}

/// N27, which Linux has: its mount moves the logs to fresh zones in memory, and where there was
/// nothing to recover no checkpoint says so; what is fsynced there is not found after the next cut.
#[test]
fn what_is_fsynced_after_a_mount_with_nothing_to_recover_outlives_the_next_cut() {
    let (left, ()) = life(None, async |vfs: Vfs| {
        write(&vfs, 1).await;
        vfs.sync().await.expect("a checkpoint");
    });
    let head = |left: &Option<(Medium, Vec<Zone>)>| {
        let zones = left.as_ref().map(|(_, zones)| zones.clone()).unwrap_or_default();
        zones.iter().filter(|z| z.wp != z.start).count()
    };
    let before = head(&left);
    let (left, ()) = life(left, async |vfs: Vfs| write(&vfs, 2).await);
    assert!(head(&left) > before, "logs have moved to other zones");
    let (_, found) = life(left, async |vfs: Vfs| {
        let fd = vfs.open("f", OpenFlags::READ, 0).await.expect("there");
        let got = vfs.pread(fd, 0, 4096).await.expect("readable");
        vfs.close(fd).await.expect("open");
        Slice::concat(&got)
    });
    assert!(found == Slice::pattern(2, 0, 4096).to_vec(), "the version that was fsynced last");
}
