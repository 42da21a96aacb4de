//! Untorn writes of programs: which calls are refused with which error, on a block device and on
//! ext4; what `statx` tells; fio's `atomic`.

use wp_base::event::{Class, Event, Flags, Op};
use wp_base::{FsError, Sector};
use wp_machine::spec::file_system;
use wp_machine::{Machine, MachineError, MachineSpec, registry};
use wp_medium::Slice;
use wp_vfs::{Fd, OpenFlags, Options, Vfs, WriteAtomic};
use wp_workload::fio::{RunOptions, Variables, parse};

const PAGE: u32 = 16 << 10;

fn machine(fs: &str, params: &[(&str, u64)]) -> Machine {
    machine_of(fs, (6, 18), params)
}

fn machine_of(fs: &str, kernel: (u16, u16), params: &[(&str, u64)]) -> Machine {
    made(fs, kernel, params).expect("a machine")
}

fn made(fs: &str, kernel: (u16, u16), params: &[(&str, u64)]) -> Result<Machine, MachineError> {
    let profiles = wp_machine::profile::PROFILES;
    let free = profiles.iter().find(|p| p.name == "free").expect("a profile without costs");
    let (fs, fs_options) = match fs {
        "none" => (registry::NONE, Options::default()),
        fs => file_system(fs).expect("a file system"),
    };
    let mut device_params = vec![("capacity_bytes".to_owned(), 64 << 20)];
    device_params.extend(params.iter().map(|(k, v)| ((*k).to_owned(), *v)));
    let spec = MachineSpec {
        seed: 1,
        cpu: free.model(),
        device: "fixed".to_owned(),
        device_params,
        more: Vec::new(),
        elevator: String::new(),
        start: Sector(2048),
        sectors: None,
        fs,
        fs_options,
        disk: "sda1".to_owned(),
        device_number: (8, 1),
        kernel,
    };
    Machine::new(spec, None)
}

fn on<T: 'static>(m: &Machine, program: impl AsyncFnOnce(Vfs) -> T + 'static) -> T {
    let vfs = m.mount().expect("it mounts");
    let v = vfs.clone();
    let told = m.block_on("program", async move { program(v).await }).expect("it ends");
    m.unmount(&vfs).expect("written");
    told
}

fn bytes(tag: u64, len: u32) -> Slice {
    Slice::pattern(tag, 0, len)
}

/// What an untorn write of one buffer answers: its length, or an errno.
async fn answer(v: &Vfs, fd: Fd, at: u64, len: u32) -> Result<u64, &'static str> {
    v.pwrite_atomic(fd, at, &[&[bytes(1, len)]]).await.map_err(|e| e.errno())
}

const WHOLE: [(&str, u64); 2] = [("atomic_bytes", 32 << 10), ("atomic_boundary_bytes", 32 << 10)];

#[test]
fn a_block_device_takes_what_its_drive_keeps_whole() {
    let m = machine("none", &WHOLE);
    m.record(Class::BLOCK);
    on(&m, async |v| {
        let direct = OpenFlags { direct: true, ..OpenFlags::WRITE };
        let fd = v.open("/dev/sda", direct, 0).await.expect("there");
        let told = v.statx_write_atomic("/dev/sda").await;
        let limits = WriteAtomic { unit_min: 512, unit_max: 32 << 10, segments_max: 1 };
        assert_eq!(told, Ok(limits));
        for len in [512, 4096, PAGE, 32 << 10] {
            assert_eq!(answer(&v, fd, 64 << 10, len).await, Ok(u64::from(len)));
        }
        assert_eq!(answer(&v, fd, 0, 64 << 10).await, Err("EINVAL"), "above unit_max");
        assert_eq!(answer(&v, fd, 0, 256).await, Err("EINVAL"), "below unit_min");
        assert_eq!(answer(&v, fd, 0, 3 * 4096).await, Err("EINVAL"), "no power of two");
        assert_eq!(answer(&v, fd, 4096, PAGE).await, Err("EINVAL"), "not aligned to its length");
        let halves: [&[Slice]; 2] = [&[bytes(1, 4096)], &[bytes(2, 4096)]];
        let two = v.pwrite_atomic(fd, 0, &halves).await;
        assert!(matches!(two, Err(FsError::Invalid(_))), "two user buffers: {two:?}");
        let end = (63 << 20) - u64::from(PAGE) / 2;
        assert_eq!(
            answer(&v, fd, end, PAGE).await,
            Err("EINVAL"),
            "not aligned, and no short write"
        );
        assert_eq!(answer(&v, fd, 63 << 20, PAGE).await, Err("ENOSPC"), "beyond the end");
        let cached = v.open("/dev/sda", OpenFlags::WRITE, 0).await.expect("there");
        assert_eq!(answer(&v, cached, 0, PAGE).await, Err("EOPNOTSUPP"), "through the cache");
        let read = v.open("/dev/sda", OpenFlags::READ, 0).await.expect("there");
        assert_eq!(answer(&v, read, 0, PAGE).await, Err("EBADF"));
    });
    let lengths: Vec<u32> = issued(&m).into_iter().map(|(_, sectors)| sectors * 512).collect();
    assert_eq!(lengths, [512, 4096, PAGE, 32 << 10], "each is one request");
}

