//! `data=journal` and `data=writeback`: what is written is read back, what is left is clean, and
//! under `data=journal` a crash shows the files as they once were together.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::support::{Setup, World, assert_e2fsck_clean, assert_nothing_lives};
use wp_base::{Rng, Span, Time};
use wp_ext4::fs::DataMode;
use wp_ext4::mkfs::Features;
use wp_medium::Slice;
use wp_vfs::{OpenFlags, Vfs};

/// Contents of all files, by name.
type Files = BTreeMap<String, Vec<u8>>;

/// What a program did: the files after each step, and the step that was durable last.
#[derive(Default)]
struct History {
    states: Vec<Files>,
    durable: usize,
}

impl History {
    fn step(&mut self, change: impl FnOnce(&mut Files)) {
        let mut files = self.states.last().cloned().unwrap_or_default();
        change(&mut files);
        self.states.push(files);
    }
}

async fn read_all(v: &Vfs) -> Files {
    let mut out = Files::new();
    for entry in v.read_dir("/").await.expect("lists") {
        let name = String::from_utf8(entry.name).expect("our names");
        if name == "lost+found" {
            continue;
        }
        let fd = v.open(&name, OpenFlags::READ, 0).await.expect("opens");
        let got = v.pread(fd, 0, 1 << 30).await.expect("reads");
        v.close(fd).await.expect("closes");
        out.insert(name, Slice::concat(&got));
    }
    out
}

