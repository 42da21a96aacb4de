//! A machine without a file system: programs on its block devices.

use wp_base::event::{Class, Event, Flags, Op, ZoneOp};
use wp_base::{FsError, Sector};
use wp_machine::registry;
use wp_machine::{Machine, MachineSpec};
use wp_medium::Slice;
use wp_vfs::{Fd, OpenFlags, Options, Vfs};
use wp_workload::fio::{RunOptions, Variables, parse};

/// Every command of the device takes this long.
const LATENCY_NS: u64 = 15_000;
const BLOCK: u64 = 4096;

fn spec(device: &str, devices: usize) -> MachineSpec {
    let profiles = wp_machine::profile::PROFILES;
    let free = profiles.iter().find(|p| p.name == "free").expect("a profile without costs");
    let params: Vec<(String, u64)> =
        [("capacity_bytes".to_owned(), 64 << 20)].into_iter().collect();
    MachineSpec {
        seed: 1,
        cpu: free.model(),
        device: device.to_owned(),
        device_params: params.clone(),
        more: (1..devices).map(|_| (device.to_owned(), params.clone())).collect(),
        elevator: String::new(),
        start: Sector(0),
        sectors: None,
        fs: registry::NONE,
        fs_options: Options::default(),
        disk: "vda".to_owned(),
        device_number: (254, 0),
        kernel: (6, 12),
    }
}

fn machine(device: &str, devices: usize) -> Machine {
    Machine::new(spec(device, devices), None).expect("a machine")
}

fn on<T: 'static>(m: &Machine, program: impl AsyncFnOnce(Vfs) -> T + 'static) -> T {
    let vfs = m.mount().expect("it mounts");
    let v = vfs.clone();
    let told = m.block_on("program", async move { program(v).await }).expect("it ends");
    m.unmount(&vfs).expect("written");
    told
}

fn data(n: u64, tag: u64) -> Vec<Slice> {
    (0..n).map(|i| Slice::pattern(tag, i * BLOCK, BLOCK as u32)).collect()
}

async fn device(v: &Vfs, direct: bool) -> Fd {
    let flags = OpenFlags { direct, ..OpenFlags::WRITE };
    v.open("/dev/nvme0n1", flags, 0).await.expect("there")
}

/// Device latencies of a call.
async fn waits<T>(v: &Vfs, call: impl Future<Output = T>) -> u64 {
    let from = v.rt().now();
    call.await;
    v.rt().now().since(from).0 / LATENCY_NS
}

/// As Linux: a direct write waits for itself; an fsync sends a flush whatever there was; `O_DSYNC`
/// forces the write (FUA) and sends a flush as well.
#[test]
fn calls_wait_for_the_commands_that_linux_sends() {
    let m = machine("fixed", 1);
    m.record(Class::ALL);
    on(&m, async |v| {
        let fd = device(&v, true).await;
        assert_eq!(waits(&v, v.pwrite(fd, 0, &data(1, 1))).await, 1);
        assert_eq!(waits(&v, v.pwrite(fd, 0, &data(1024, 2))).await, 1, "bios side by side");
        assert_eq!(waits(&v, v.pread(fd, 0, BLOCK)).await, 1);
        assert_eq!(waits(&v, v.fsync(fd)).await, 1);
        assert_eq!(waits(&v, v.fdatasync(fd)).await, 1, "nobody knows that nothing was written");
        let flags = OpenFlags { direct: true, dsync: true, ..OpenFlags::WRITE };
        let forced = v.open("/dev/nvme0n1", flags, 0).await.expect("there");
        assert_eq!(waits(&v, v.pwrite(forced, 0, &data(1, 3))).await, 2);
        let cached = device(&v, false).await;
        assert_eq!(waits(&v, v.pwrite(cached, BLOCK, &data(16, 4))).await, 0);
        assert_eq!(waits(&v, v.fsync(cached)).await, 2);
        assert_eq!(waits(&v, v.pwrite(cached, 512, &[Slice::zero(100)])).await, 1, "it reads");
        let read = v.pread(fd, 512, 512).await.expect("written back first");
        assert!(Slice::concat(&read)[..100].iter().all(|b| *b == 0));
    });
    let forced = m.rt.probe().take().into_iter().filter(
        |r| matches!(r.event, Event::Block { op: Op::Write, flags, .. } if flags.has(Flags::FUA)),
    );
    assert!(forced.count() > 0);
}

