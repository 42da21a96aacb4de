//! Unwritten extents, `fallocate` and direct I/O: against a model in memory, against e2fsck, and
//! under power cuts.

use std::collections::BTreeMap;

use crate::support::{Setup, World, assert_e2fsck_clean, assert_nothing_lives};
use wp_base::{FsError, Rng, Span};
use wp_ext4::mkfs::Features;
use wp_medium::{Medium, Slice};
use wp_vfs::{OpenFlags, Reserve, Vfs};

const DIRECT: OpenFlags = OpenFlags { direct: true, ..OpenFlags::CREATE };

fn bytes(slices: &[Slice]) -> Vec<u8> {
    Slice::concat(slices)
}

async fn read(v: &Vfs, name: &str, flags: OpenFlags) -> Vec<u8> {
    let fd = v.open(name, flags, 0).await.expect("opens");
    let got = v.pread(fd, 0, 1 << 30).await.expect("reads");
    v.close(fd).await.expect("closes");
    bytes(&got)
}

/// One random call on the file and on its model.
async fn step(v: &Vfs, name: &str, model: &mut Vec<u8>, rng: &mut Rng, n: u64, most: u64) {
    let put = |model: &mut Vec<u8>, at: u64, data: &[u8]| {
        let end = at as usize + data.len();
        if model.len() < end {
            model.resize(end, 0);
        }
        model[at as usize..end].copy_from_slice(data);
    };
    let (at, len) = (rng.below(most), 1 + rng.below(most / 4));
    let grow = |model: &mut Vec<u8>, to: u64| {
        if (model.len() as u64) < to {
            model.resize(to as usize, 0);
        }
    };
    let clear = |model: &mut Vec<u8>, from: u64, to: u64| {
        let to = to.min(model.len() as u64) as usize;
        if (from as usize) < to {
            model[from as usize..to].fill(0);
        }
    };
    let flags = match rng.below(6) {
        0 => OpenFlags { dsync: true, ..OpenFlags::CREATE },
        1 => OpenFlags { sync: true, ..OpenFlags::CREATE },
        _ => OpenFlags::CREATE,
    };
    let fd = v.open(name, flags, 0o644).await.expect("opens");
    match rng.below(16) {
        0..=3 => {
            let s = Slice::pattern(n, 0, len as u32);
            put(model, at, &s.to_vec());
            v.pwrite(fd, at, &[s]).await.expect("writes");
        }
        4..=6 => {
            let flags = OpenFlags { dsync: flags.dsync, sync: flags.sync, ..DIRECT };
            let fd = v.open(name, flags, 0).await.expect("opens");
            let unit = if rng.below(2) == 0 { 512 } else { 4096 };
            let (at, len) = (at / unit * unit, len.next_multiple_of(unit));
            let s = Slice::pattern(n, 7, len as u32);
            put(model, at, &s.to_vec());
            assert_eq!(v.pwrite(fd, at, &[s]).await.expect("writes"), len);
            v.close(fd).await.expect("closes");
        }
        7 => {
            let keep_size = rng.below(2) == 0;
            v.fallocate(fd, Reserve::Space { keep_size }, at, len).await.expect("reserves");
            if !keep_size {
                grow(model, at + len);
            }
        }
        8..=9 => {
            v.fallocate(fd, Reserve::Punch, at, len).await.expect("punches");
            clear(model, at, at + len);
        }
        10 => {
            let keep_size = rng.below(2) == 0;
            v.fallocate(fd, Reserve::Zero { keep_size }, at, len).await.expect("zeroes");
            clear(model, at, at + len);
            if !keep_size {
                grow(model, at + len);
            }
        }
        11 => {
            v.ftruncate(fd, at).await.expect("cuts");
            model.resize(at as usize, 0);
        }
        12 => v.fsync(fd).await.expect("syncs"),
        13 => v.rt().sleep(Span::millis(rng.below(9_000))).await,
        14 => assert!(read(v, name, DIRECT).await == *model, "call {n}: direct read"),
        _ => assert!(read(v, name, OpenFlags::READ).await == *model, "call {n}: read"),
    }
    v.close(fd).await.expect("closes");
}