/// Untorn writes that the drive got: sector and length.
fn issued(m: &Machine) -> Vec<(u64, u32)> {
    let events = m.rt.probe().take();
    let of = |e: Event| match e {
        Event::Block {
            action: wp_base::event::BlockAction::Issue,
            op: Op::Write,
            flags,
            at,
            sectors,
            ..
        } if flags.has(Flags::ATOMIC) => Some((at.0, sectors)),
        _ => None,
    };
    events.into_iter().filter_map(|r| of(r.event)).collect()
}

#[test]
fn who_has_no_untorn_writes_says_so() {
    // A drive that promises nothing; kernels before there were such writes.
    for (kernel, params) in [((6, 18), &[][..]), ((6, 10), &WHOLE)] {
        on(&machine_of("none", kernel, params), async |v| {
            let direct = OpenFlags { direct: true, ..OpenFlags::WRITE };
            let fd = v.open("/dev/sda", direct, 0).await.expect("there");
            assert_eq!(answer(&v, fd, 0, 4096).await, Err("EOPNOTSUPP"));
            assert_eq!(v.statx_write_atomic("/dev/sda").await, Ok(WriteAtomic::default()));
        });
    }
    for fs in ["ext4,era=6.12", "ext4,era=6.18,data=journal", "f2fs", "btrfs"] {
        let size: &[(&str, u64)] = &[WHOLE[0], WHOLE[1], ("capacity_bytes", 256 << 20)];
        on(&machine(fs, size), async |v| {
            let direct = OpenFlags { direct: true, ..OpenFlags::CREATE };
            let fd = v.open("f", direct, 0o644).await.expect("made");
            assert_eq!(answer(&v, fd, 0, 4096).await, Err("EOPNOTSUPP"));
        });
    }
}

#[test]
fn ext4_takes_one_block() {
    let m = machine("ext4,era=6.18,block_size=4096", &WHOLE);
    m.record(Class::BLOCK);
    on(&m, async |v| {
        let direct = OpenFlags { direct: true, ..OpenFlags::CREATE };
        let fd = v.open("f", direct, 0o644).await.expect("made");
        let one = WriteAtomic { unit_min: 4096, unit_max: 4096, segments_max: 1 };
        assert_eq!(v.statx_write_atomic("f").await, Ok(one));
        // At the end, into a hole, over what is there.
        for at in [0, 16 << 10, 8192, 0] {
            assert_eq!(answer(&v, fd, at, 4096).await, Ok(4096), "{at}");
        }
        for len in [512, 2048, 8192, PAGE] {
            assert_eq!(answer(&v, fd, 0, len).await, Err("EINVAL"), "{len}");
        }
        assert_eq!(answer(&v, fd, 512, 4096).await, Err("EINVAL"), "not aligned");
        let cached = v.open("f", OpenFlags::WRITE, 0).await.expect("there");
        assert_eq!(answer(&v, cached, 0, 4096).await, Err("EOPNOTSUPP"), "through the cache");
        let read = v.pread(fd, 0, 4096).await.expect("there");
        assert_eq!(Slice::concat(&read), bytes(1, 4096).to_vec());
    });
    let all = issued(&m);
    assert_eq!(all.len(), 4);
    assert!(all.iter().all(|(_, sectors)| *sectors == 8), "{all:?}");
    // A drive whose unit is less than a block.
    on(&machine("ext4,era=6.18,block_size=4096", &[("atomic_bytes", 2048)]), async |v| {
        let direct = OpenFlags { direct: true, ..OpenFlags::CREATE };
        let fd = v.open("f", direct, 0o644).await.expect("made");
        assert_eq!(answer(&v, fd, 0, 4096).await, Err("EOPNOTSUPP"));
    });
}

/// Several blocks need clusters, and a kernel that writes them so.
#[test]
fn ext4_takes_up_to_a_cluster() {
    for (fs, kernel, most) in [
        ("ext4,era=6.18,cluster=16k", (6, 18), 16 << 10),
        ("ext4,era=6.16,cluster=64k", (6, 16), 32 << 10),
        ("ext4,era=6.15,cluster=16k", (6, 15), 4096),
        ("ext4,era=6.18,cluster=8k,block_size=2048", (6, 18), 8192),
    ] {
        let m = machine_of(fs, kernel, &WHOLE);
        m.record(Class::BLOCK);
        on(&m, async move |v| {
            let direct = OpenFlags { direct: true, ..OpenFlags::CREATE };
            let fd = v.open("f", direct, 0o644).await.expect("made");
            let told = v.statx_write_atomic("f").await.expect("told");
            assert_eq!((told.unit_max, told.segments_max), (most, 1), "{fs}");
            assert_eq!(answer(&v, fd, 0, most).await, Ok(u64::from(most)), "{fs}");
            assert_eq!(answer(&v, fd, 0, 2 * most).await, Err("EINVAL"), "{fs}: too long");
            let odd = answer(&v, fd, u64::from(most / 2), most).await;
            assert_eq!(odd, Err("EINVAL"), "{fs}: not aligned to its length");
        });
        assert_eq!(issued(&m).iter().map(|(_, n)| n * 512).collect::<Vec<_>>(), [most], "{fs}");
    }
}

