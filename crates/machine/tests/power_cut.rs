//! Power off at any instant: every task is dropped where it waits, and nothing of the world is
//! left.

use wp_base::{Rng, Sector, Span, Time, live};
use wp_machine::profile::Profile;
use wp_machine::registry;
use wp_machine::{Machine, MachineSpec};
use wp_medium::Slice;
use wp_vfs::{OpenFlags, Options, Vfs};

fn spec(device: &str, seed: u64) -> MachineSpec {
    let fs = registry::FILE_SYSTEMS[0];
    MachineSpec {
        seed,
        cpu: Profile::known("i7-4770").model(),
        device: device.to_owned(),
        device_params: Vec::new(),
        more: Vec::new(),
        elevator: if seed.is_multiple_of(2) { "cfq" } else { "noop" }.to_owned(),
        start: Sector(2048),
        sectors: Some(48 << 11),
        fs,
        fs_options: Options::parse("era=3.8", fs.options).expect("known"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (3, 8),
    }
}

async fn busy(v: Vfs, who: u64) {
    let mut rng = Rng::stream(who, "busy");
    for step in 0.. {
        let name = format!("f{}", rng.below(6));
        let fd = v.open(&name, OpenFlags::CREATE, 0o644).await.expect("opens");
        let data = Slice::pattern(step, 0, 1 + rng.below(30_000) as u32);
        v.pwrite(fd, rng.below(100_000), &[data]).await.expect("writes");
        if rng.below(3) == 0 {
            v.fsync(fd).await.expect("syncs");
        }
        v.close(fd).await.expect("closes");
        if rng.below(4) == 0 {
            // Another task may have been quicker.
            drop(v.unlink(&name).await);
        }
        v.rt().sleep(Span::micros(rng.below(3_000_000))).await;
    }
}

#[test]
fn a_power_cut_at_any_instant_leaves_no_live_object() {
    let before = live::census();
    for device in ["ssd-128", "sata-disk-nofua", "fixed"] {
        let mut rng = Rng::stream(5, device);
        for seed in 0..8 {
            let m = Machine::new(spec(device, seed), None).expect("builds");
            let vfs = m.mount().expect("mounts");
            for who in 0..4 {
                drop(m.rt.spawn(format!("busy-{who}"), busy(vfs.clone(), who)));
            }
            m.rt.run_until(m.rt.now() + Span::micros(rng.below(40_000_000)));
            let lives: u64 = live::census().iter().map(|(_, n)| n).sum();
            assert!(lives > 20, "the world is busy when it ends");
            drop(vfs);
            let rt = m.rt.clone();
            drop(m);
            rt.cut();
            drop(rt);
            assert_eq!(live::census(), before, "{device}, seed {seed}");
        }
    }
}

#[test]
fn one_seed_gives_one_history() {
    let run = |seed| {
        let m = Machine::new(spec("ssd-128", seed), None).expect("builds");
        let vfs = m.mount().expect("mounts");
        m.record(wp_base::event::Class::ALL);
        for who in 0..3 {
            drop(m.rt.spawn(format!("busy-{who}"), busy(vfs.clone(), who)));
        }
        m.rt.run_until(Time::ZERO + Span::secs(50));
        let events = wp_machine::results::events_to_ndjson(&m.rt.probe().take());
        drop(vfs);
        m.rt.cut();
        events
    };
    let (a, b) = (run(7), run(7));
    assert!(a.len() > 10_000);
    assert_eq!(wp_machine::results::sha256(&a), wp_machine::results::sha256(&b));
}

/// Waits of one fsync on a device of one fixed latency, as counted on a real kernel in virtual time
/// (reference `linux-6.12-virtual-time`, ext4 rows): data, journal, FLUSH and the record; without
/// FUA one more.
#[test]
fn an_fsync_waits_as_often_as_the_real_kernel() {
    for (device, options, waits) in
        [("fixed", "era=4.6", 4), ("fixed-nofua", "era=4.6", 5), ("fixed", "era=4.6,nobarrier", 3)]
    {
        let mut s = spec(device, 1);
        s.cpu = Profile::known("free").model();
        s.fs_options = Options::parse(options, s.fs.options).expect("known");
        s.elevator = "noop".to_owned();
        let m = Machine::new(s, None).expect("builds");
        let vfs = m.mount().expect("mounts");
        let v = vfs.clone();
        let (append, overwrite) = m
            .block_on("program", async move {
                let fd = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
                // Once before, so that no bitmap is read inside what is timed.
                v.pwrite(fd, 8192, &[Slice::pattern(3, 0, 4096)]).await.expect("writes");
                v.sync().await.expect("syncs");
                v.rt().sleep(Span::secs(10)).await;
                v.pwrite(fd, 0, &[Slice::pattern(1, 0, 4096)]).await.expect("writes");
                let start = v.rt().now();
                v.fsync(fd).await.expect("syncs");
                let append = v.rt().now().since(start);
                v.rt().sleep(Span::millis(20)).await;
                v.pwrite(fd, 0, &[Slice::pattern(2, 0, 4096)]).await.expect("writes");
                let start = v.rt().now();
                v.fdatasync(fd).await.expect("syncs");
                (append, v.rt().now().since(start))
            })
            .expect("runs");
        assert_eq!(append, Span::micros(15).times(waits), "{device} {options}: append and fsync");
        // fdatasync of an overwrite: data, and a flush where there are barriers.
        let flushes = if options.contains("nobarrier") { 0 } else { 1 };
        assert_eq!(overwrite, Span::micros(15).times(1 + flushes), "{device} {options}: overwrite");
        drop(vfs);
        m.rt.cut();
    }
}