#[test]
fn a_file_is_what_its_calls_made_it() {
    let setups: &[(&'static str, u32, bool)] = &[
        ("3.4", 1024, false),
        ("3.8", 4096, false),
        ("4.6", 1024, true),
        ("4.6", 4096, false),
        ("5.6", 1024, false),
        ("5.10", 4096, false),
        ("6.1", 4096, true),
        ("6.18", 1024, false),
        ("6.18", 4096, false),
        // With buffered_iomap.
        ("next", 4096, false),
        ("next", 1024, true),
    ];
    for (i, (era, block_size, nodelalloc)) in setups.iter().enumerate() {
        let mut setup = Setup::new(era);
        setup.block_size = *block_size;
        setup.nodelalloc = *nodelalloc;
        setup.features = if i % 2 == 0 { Features::era_2012() } else { Features::today() };
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let what = format!("era {era}, {block_size}, nodelalloc {nodelalloc}");
        let v = vfs.clone();
        let models = w.run(async move {
            let mut rng = Rng::stream(i as u64, "calls");
            let mut models = vec![Vec::new(); 3];
            for n in 0..600 {
                let f = rng.below(3) as usize;
                let most = [60_000, 400_000, 3_000_000][f];
                step(&v, &format!("f{f}"), &mut models[f], &mut rng, n, most).await;
            }
            for (f, model) in models.iter().enumerate() {
                assert!(read(&v, &format!("f{f}"), OpenFlags::CREATE).await == *model, "f{f}");
            }
            models
        });
        w.unmount(&vfs);
        let image = w.medium();
        assert_e2fsck_clean(&image, setup.mib, &what);
        drop(vfs);
        w.end();
        let w = World::with_image(&setup, &image);
        let vfs = w.mount(&setup).expect("mounts again");
        let v = vfs.clone();
        w.run(async move {
            for (f, model) in models.iter().enumerate() {
                assert!(
                    read(&v, &format!("f{f}"), OpenFlags::READ).await == *model,
                    "{what}: f{f}"
                );
            }
        });
        drop((vfs, image));
        w.end();
        assert_nothing_lives();
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let setup = Setup::new("6.18");
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        let fd = v.open("f", DIRECT, 0o644).await.expect("opens");
        let odd = [Slice::pattern(1, 0, 700)];
        assert!(matches!(v.pwrite(fd, 0, &odd).await, Err(FsError::Invalid(_))));
        assert!(matches!(v.pwrite(fd, 100, &[Slice::zero(512)]).await, Err(FsError::Invalid(_))));
        for how in [Reserve::Collapse, Reserve::Insert] {
            // Of an empty file there is nothing to move.
            let e = v.fallocate(fd, how, 0, 4096).await.expect_err("no such range");
            assert_eq!(e.errno(), "EINVAL");
        }
        let none = v.fallocate(fd, Reserve::Punch, 0, 0).await;
        assert!(matches!(none, Err(FsError::Invalid(_))));
        let far = v.fallocate(fd, Reserve::Space { keep_size: false }, 1 << 60, 4096).await;
        assert_eq!(far, Err(FsError::TooBig));
        let all = v.fallocate(fd, Reserve::Space { keep_size: true }, 0, 1 << 30).await;
        assert_eq!(all, Err(FsError::NoSpace));
        v.ftruncate(fd, 0).await.expect("gives it back");
        v.sync().await.expect("syncs");
        assert_eq!(v.fstat(fd).await.expect("tells").blocks_512, 0);
        let reader = v.open("f", OpenFlags::READ, 0).await.expect("opens");
        let no = v.fallocate(reader, Reserve::Punch, 0, 4096).await;
        assert_eq!(no, Err(FsError::BadFile));
    });
    w.unmount(&vfs);
    assert_e2fsck_clean(&w.medium(), setup.mib, "after a full disk");
    drop(vfs);
    w.end();
    assert_nothing_lives();
}

/// What a block of a file may hold after a crash: the patterns written to it, oldest first, and how
/// many of them must not be lost.
#[derive(Clone, Default)]
struct History {
    seeds: Vec<u64>,
    durable: usize,
    /// It was made to read as zeroes after the last durable pattern.
    zeroed: bool,
}

type Histories = std::rc::Rc<std::cell::RefCell<BTreeMap<(u64, u64), History>>>;

const BS: u64 = 4096;
/// Crashes to look at, for each era.
const CRASHES: usize = 24;

/// Images of crashes, each with what may be found in it.
type Crashes = std::rc::Rc<std::cell::RefCell<Vec<(Medium, BTreeMap<(u64, u64), History>)>>>;

/// What is left if the power goes now, and each write that may be lost is with one chance in two.
fn crash(w: &wp_block::BlockQueue, now: wp_base::Time, rng: &mut Rng) -> Medium {
    let view = w.with_device(|d| d.crash_view(now));
    let mut medium = view.medium.clone();
    for unit in &view.loss {
        if rng.below(2) == 0 {
            unit.apply(&mut medium);
        }
    }
    medium
}

