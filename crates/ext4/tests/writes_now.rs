//! Writes that are done at once, where CPU time is not modelled, are the same as those that may
//! wait: the same random calls, in both ways, leave the same bytes on the device at the same times.

use crate::support::{Setup, World, assert_nothing_lives};
use wp_base::{Rng, Span};
use wp_medium::Slice;
use wp_vfs::{OpenFlags, Vfs};

/// One run: what each call answered and when, what the journal counted, and what the device holds.
type Run = (Vec<String>, Vec<(&'static str, u64)>, Vec<(u64, Slice)>);

/// One random call on `files`, and what it answered.
async fn step(v: &Vfs, rng: &mut Rng, n: u64, append: bool) -> String {
    let name = format!("f{}", rng.below(3));
    let flags = OpenFlags { append, ..OpenFlags::CREATE };
    let fd = v.open(&name, flags, 0o644).await.expect("opens");
    let size = v.fstat(fd).await.expect("is there").size;
    let block = rng.below(size / 4096 + 2) * 4096;
    let out = match rng.below(16) {
        0 => format!("{:?}", v.fsync(fd).await),
        1 => format!("{:?}", v.ftruncate(fd, rng.below(size + 5000)).await),
        2 => format!("{:?}", v.unlink(&name).await),
        3 => {
            v.rt().sleep(Span::micros(rng.below(9000))).await;
            String::new()
        }
        4 => format!(
            "{:?}",
            v.pwrite(fd, block + rng.below(4096), &[Slice::pattern(n, 0, 700)]).await
        ),
        5 => format!("{:?}", v.write(fd, &[Slice::pattern(n, 0, 9000)]).await),
        6 => format!("{:?}", v.pread(fd, 0, size).await.map(|got| got.len())),
        _ => format!("{:?}", v.pwrite(fd, block, &[Slice::pattern(n, 0, 4096)]).await),
    };
    v.close(fd).await.expect("closes");
    format!("{} {out} {:?}", v.rt().now().0, v.stat(&name).await.map(|a| (a.size, a.blocks_512)))
}

fn run(setup: &Setup) -> Run {
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    let (v, seed) = (vfs.clone(), setup.seed);
    let told = w.run(async move {
        let mut rng = Rng::stream(seed, "writes");
        let mut told = Vec::new();
        for n in 0..1500 {
            told.push(step(&v, &mut rng, n, n % 7 == 0).await);
        }
        v.sync().await.expect("syncs");
        told
    });
    let counters = vfs.fs().counters();
    w.unmount(&vfs);
    let medium = w.medium();
    let mut held = Vec::new();
    for (at, sectors) in medium.runs() {
        held.extend(medium.read(at, sectors as u32).into_iter().map(|slice| (at.0, slice)));
    }
    drop((vfs, medium));
    w.end();
    (told, counters, held)
}

#[test]
fn a_write_that_need_not_wait_is_the_same_as_one_that_may() {
    for (era, seed) in [("2.6.39", 1), ("3.10", 2), ("4.6", 3), ("5.10", 4), ("6.18", 5)] {
        for (device, nodelalloc) in [("fixed", false), ("ssd-128", false), ("fixed", true)] {
            let setup = Setup { seed, device, nodelalloc, ..Setup::new(era) };
            let at_once = run(&setup);
            let may_wait = run(&Setup { modelled: true, ..setup });
            let what = format!("{era} on {device}, nodelalloc {nodelalloc}");
            let differs = at_once.0.iter().zip(&may_wait.0).find(|(a, b)| a != b);
            assert_eq!(differs, None, "{what}");
            assert_eq!(at_once.1, may_wait.1, "{what}");
            assert_eq!(at_once.2, may_wait.2, "{what}");
        }
    }
    assert_nothing_lives();
}
