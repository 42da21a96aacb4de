//! iJournaling: what several tasks have synced is there after a power failure, in the life of a
//! file system after that too, and e2fsck finds nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::{FsResult, Rng, Span};
use wp_ext4::disk::ijournal::Begin;
use wp_ext4::mkfs::Features;
use wp_medium::{Medium, Slice};
use wp_vfs::{OpenFlags, Vfs};

use crate::support::{Setup, World, assert_e2fsck_clean, assert_nothing_lives};

const BLOCK: u64 = 4096;

/// Files as their last fsync left them, unless something began to happen to them since: blocks, and
/// the seed of the contents.
type Synced = Rc<RefCell<BTreeMap<String, (u64, u64)>>>;

/// Makes, appends to, renames and removes files, and syncs most of them.
async fn task(v: Vfs, number: u64, mut rng: Rng, synced: Synced) -> FsResult<()> {
    for round in 0..12 {
        let seed = number * 100 + round;
        let mut name = format!("d/{number}-{round}");
        let fd = v.open(&name, OpenFlags::CREATE, 0o644).await?;
        let blocks = 1 + rng.below(3);
        for n in 0..blocks {
            v.pwrite(fd, n * BLOCK, &[Slice::pattern(seed, n * BLOCK, BLOCK as u32)]).await?;
            if n == 0 || rng.below(2) == 0 {
                v.fsync(fd).await?;
                synced.borrow_mut().insert(name.clone(), (n + 1, seed));
            }
        }
        match rng.below(4) {
            0 => {
                let new = format!("d/{number}-{round}-renamed");
                synced.borrow_mut().remove(&name);
                v.rename(&name, &new).await?;
                name = new;
                v.fsync(fd).await?;
                synced.borrow_mut().insert(name.clone(), (blocks, seed));
            }
            1 => {
                synced.borrow_mut().remove(&name);
                v.unlink(&name).await?;
            }
            2 => v.mkdir(&format!("d/{number}-{round}-dir"), 0o755).await?,
            _ => {}
        }
        v.close(fd).await?;
    }
    Ok(())
}

/// Some time of three such tasks; then the power fails. What the medium holds, and what was synced.
fn life(setup: &Setup, image: &Medium, (seed, life): (u64, u64)) -> (Medium, Synced) {
    let w = World::with_image(setup, image);
    let v = w.mount(setup).expect("mounts");
    let synced = Synced::default();
    let mut rng = Rng::stream(seed, "power failures");
    let after = Span::micros(200 + rng.below(6000));
    let (v2, s) = (v.clone(), synced.clone());
    w.run(async move {
        let dir = format!("d{life}");
        v2.mkdir(&dir, 0o755).await.expect("makes");
        if life == 0 {
            v2.mkdir("d", 0o755).await.expect("makes");
        }
        // The first commit of a mount is one of jbd2's.
        v2.sync().await.expect("syncs");
        for n in 0..3 {
            let own = Rng::stream(seed * 3 + n, "files");
            let one = task(v2.clone(), life * 10 + n, own, s.clone());
            drop(v2.rt().spawn(format!("task {n}"), async move { drop(one.await) }));
        }
        v2.rt().clone().sleep(after).await;
    });
    let left = w.queue.with_device(|d| d.crash_view(w.rt.now()).medium);
    let synced_then = Rc::new(RefCell::new(synced.borrow().clone()));
    drop(v);
    w.rt.cut();
    w.end();
    (left, synced_then)
}

/// Recovers and looks: the image of a clean unmount.
fn recovered(setup: &Setup, left: &Medium, synced: &Synced, what: &str) -> Medium {
    let w = World::with_image(setup, left);
    let v = w.mount(setup).unwrap_or_else(|e| panic!("{what}: {e}"));
    let (v2, files, said) = (v.clone(), synced.borrow().clone(), what.to_owned());
    w.run(async move {
        for (name, (blocks, seed)) in files {
            let fd = v2.open(&name, OpenFlags::READ, 0).await;
            let fd = fd.unwrap_or_else(|e| panic!("{said}: {name}: {e}"));
            for n in 0..blocks {
                let got = Slice::concat(&v2.pread(fd, n * BLOCK, BLOCK).await.expect("reads"));
                let want = Slice::pattern(seed, n * BLOCK, BLOCK as u32).to_vec();
                assert!(got == want, "{said}: block {n} of {name}");
            }
            v2.close(fd).await.expect("closes");
        }
    });
    w.unmount(&v);
    let image = w.medium();
    assert_e2fsck_clean(&image, setup.mib, what);
    drop(v);
    w.end();
    image
}

/// Blocks with which i-transactions begin.
fn i_transactions(image: &Medium, mib: u64) -> usize {
    let blocks = (mib << 20) / BLOCK;
    let begins = |n: &u64| {
        let mut head = [0; Begin::BYTES];
        image.read_bytes(n * BLOCK, &mut head);
        Begin::of(&head).is_some()
    };
    (0..blocks).filter(begins).count()
}

/// Two power failures. Files that were synced before the first, and i-transactions.
fn two_lives(setup: &Setup, seed: u64) -> (usize, usize) {
    let (left, synced) = life(setup, &setup.image(), (seed, 0));
    let image = recovered(setup, &left, &synced, &format!("seed {seed}"));
    // The areas still hold the i-transactions of the first life.
    let (later, again) = life(setup, &image, (seed + 100, 1));
    again.borrow_mut().extend(synced.borrow().clone());
    recovered(setup, &later, &again, &format!("seed {seed}, second life"));
    let files = synced.borrow().len();
    (files, i_transactions(&left, setup.mib))
}

#[test]
fn what_was_synced_on_several_cores_is_there_after_two_power_failures() {
    let features = Features::today().set("fast_commit", true).expect("a feature");
    let setup = Setup { features, ijournal: true, ..Setup::new("6.12") };
    let (mut files, mut logged) = (0, 0);
    for seed in 0..24 {
        let (synced, begun) = two_lives(&setup, seed);
        (files, logged) = (files + synced, logged + begun);
        assert_nothing_lives();
    }
    assert!(files > 50 && logged > 50, "{files} files, {logged} i-transactions");
}

#[test]
fn a_mount_that_does_not_know_them_refuses_a_log_with_i_transactions() {
    let features = Features::today().set("fast_commit", true).expect("a feature");
    let setup = Setup { features, ijournal: true, ..Setup::new("6.12") };
    let (left, _) = life(&setup, &setup.image(), (5, 0));
    let other = Setup { ijournal: false, ..setup };
    let w = World::with_image(&other, &left);
    let refused = w.mount(&other).err().expect("refused").to_string();
    assert!(refused.contains("jbd2 features"), "{refused}");
    w.end();
}