async fn writer(
    v: Vfs,
    (who, seed): (u64, u64),
    all: Histories,
    queue: std::rc::Rc<wp_block::BlockQueue>,
    crashes: Crashes,
) {
    let mut rng = Rng::stream(seed * 10 + who, "writer");
    let name = format!("w{who}");
    for n in 0..u64::MAX {
        let id = who * 1_000_000 + n;
        let direct = rng.below(3) == 0;
        let dsync = rng.below(5) == 0 && who > 0;
        let flags = OpenFlags { direct: direct && who > 0, dsync, ..OpenFlags::CREATE };
        let fd = v.open(&name, flags, 0o644).await.expect("opens");
        // The first never syncs: its data waits for the flusher, behind what the others sync.
        let lazy = who == 0;
        let (at, len) = (rng.below(60), 1 + rng.below(20));
        match rng.below(8) {
            0 => {
                let keep_size = rng.below(2) == 0;
                let how = Reserve::Space { keep_size };
                v.fallocate(fd, how, at * BS, len * BS).await.expect("reserves");
            }
            1 => {
                for b in at..at + len {
                    all.borrow_mut().entry((who, b)).or_default().zeroed = true;
                }
                let how =
                    if n % 2 == 0 { Reserve::Punch } else { Reserve::Zero { keep_size: true } };
                v.fallocate(fd, how, at * BS, len * BS).await.expect("zeroes");
            }
            _ if lazy => {
                // Every second block: many requests, which take the disk a while.
                for b in (at..at + 160).step_by(2) {
                    all.borrow_mut().entry((who, b)).or_default().seeds.push(id);
                    let data = Slice::pattern(id, b * BS, BS as u32);
                    v.pwrite(fd, b * BS, &[data]).await.expect("writes");
                }
            }
            _ => {
                let data: Vec<Slice> =
                    (at..at + len).map(|b| Slice::pattern(id, b * BS, BS as u32)).collect();
                for b in at..at + len {
                    all.borrow_mut().entry((who, b)).or_default().seeds.push(id);
                }
                v.pwrite(fd, at * BS, &data).await.expect("writes");
                if dsync {
                    for b in at..at + len {
                        let mut all = all.borrow_mut();
                        let h = all.entry((who, b)).or_default();
                        (h.durable, h.zeroed) = (h.seeds.len(), false);
                    }
                }
            }
        }
        if !lazy && rng.below(3) == 0 {
            let mut then = all.borrow().clone();
            if rng.below(2) == 0 { v.fsync(fd).await } else { v.fdatasync(fd).await }
                .expect("syncs");
            then.retain(|(w, _), h| *w == who && !h.zeroed);
            for (key, h) in then {
                let mut all = all.borrow_mut();
                all.entry(key).or_default().durable = h.seeds.len();
            }
            // The transaction is durable; others' data may still be on its way.
            if queue.in_flight() > 0 && crashes.borrow().len() < CRASHES {
                let image = crash(&queue, v.rt().now(), &mut rng);
                crashes.borrow_mut().push((image, all.borrow().clone()));
            }
        }
        v.close(fd).await.expect("closes");
        v.rt().sleep(Span::micros(rng.below(if lazy { 300_000 } else { 30_000 }))).await;
    }
}

/// Compares what a mount of `image` finds with what may be there.
fn judge(setup: &Setup, image: &Medium, all: &BTreeMap<(u64, u64), History>, what: &str) {
    let w = World::with_image(setup, image);
    let vfs = w.mount(setup).unwrap_or_else(|e| panic!("{what}: {e}"));
    for who in 0..3 {
        let v = vfs.clone();
        let got = w.run(async move {
            match v.open(&format!("w{who}"), OpenFlags::READ, 0).await {
                Ok(fd) => bytes(&v.pread(fd, 0, 1 << 30).await.expect("reads")),
                Err(_) => Vec::new(),
            }
        });
        for block in 0..230 {
            let none = History::default();
            let h = all.get(&(who, block)).unwrap_or(&none);
            let from = (block * BS) as usize;
            let is = got.get(from..from + BS as usize);
            let zero = is.is_none_or(|b| b.iter().all(|x| *x == 0));
            if zero && (h.durable == 0 || h.zeroed) {
                continue;
            }
            let b = is.unwrap_or_else(|| panic!("{what}: w{who} ends before block {block}"));
            let found = h
                .seeds
                .iter()
                .rposition(|s| Slice::pattern(*s, block * BS, BS as u32).to_vec() == b)
                .unwrap_or_else(|| {
                    panic!("{what}: w{who} block {block} is not what was ever written there")
                });
            assert!(found + 1 >= h.durable, "{what}: w{who} block {block} lost durable data");
        }
    }
    w.unmount(&vfs);
    assert_e2fsck_clean(&w.medium(), setup.mib, what);
    drop(vfs);
    w.end();
}