/// Bytes for one write; one in four begins as the journal's own blocks do.
fn contents(rng: &mut Rng, step: u64, len: usize) -> Slice {
    let mut bytes = Slice::pattern(step, 0, len as u32).to_vec();
    if rng.below(4) == 0 && len >= 4 {
        bytes[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
    }
    Slice::from_bytes(&bytes)
}

/// Writes inside single blocks, cuts, removals and syncs; every step is one change that a
/// transaction has whole.
async fn program(v: Vfs, block: u64, seed: u64, steps: u64, h: Rc<RefCell<History>>) {
    let mut rng = Rng::stream(seed, "data modes");
    h.borrow_mut().step(|_| {});
    for step in 0..steps {
        let name = format!("f{}", rng.below(5));
        let known = h.borrow().states.last().expect("one").contains_key(&name);
        match rng.below(12) {
            0 if known => {
                let size = h.borrow().states.last().expect("one")[&name].len() as u64;
                let to = rng.below(size + 1);
                h.borrow_mut().step(|f| f.get_mut(&name).expect("known").truncate(to as usize));
                v.truncate(&name, to).await.expect("cuts");
            }
            1 if known => {
                h.borrow_mut().step(|f| drop(f.remove(&name)));
                v.unlink(&name).await.expect("removes");
            }
            2 => {
                let at = h.borrow().states.len() - 1;
                v.sync().await.expect("syncs");
                h.borrow_mut().durable = at;
            }
            3 => v.rt().sleep(Span::millis(rng.below(9000))).await,
            _ => {
                if !known {
                    h.borrow_mut().step(|f| drop(f.insert(name.clone(), Vec::new())));
                }
                let fd = v.open(&name, OpenFlags::CREATE, 0o644).await.expect("opens");
                let from = if rng.below(2) == 0 { 0 } else { rng.below(block) };
                let len = 1 + rng.below(block - from);
                let at = rng.below(30) * block + from;
                let data = contents(&mut rng, step, len as usize);
                h.borrow_mut().step(|f| {
                    let file = f.get_mut(&name).expect("made");
                    let end = (at + len) as usize;
                    file.resize(file.len().max(end), 0);
                    file[at as usize..end].copy_from_slice(&data.to_vec());
                });
                v.pwrite(fd, at, &[data]).await.expect("writes");
                if rng.below(5) == 0 {
                    let at = h.borrow().states.len() - 1;
                    v.fsync(fd).await.expect("syncs");
                    h.borrow_mut().durable = at;
                }
                v.close(fd).await.expect("closes");
            }
        }
    }
}

fn setups() -> Vec<Setup> {
    let mut all = Vec::new();
    let without_extents = Features::era_2012().set("extent", false).expect("a feature");
    for (era, block_size, data, features) in [
        ("4.6", 4096, DataMode::Journal, Features::era_2012()),
        ("6.1", 1024, DataMode::Journal, Features::today()),
        ("6.18", 4096, DataMode::Journal, Features::today()),
        ("6.18", 1024, DataMode::Journal, Features::era_2012()),
        ("6.18", 1024, DataMode::Journal, without_extents),
        ("3.4", 4096, DataMode::Writeback, Features::era_2012()),
        ("6.18", 4096, DataMode::Writeback, Features::today()),
    ] {
        all.push(Setup { block_size, data, features, ..Setup::new(era) });
    }
    all
}

#[test]
fn what_is_written_in_every_mode_is_there_afterwards() {
    for setup in setups() {
        for seed in 0..4 {
            let w = World::fresh(&setup);
            let vfs = w.mount(&setup).expect("mounts");
            let h = Rc::new(RefCell::new(History::default()));
            let (v, hist) = (vfs.clone(), h.clone());
            let block = u64::from(setup.block_size);
            w.run(async move { program(v, block, seed, 400, hist).await });
            let want = h.borrow().states.last().expect("steps").clone();
            let v = vfs.clone();
            assert!(w.run(async move { read_all(&v).await }) == want, "in memory");
            w.unmount(&vfs);
            drop(vfs);
            let image = w.medium();
            w.end();
            let what = format!("{} {:?} seed {seed}", setup.era, setup.data);
            assert_e2fsck_clean(&image, setup.mib, &what);
            let again = World::with_image(&setup, &image);
            let vfs = again.mount(&setup).expect("mounts again");
            let v = vfs.clone();
            assert!(again.run(async move { read_all(&v).await }) == want, "{what}: on disk");
            drop(vfs);
            again.end();
        }
    }
    assert_nothing_lives();
}

#[test]
fn under_data_journal_a_crash_shows_all_files_as_they_were_at_one_moment() {
    for setup in setups().into_iter().filter(|s| s.data == DataMode::Journal) {
        for seed in 10..13 {
            let w = World::fresh(&setup);
            let vfs = w.mount(&setup).expect("mounts");
            let h = Rc::new(RefCell::new(History::default()));
            let (v, hist) = (vfs.clone(), h.clone());
            let block = u64::from(setup.block_size);
            drop(w.rt.spawn("program", async move { program(v, block, seed, 500, hist).await }));
            let mut rng = Rng::stream(seed, "cuts");
            let mut at = Time::ZERO;
            for cut in 0..14 {
                at += Span::micros(rng.below(25_000_000));
                w.rt.run_until(at);
                let view = w.queue.with_device(|d| d.crash_view(at));
                let mut medium = view.medium.clone();
                for unit in &view.loss {
                    if rng.below(2) == 0 {
                        unit.apply(&mut medium);
                    }
                }
                let what = format!("{} {} seed {seed} cut {cut}", setup.era, setup.block_size);
                let r = World::with_image(&setup, &medium);
                let vfs = r.mount(&setup).unwrap_or_else(|e| panic!("{what}: {e}"));
                let v = vfs.clone();
                let found = r.run(async move { read_all(&v).await });
                r.unmount(&vfs);
                drop(vfs);
                let image = r.medium();
                r.end();
                assert_e2fsck_clean(&image, setup.mib, &what);
                let h = h.borrow();
                let possible = &h.states[h.durable.min(h.states.len())..];
                assert!(
                    possible.contains(&found) || (h.states.is_empty() && found.is_empty()),
                    "{what}: none of the {} states since step {}",
                    possible.len(),
                    h.durable
                );
            }
            drop(vfs);
            w.end();
        }
    }
    assert_nothing_lives();
}