#[test]
fn what_cannot_be_is_answered_as_linux_does() {
    let m = machine("fixed", 1);
    on(&m, async |v| {
        let fd = device(&v, true).await;
        let end = 64 << 20;
        let invalid = |r: Result<u64, FsError>| matches!(r, Err(FsError::Invalid(_)));
        assert!(invalid(v.pwrite(fd, 100, &data(1, 1)).await));
        assert!(invalid(v.discard(fd, 100, BLOCK).await.map(|()| 0)));
        assert!(invalid(v.discard(fd, end, BLOCK).await.map(|()| 0)));
        assert_eq!(v.pwrite(fd, end, &data(1, 1)).await, Err(FsError::NoSpace));
        assert_eq!(v.pwrite(fd, end - BLOCK, &data(2, 1)).await, Ok(BLOCK));
        assert_eq!(v.pread(fd, end, BLOCK).await, Ok(Vec::new()));
        assert_eq!(v.open("/dev/sdb", OpenFlags::READ, 0).await, Err(FsError::NotFound));
        assert_eq!(v.open("/f", OpenFlags::CREATE, 0o644).await, Err(FsError::NotPermitted));
        let read_only = v.open("/dev/nvme0n1", OpenFlags::READ, 0).await.expect("there");
        assert_eq!(v.discard(read_only, 0, BLOCK).await, Err(FsError::BadFile));
        let reset = v.manage_zone(fd, ZoneOp::Reset, 0).await;
        assert!(matches!(reset, Err(FsError::Unsupported(_))));
    });
}

#[test]
fn discards_and_the_last_close_reach_the_device() {
    let m = machine("fixed", 2);
    let contents = on(&m, async |v| {
        let fd = device(&v, false).await;
        v.pwrite(fd, 0, &data(4, 7)).await.expect("room");
        v.fsync(fd).await.expect("durable");
        v.discard(fd, 0, 2 * BLOCK).await.expect("it can");
        let other = v.open("/dev/nvme1n1", OpenFlags::WRITE, 0).await.expect("the second device");
        v.pwrite(other, 0, &data(1, 9)).await.expect("room");
        v.close(other).await.expect("open");
        let read = v.pread(fd, 0, 4 * BLOCK).await.expect("there");
        v.close(fd).await.expect("open");
        Slice::concat(&read)
    });
    assert!(contents[..2 * BLOCK as usize].iter().all(|b| *b == 0));
    assert!(contents[2 * BLOCK as usize..].iter().any(|b| *b != 0));
    let second = Slice::concat(&m.medium().read(Sector((64 << 20) / 512), 8));
    assert_eq!(second, Slice::pattern(9, 0, BLOCK as u32).to_vec(), "it follows the first");
}

/// Jobs that write the zones of a drive beside each other: each write is at its zone's pointer, or
/// the drive would fail it.
#[test]
fn jobs_on_zones_write_at_write_pointers() {
    let text = "[global]\nfilename=/dev/nvme0n1\nzonemode=zbd\ndirect=1\nsize=100%\n\
                [random]\nrw=randwrite\nbs=64k\nio_size=24m\nmax_open_zones=3\nnumjobs=2\n\
                ioengine=libaio\niodepth=4\n\
                [over]\nstonewall\nrw=write\nbs=128k\nio_size=96m\nmax_open_zones=3\n\
                [read]\nstonewall\nrw=randread\nbs=4k\nio_size=4m\nmax_open_zones=3\n\
                [reset]\nstonewall\nrw=trim\nbs=8m\nmax_open_zones=3\n";
    let file = parse("z.fio", text.as_bytes(), &|_| None, &Variables::default());
    assert!(!file.has_errors(), "{}", file.rendered());
    let mut m = spec("fixed", 1);
    m.device_params.push(("zone_bytes".to_owned(), 8 << 20));
    m.device_params.push(("zone_capacity_bytes".to_owned(), 6 << 20));
    let m = Machine::new(m, None).expect("a machine");
    let results =
        on(&m, async move |v| wp_workload::fio::run(&v, &file, RunOptions::default()).await);
    let results = results.expect("no error");
    let of = |name: &'static str| results.iter().filter(move |r| r.job.name == name);
    assert!(results.iter().all(|r| r.error == 0));
    assert_eq!(of("random").map(|r| r.directions[1].bytes).collect::<Vec<_>>(), [24 << 20; 2]);
    // Twice the eight zones' 6 MiB, of which half were written before.
    let over = of("over").map(|r| (r.directions[1].bytes, r.zone_resets)).collect::<Vec<_>>();
    assert_eq!(over, [(96 << 20, 13)]);
    assert_eq!(of("read").map(|r| r.directions[0].bytes).collect::<Vec<_>>(), [4 << 20]);
    assert_eq!(
        of("reset").map(|r| (r.directions[2].ios, r.zone_resets)).collect::<Vec<_>>(),
        [(8, 8)]
    );
    assert!(m.zones().iter().all(|z| z.wp == z.start), "all of them are empty");
}