/// `buffered_iomap`: the length on disk moves when data has arrived, no commit waits for data, and
/// a length that grows over an unaligned end waits for the zeroes, not for the flusher.
#[test]
fn a_length_waits_for_its_data_and_no_commit_does() {
    let setup = Setup::new("next");
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        let other = v.open("other", OpenFlags::CREATE, 0o644).await.expect("opens");
        let fd = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
        let data = |at, n| [Slice::pattern(1, at, n)];
        v.pwrite(fd, 0, &data(0, 4096)).await.expect("writes");
        v.fsync(fd).await.expect("syncs");
        v.pwrite(fd, 4096, &data(4096, 6000)).await.expect("writes");
        v.fsync(other).await.expect("syncs");
        v.ftruncate(fd, 100).await.expect("cuts");
        v.ftruncate(fd, 9000).await.expect("grows");
        v.pwrite(fd, 20_000, &data(20_000, 100)).await.expect("writes");
        v.pwrite(other, 0, &[Slice::pattern(2, 0, 100)]).await.expect("writes");
        v.fsync(other).await.expect("syncs");
        assert_eq!(v.fstat(fd).await.expect("tells").size, 20_100);
        v.rt().sleep(Span::secs(40)).await;
        let mut model = vec![0; 20_100];
        model[..100].copy_from_slice(&Slice::pattern(1, 0, 100).to_vec());
        model[20_000..].copy_from_slice(&Slice::pattern(1, 20_000, 100).to_vec());
        v.fs().drop_caches();
        assert!(read(&v, "f", OpenFlags::READ).await == model);
    });
    let waits = vfs.fs().counters().into_iter().find(|(n, _)| *n == "ordered_waits");
    assert_eq!(waits, Some(("ordered_waits", 0)));
    w.unmount(&vfs);
    assert_e2fsck_clean(&w.medium(), setup.mib, "growth over an unaligned end");
    drop(vfs);
    w.end();
    assert_nothing_lives();
}

#[test]
fn no_crash_shows_what_stood_in_a_block_before_its_data() {
    for (i, era) in ["4.6", "5.10", "6.18", "next"].into_iter().enumerate() {
        let mut setup = Setup::new(era);
        setup.mib = 32;
        setup.features = Features::today();
        // Synchronous requests overtake the flusher's, and the disk does one at a time.
        setup.elevator = Some(wp_block::ElevatorKind::Cfq);
        setup.device_params = &[("latency_ns", 1_000_000), ("queue_depth", 1)];
        setup.eager_flusher = true;
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        // Every free block holds something that must not be seen.
        w.run(async move {
            let fd = v.open("old", OpenFlags::CREATE, 0o644).await.expect("opens");
            let mut at = 0;
            while v.pwrite(fd, at, &[Slice::pattern(99, at, 65_536)]).await == Ok(65_536) {
                at += 65_536;
            }
            v.close(fd).await.expect("closes");
            v.sync().await.expect("syncs");
            v.unlink("old").await.expect("removes");
            v.sync().await.expect("syncs");
            v.rt().sleep(Span::secs(40)).await;
        });
        let (all, crashes) = (Histories::default(), Crashes::default());
        for who in 0..3 {
            let ids = (who, i as u64);
            let task = writer(vfs.clone(), ids, all.clone(), w.queue.clone(), crashes.clone());
            drop(w.rt.spawn(format!("writer-{who}"), task));
        }
        let mut rng = Rng::stream(i as u64, "cuts");
        for _ in 0..8 {
            w.rt.run_until(w.rt.now() + Span::micros(rng.below(500_000)));
            let image = crash(&w.queue, w.rt.now(), &mut rng);
            crashes.borrow_mut().push((image, all.borrow().clone()));
        }
        for _ in 0..100 {
            w.rt.run_until(w.rt.now() + Span::millis(100));
        }
        let taken = std::mem::take(&mut *crashes.borrow_mut());
        assert!(taken.len() >= CRASHES, "only {} crashes", taken.len());
        for (cut, (image, then)) in taken.iter().enumerate() {
            judge(&setup, image, then, &format!("era {era}, crash {cut}"));
        }
        drop(taken);
        drop((vfs, all, crashes));
        w.end();
    }
    assert_nothing_lives();
}