/// Whatever is mapped of its range, an untorn write is one request, and what it does not cover is
/// as it was.
#[test]
fn a_mixed_range_is_one_untorn_write() {
    let m = machine("ext4,era=6.18,cluster=16k", &WHOLE);
    m.record(Class::BLOCK);
    on(&m, async |v| {
        let direct = OpenFlags { direct: true, ..OpenFlags::CREATE };
        for (n, written) in [0b0001u64, 0b0110, 0b1010, 0b1000, 0b1111, 0].into_iter().enumerate() {
            for space in [false, true] {
                let name = format!("f{n}{space}");
                let fd = v.open(&name, direct, 0o644).await.expect("made");
                v.ftruncate(fd, 4 * u64::from(PAGE)).await.expect("sets the length");
                if space {
                    let how = wp_vfs::Reserve::Space { keep_size: true };
                    v.fallocate(fd, how, 0, u64::from(PAGE)).await.expect("reserves");
                }
                for block in (0..4).filter(|b| written >> b & 1 == 1) {
                    v.pwrite(fd, block * 4096, &[bytes(7, 4096)]).await.expect("writes");
                }
                assert_eq!(answer(&v, fd, 0, PAGE).await, Ok(u64::from(PAGE)), "{name}");
                let got = v.pread(fd, 0, 2 * u64::from(PAGE)).await.expect("reads");
                let got = wp_medium::Slice::concat(&got);
                let (page, behind) = got.split_at(PAGE as usize);
                assert!(page == bytes(1, PAGE).to_vec(), "{name}");
                assert!(behind.iter().all(|b| *b == 0), "{name}");
                v.close(fd).await.expect("closes");
            }
        }
    });
    let all = issued(&m);
    assert_eq!(all.len(), 12);
    assert!(all.iter().all(|(_, n)| *n == 32), "{all:?}");
}

/// Extents that continue each other in two leaves of the tree are one mapping: no page needs a
/// commit, wherever the leaves meet.
#[test]
fn leaves_that_meet_within_a_page_do_not_tear_it() {
    let m = machine("ext4,era=6.18,cluster=16k", &WHOLE);
    m.record(Class::BLOCK);
    let pages = 300u64;
    on(&m, async move |v| {
        let direct = OpenFlags { direct: true, ..OpenFlags::CREATE };
        let fd = v.open("f", direct, 0o644).await.expect("made");
        v.ftruncate(fd, pages * u64::from(PAGE)).await.expect("sets the length");
        // Every second block is an extent of its own, so that the tree has leaves; then the rest.
        for block in (0..4 * pages).step_by(2).chain((1..4 * pages).step_by(2)) {
            v.pwrite(fd, block * 4096, &[bytes(block, 4096)]).await.expect("writes");
        }
        v.fsync(fd).await.expect("syncs");
        for page in 0..pages {
            let at = page * u64::from(PAGE);
            assert_eq!(answer(&v, fd, at, PAGE).await, Ok(u64::from(PAGE)), "page {page}");
        }
    });
    let all = issued(&m);
    assert_eq!(all.len(), 300);
    assert!(all.iter().all(|(_, n)| *n == 32));
}

#[test]
fn fio_writes_untorn_with_atomic() {
    let text = |engine: &str| {
        format!(
            "[w]\nfilename=/dev/sda\nrw=randwrite\nbs=16k\nio_size=1m\nsize=8m\natomic=1\n{engine}"
        )
    };
    let job = |text: &str| parse("a.fio", text.as_bytes(), &|_| None, &Variables::default());
    for engine in ["ioengine=pvsync2\n", "ioengine=libaio\niodepth=4\n", "ioengine=io_uring\n"] {
        let file = job(&text(engine));
        assert!(!file.has_errors(), "{}", file.rendered());
        let m = machine("none", &WHOLE);
        m.record(Class::BLOCK);
        let done =
            on(&m, async move |v| wp_workload::fio::run(&v, &file, RunOptions::default()).await);
        let done = done.expect("no error");
        assert_eq!(done[0].error, 0, "{engine}");
        let all = issued(&m);
        assert_eq!(all.iter().map(|(_, n)| n / 32).sum::<u32>(), 64, "{engine}");
    }
    let refused = job(&text("ioengine=psync\n"));
    assert!(refused.rendered().contains("atomic=1 needs ioengine pvsync2, libaio or io_uring"));
}
