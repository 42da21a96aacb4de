//! Extents that files share: random programs of clones, dedupes and copies among writes, beside a
//! model of bytes; answers, contents, what a power cut after an fsync leaves, and what checks of
//! the images say. And each rule by itself.

use std::rc::Rc;

use wp_base::{FsError, FsResult, Rng, Span};
use wp_block::BlockQueue;
use wp_btrfs::disk::CsumKind;
use wp_btrfs::fs::MountOptions;
use wp_medium::{Medium, Slice};
use wp_rt::Rt;
use wp_vfs::{Fd, OpenFlags, Reserve, Vfs};

use crate::mounted::{self, Setup, World, assert_nothing_lives};

const BLOCK: u64 = 4096;
/// Files of a program.
const FILES: usize = 3;

/// What must be on the device after a cut.
struct Cut {
    medium: Medium,
    path: String,
    data: Vec<u8>,
    what: String,
}

struct Program<'a> {
    v: &'a Vfs,
    rng: Rng,
    fds: Vec<Fd>,
    files: Vec<Vec<u8>>,
    disk: Option<(Rc<BlockQueue>, Rt)>,
    cuts: Vec<Cut>,
    /// Clones, dedupes and copies that shared something.
    shared: u32,
}

/// The errno that a clone answers. `__generic_remap_file_range_prep`, of ranges that do not
/// overflow.
fn clone_answer(
    (source, from): (&[u8], u64),
    (target, to): (&[u8], u64),
    len: u64,
    is_same: bool,
) -> Result<u64, &'static str> {
    let (source, target) = (source.len() as u64, target.len() as u64);
    if len == 0 && from == source {
        return Ok(0);
    }
    if !from.is_multiple_of(BLOCK) || !to.is_multiple_of(BLOCK) || from >= source {
        return Err("EINVAL");
    }
    let n = if len == 0 { source - from } else { len };
    let to_end = from + n == source;
    if from + n > source || !n.is_multiple_of(BLOCK) && !to_end {
        return Err("EINVAL");
    }
    let covered = n.next_multiple_of(BLOCK);
    if is_same && to + covered > from && to < from + covered {
        return Err("EINVAL");
    }
    if !n.is_multiple_of(BLOCK) && to + n < target {
        return Err("EINVAL");
    }
    Ok(n)
}

impl Program<'_> {
    fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }

    fn write_model(&mut self, f: usize, at: u64, data: &[u8]) {
        let end = at as usize + data.len();
        if data.is_empty() {
            return;
        }
        let file = &mut self.files[f];
        if file.len() < end {
            file.resize(end, 0);
        }
        file[at as usize..end].copy_from_slice(data);
    }

    async fn write(&mut self, f: usize, at: u64, len: u64) {
        let mut data = vec![0; len as usize];
        self.rng.fill(&mut data);
        let done = self.v.pwrite(self.fds[f], at, &pages(&data)).await;
        assert_eq!(done, Ok(len));
        self.write_model(f, at, &data);
    }

    fn ranges(&mut self) -> (usize, u64, usize, u64, u64) {
        let (s, t) = (self.below(FILES as u64) as usize, self.below(FILES as u64) as usize);
        let (source, target) = (self.files[s].len() as u64, self.files[t].len() as u64);
        let mut from = self.below(source / BLOCK + 1) * BLOCK;
        let mut to = self.below(target / BLOCK + 3) * BLOCK;
        let len = match self.below(6) {
            0 => 0,
            1 => source.saturating_sub(from),
            2 => self.below(20_000),
            _ => (1 + self.below(8)) * BLOCK,
        };
        match self.below(30) {
            0 => from += 100,
            1 => to += 512,
            _ => {}
        }
        (s, from, t, to, len)
    }

    async fn reflink(&mut self, what: &str) {
        let (s, from, t, to, len) = self.ranges();
        let want = clone_answer((&self.files[s], from), (&self.files[t], to), len, s == t);
        let got = self.v.clone_range((self.fds[s], from), (self.fds[t], to), len).await;
        let what = format!("{what}: clone {s} {from} {t} {to} {len}");
        assert_eq!(got.as_ref().err().map(FsError::errno), want.err(), "{what}");
        if let Ok(n) = want {
            let data = self.files[s][from as usize..(from + n) as usize].to_vec();
            self.write_model(t, to, &data);
            self.shared += u32::from(n > 0);
        }
    }

    async fn dedupe(&mut self, what: &str) {
        let (s, from, t, to, len) = self.ranges();
        let what = format!("{what}: dedupe {s} {from} {t} {to} {len}");
        let at =
            |f: &[u8], at: u64, n: u64| f.get(at as usize..(at + n) as usize).map(<[u8]>::to_vec);
        if self.below(2) == 0 && s != t && len > 0 {
            // Equal bytes, mostly.
            if let Some(data) = at(&self.files[s], from, len) {
                let done = self.v.pwrite(self.fds[t], to, &pages(&data)).await;
                assert_eq!(done, Ok(len));
                self.write_model(t, to, &data);
            }
        }
        let same = at(&self.files[s], from, len) == at(&self.files[t], to, len);
        let got = self.v.dedupe_range((self.fds[s], from), (self.fds[t], to), len).await;
        match got {
            Ok(n) => {
                assert_eq!(n, len, "{what}");
                // Less than a block within a file is nothing to share, and not compared.
                assert!(same || len < BLOCK || !len.is_multiple_of(BLOCK), "{what}");
                self.shared += u32::from(n >= BLOCK);
            }
            Err(FsError::Differs) => assert!(!same, "{what}"),
            Err(e) => assert_eq!(e.errno(), "EINVAL", "{what}"),
        }
    }

    async fn copy(&mut self, what: &str) {
        let (s, from, t, to, len) = self.ranges();
        let what = format!("{what}: copy {s} {from} {t} {to} {len}");
        let got = self.v.copy_file_range((self.fds[s], from), (self.fds[t], to), len).await;
        let n = len.min((self.files[s].len() as u64).saturating_sub(from));
        if s == t && to + n > from && to < from + n {
            assert_eq!(got.err().map(|e| e.errno()), Some("EINVAL"), "{what}");
            return;
        }
        let got = got.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(got <= n && (got > 0 || n == 0), "{what}: {got} of {n}");
        if got == 0 {
            return;
        }
        let aligned = from.is_multiple_of(BLOCK) && to.is_multiple_of(BLOCK);
        self.shared += u32::from(aligned && got >= BLOCK);
        let data = self.files[s][from as usize..(from + got) as usize].to_vec();
        self.write_model(t, to, &data);
    }

    async fn step(&mut self, step: u32) {
        let f = self.below(FILES as u64) as usize;
        let size = self.files[f].len() as u64;
        let what = format!("step {step}");
        match self.below(100) {
            0..25 => {
                let (at, len) = (self.below(size + 9000), 1 + self.below(30_000));
                let grain = if self.below(2) == 0 { 1 } else { BLOCK };
                self.write(f, at / grain * grain, len.next_multiple_of(grain)).await;
            }
            25..50 => self.reflink(&what).await,
            50..58 => self.dedupe(&what).await,
            58..66 => self.copy(&what).await,
            66..72 => {
                let len = self.below(size + 6000);
                self.v.ftruncate(self.fds[f], len).await.expect("cuts");
                self.files[f].resize(len as usize, 0);
            }
            72..77 => {
                let (at, len) = (self.below(size + 1), 1 + self.below(20_000));
                self.v.fallocate(self.fds[f], Reserve::Punch, at, len).await.expect("punches");
                let end = (at + len).min(size);
                if at < end {
                    self.files[f][at as usize..end as usize].fill(0);
                }
            }
            77..80 => {
                let (at, len) = (self.below(size + 9000), 1 + self.below(20_000));
                let how = Reserve::Space { keep_size: true };
                self.v.fallocate(self.fds[f], how, at, len).await.expect("reserves");
            }
            80..83 => {
                // A file that goes while others have its extents.
                let path = format!("f{f}");
                self.v.unlink(&path).await.expect("goes");
                self.v.close(self.fds[f]).await.expect("closes");
                self.fds[f] = self.v.open(&path, OpenFlags::CREATE, 0o644).await.expect("opens");
                self.files[f].clear();
            }
            83..86 => self.v.fs().drop_caches(),
            86..90 => {
                let fd = self.v.open("/", OpenFlags::READ, 0).await.expect("opens");
                self.v.syncfs(fd).await.expect("syncs");
                self.v.close(fd).await.expect("closes");
            }
            _ => {
                self.v.fsync(self.fds[f]).await.expect("syncs");
                if let Some((queue, rt)) = self.disk.as_ref().filter(|_| self.cuts.len() < 25) {
                    let now = rt.now();
                    let medium = queue.with_device(|d| d.crash_view(now).medium);
                    let (path, data) = (format!("f{f}"), self.files[f].clone());
                    self.cuts.push(Cut { medium, path, data, what });
                }
            }
        }
        if self.below(8) == 0 {
            self.compare(step).await;
        }
    }

    async fn compare(&self, step: u32) {
        for (f, data) in self.files.iter().enumerate() {
            let got = contents(self.v, self.fds[f]).await.expect("reads");
            assert_same(&got, data, &format!("step {step}, f{f}"));
        }
    }
}

fn assert_same(got: &[u8], want: &[u8], what: &str) {
    let wrong = got.iter().zip(want).position(|(a, b)| a != b);
    assert_eq!((wrong, got.len()), (None, want.len()), "{what}: wrong byte, length");
}

fn pages(data: &[u8]) -> Vec<Slice> {
    data.chunks(4096).map(Slice::from_bytes).collect()
}

async fn contents(v: &Vfs, fd: Fd) -> FsResult<Vec<u8>> {
    v.pread(fd, 0, 1 << 40).await.map(|got| Slice::concat(&got))
}

/// Plays a program; answers how often something was shared.
fn play(setup: &Setup, seed: u64, steps: u32, pause: u64, cuts: bool) -> u32 {
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    let (v, rt, queue) = (vfs.clone(), w.rt.clone(), w.queue.clone());
    let (files, cuts, shared) = w.run(async move {
        let rng = Rng::stream(seed, "reflinks");
        let disk = cuts.then(|| (queue, rt.clone()));
        let mut p = Program {
            v: &v,
            rng,
            fds: Vec::new(),
            files: vec![Vec::new(); FILES],
            disk,
            cuts: Vec::new(),
            shared: 0,
        };
        for f in 0..FILES {
            let path = format!("f{f}");
            p.fds.push(p.v.open(&path, OpenFlags::CREATE, 0o644).await.expect("makes"));
        }
        for step in 0..steps {
            p.step(step).await;
            rt.sleep(Span::millis(pause)).await;
        }
        p.compare(steps).await;
        for fd in std::mem::take(&mut p.fds) {
            p.v.close(fd).await.expect("closes");
        }
        (p.files, p.cuts, p.shared)
    });
    w.unmount(&vfs);
    w.judge(setup, &format!("seed {seed}"));
    drop(vfs);
    let medium = w.medium();
    w.end();
    let whole = files.into_iter().enumerate().map(move |(f, data)| {
        let (path, what) = (format!("f{f}"), "unmounted".to_owned());
        Cut { medium: medium.clone(), path, data, what }
    });
    for cut in cuts.into_iter().chain(whole) {
        let what = format!("seed {seed}, {} of {}", cut.what, cut.path);
        mounted::judge(&cut.medium, setup.mib, &what);
        let w = World::empty(setup);
        w.load(&cut.medium);
        let vfs = w.mount(setup).unwrap_or_else(|e| panic!("{what}: {e}"));
        let v = vfs.clone();
        let say = what.clone();
        w.run(async move {
            let fd = v.open(&cut.path, OpenFlags::READ, 0).await;
            let fd = fd.unwrap_or_else(|e| panic!("{say}: {e}"));
            let got = contents(&v, fd).await.unwrap_or_else(|e| panic!("{say}: {e}"));
            assert_same(&got, &cut.data, &say);
            v.close(fd).await.expect("closes");
        });
        w.unmount(&vfs);
        w.judge(setup, &what);
        drop(vfs);
        w.end();
    }
    assert_nothing_lives();
    shared
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("BTRFS_PROGRAMS").ok().and_then(|s| s.parse().ok());
    0..asked.unwrap_or(default)
}

#[test]
fn files_that_share_extents_are_as_in_the_model() {
    let mut shared = 0;
    for seed in seeds(6) {
        shared += play(&Setup::new(), seed, 150, 0, false);
        shared += play(&Setup::new(), 100 + seed, 120, 900, false);
    }
    assert!(shared > 100, "something is shared: {shared}");
}

#[test]
fn what_was_synced_of_shared_extents_survives_a_cut() {
    let setup = Setup { device: "ssd-128", ..Setup::new() };
    let mut shared = 0;
    for seed in seeds(3) {
        shared += play(&setup, 200 + seed, 150, 0, true);
        shared += play(&setup, 300 + seed, 150, 700, true);
    }
    assert!(shared > 50, "something is shared: {shared}");
}

#[test]
fn other_shapes_and_options_share_extents_too() {
    let mount = Setup::new().mount;
    let setups = [
        Setup { node_bytes: 4096, ..Setup::new() },
        Setup { dup: false, csum: CsumKind::Xxhash64, ..Setup::new() },
        Setup { mount: MountOptions { datacow: false, ..mount.clone() }, ..Setup::new() },
        Setup { mount: MountOptions { datasum: false, max_inline: 0, ..mount }, ..Setup::new() },
    ];
    for (n, setup) in setups.iter().enumerate() {
        let mut shared = 0;
        for seed in seeds(2) {
            let setup = Setup { device: "ssd-128", ..setup.clone() };
            shared += play(&setup, 400 + 1000 * n as u64 + seed, 120, 0, true);
        }
        assert!(shared > 10, "setup {n} shares something: {shared}");
    }
}

/// Plays calls on a fresh file system; the image is sound then.
fn with_fresh<F: Future<Output = ()> + 'static>(setup: &Setup, f: impl FnOnce(Vfs) -> F) {
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    w.run(f(vfs.clone()));
    w.unmount(&vfs);
    w.judge(setup, "after the calls");
    drop(vfs);
    w.end();
}

async fn file(v: &Vfs, path: &str, bytes: u64, seed: u64) -> Fd {
    let fd = v.open(path, OpenFlags::CREATE, 0o644).await.expect("makes");
    if bytes > 0 {
        let data = Slice::pattern(seed, 0, bytes as u32);
        assert_eq!(v.pwrite(fd, 0, &[data]).await, Ok(bytes));
    }
    fd
}

#[test]
fn a_clone_uses_no_space_and_a_copy_of_whole_blocks_is_one() {
    with_fresh(&Setup::new(), |v| async move {
        let a = file(&v, "a", 1 << 20, 1).await;
        v.fsync(a).await.expect("syncs");
        let free = |v: &Vfs| {
            let fs = v.fs().clone();
            async move { fs.stat_fs().await.expect("answers").blocks_available }
        };
        let before = free(&v).await;
        let b = file(&v, "b", 0, 0).await;
        v.clone_range((a, 0), (b, 0), 0).await.expect("shares");
        let c = file(&v, "c", 0, 0).await;
        assert_eq!(v.copy_file_range((a, 0), (c, 0), 1 << 20).await, Ok(1 << 20));
        assert_eq!(free(&v).await, before, "no data was written");
        for path in ["b", "c"] {
            let attr = v.stat(path).await.expect("it is there");
            assert_eq!((attr.size, attr.blocks_512), (1 << 20, 2048), "{path}");
        }
        // Within blocks the bytes are copied, and need a place.
        let d = file(&v, "d", 0, 0).await;
        assert_eq!(v.copy_file_range((a, 100), (d, 0), 8192).await, Ok(8192));
        assert!(free(&v).await < before);
        // Of a range that ends within a block, the whole blocks are shared.
        let e = file(&v, "e", 0, 0).await;
        assert_eq!(v.copy_file_range((a, 0), (e, 0), 10_000).await, Ok(8192));
        for fd in [a, b, c, d, e] {
            v.close(fd).await.expect("closes");
        }
    });
}

#[test]
fn calls_answer_as_in_linux() {
    with_fresh(&Setup::new(), |v| async move {
        let a = file(&v, "a", 10_000, 1).await;
        let b = file(&v, "b", 16_384, 2).await;
        let end = file(&v, "end", 4096, 3).await;
        let empty = file(&v, "empty", 0, 0).await;
        v.mkdir("d", 0o755).await.expect("makes");
        let d = v.open("d", OpenFlags::READ, 0).await.expect("opens");
        let readable = v.open("b", OpenFlags::READ, 0).await.expect("opens");
        let how = OpenFlags { append: true, ..OpenFlags::WRITE };
        let appends = v.open("b", how, 0).await.expect("opens");
        let clones = [
            // Not at the begin of a block; not of whole blocks; beyond the end.
            ((a, 100), (b, 0), 4096, Some("EINVAL")),
            ((a, 0), (b, 100), 4096, Some("EINVAL")),
            ((a, 0), (b, 0), 5000, Some("EINVAL")),
            ((a, 0), (b, 0), 12_288, Some("EINVAL")),
            ((a, 12_288), (b, 0), 4096, Some("EINVAL")),
            ((a, 12_288), (b, 0), 0, Some("EINVAL")),
            ((a, u64::MAX - 4095), (b, 0), 4096, Some("EINVAL")),
            // The last block of the source, which is not whole, into the middle of the target.
            ((a, 8192), (b, 0), 0, Some("EINVAL")),
            // Over itself.
            ((b, 0), (b, 4096), 8192, Some("EINVAL")),
            ((a, 0), (d, 0), 4096, Some("EISDIR")),
            ((d, 0), (a, 0), 4096, Some("EISDIR")),
            ((a, 0), (readable, 0), 4096, Some("EBADF")),
            ((a, 0), (appends, 0), 4096, Some("EBADF")),
            ((a, 0), (Fd(999), 0), 4096, Some("EBADF")),
            // Nothing to do.
            ((empty, 0), (b, 0), 0, None),
            ((b, 0), (b, 8192), 8192, None),
            ((a, 8192), (end, 4096), 1808, None),
        ];
        for (n, (from, to, len, want)) in clones.into_iter().enumerate() {
            let got = v.clone_range(from, to, len).await;
            assert_eq!(got.as_ref().err().map(FsError::errno), want, "clone {n}: {got:?}");
        }
        assert_eq!(v.stat("end").await.expect("it is there").size, 4096 + 1808);
        let dedupes = [
            ((a, 0), (b, 0), 4096, Some("EBADE")),
            ((a, 0), (b, 0), 12_288, Some("EINVAL")),
            ((a, 100), (b, 0), 4096, Some("EINVAL")),
            ((b, 0), (empty, 0), 4096, Some("EINVAL")),
            ((d, 0), (b, 0), 4096, Some("EISDIR")),
            ((a, 0), (d, 0), 4096, Some("EISDIR")),
            ((b, 0), (b, 8192), 8192, None),
            // Root need not have it open for writing.
            ((b, 0), (readable, 8192), 8192, None),
            ((b, 0), (b, 0), 0, None),
        ];
        for (n, (from, to, len, want)) in dedupes.into_iter().enumerate() {
            let got = v.dedupe_range(from, to, len).await;
            assert_eq!(got.as_ref().err().map(FsError::errno), want, "dedupe {n}: {got:?}");
        }
        let same = v.copy_file_range((b, 0), (b, 4096), 8192).await;
        assert_eq!(same.err().map(|e| e.errno()), Some("EINVAL"));
        for fd in [a, b, end, empty, d, readable, appends] {
            v.close(fd).await.expect("closes");
        }
    });
}

#[test]
fn a_clone_changes_times_and_a_dedupe_does_not() {
    with_fresh(&Setup::new(), |v| async move {
        let (a, b) = (file(&v, "a", 8192, 1).await, file(&v, "b", 8192, 1).await);
        let rt = v.rt().clone();
        let before = v.stat("b").await.expect("it is there");
        rt.sleep(Span::millis(50)).await;
        assert_eq!(v.dedupe_range((a, 0), (b, 0), 8192).await, Ok(8192));
        let then = v.stat("b").await.expect("it is there");
        assert_eq!((then.mtime, then.ctime), (before.mtime, before.ctime));
        v.clone_range((a, 0), (b, 8192), 0).await.expect("shares");
        let now = v.stat("b").await.expect("it is there");
        assert!(now.mtime > before.mtime && now.ctime > before.ctime && now.size == 16_384);
        for fd in [a, b] {
            v.close(fd).await.expect("closes");
        }
    });
}

#[test]
fn small_files_are_cloned_into_the_item_or_into_a_block() {
    with_fresh(&Setup::new(), |v| async move {
        let small = file(&v, "small", 500, 1).await;
        v.fsync(small).await.expect("syncs");
        let data = contents(&v, small).await.expect("reads");
        let others = [
            // Without anything; with less; with more, so that the range is within it.
            ("none", 0, None),
            ("less", 300, None),
            ("equal", 500, None),
            ("more", 900, Some("EINVAL")),
            ("blocks", 8192, Some("EINVAL")),
        ];
        for (path, bytes, want) in others {
            let fd = file(&v, path, bytes, 2).await;
            let got = v.clone_range((small, 0), (fd, 0), 0).await;
            assert_eq!(got.err().map(|e| e.errno()), want, "{path}");
            if want.is_none() {
                assert_eq!(contents(&v, fd).await.expect("reads"), data, "{path}");
            }
            // Behind a file that ends at a block: the bytes go into a block of their own.
            if bytes == 8192 {
                v.clone_range((small, 0), (fd, 8192), 0).await.expect("shares");
                let got = contents(&v, fd).await.expect("reads");
                assert_eq!((got.len(), &got[8192..]), (8692, &data[..]));
            }
            v.close(fd).await.expect("closes");
        }
        v.close(small).await.expect("closes");
    });
}

#[test]
fn synchronous_descriptors_make_clones_durable() {
    let setup = Setup { device: "ssd-128", ..Setup::new() };
    for (source_syncs, target_syncs) in [(true, false), (false, true)] {
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        w.run(async move {
            let how = |sync| OpenFlags { sync, ..OpenFlags::CREATE };
            let a = v.open("a", how(source_syncs), 0o644).await.expect("makes");
            let b = v.open("b", how(target_syncs), 0o644).await.expect("makes");
            v.pwrite(a, 0, &[Slice::pattern(1, 0, 8192)]).await.expect("writes");
            v.clone_range((a, 0), (b, 0), 0).await.expect("shares");
        });
        drop(vfs);
        let medium = w.cut();
        mounted::judge(&medium, setup.mib, "cut after a synchronous clone");
        let w = World::empty(&setup);
        w.load(&medium);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        w.run(async move {
            for path in ["a", "b"] {
                let fd = v.open(path, OpenFlags::READ, 0).await.expect("it is there");
                let got = contents(&v, fd).await.expect("reads");
                assert_eq!(got, Slice::pattern(1, 0, 8192).to_vec(), "{path}");
                v.close(fd).await.expect("closes");
            }
        });
        w.unmount(&vfs);
        drop(vfs);
        w.end();
    }
    assert_nothing_lives();
}

#[test]
fn bytes_go_through_a_pipe_of_sixteen_pages() {
    with_fresh(&Setup::new(), |v| async move {
        let a = file(&v, "a", 1 << 20, 1).await;
        let how = OpenFlags { sync: true, ..OpenFlags::CREATE };
        let b = v.open("b", how, 0o644).await.expect("makes");
        let syncs = |v: &Vfs| {
            let all = v.fs().counters().into_iter();
            all.filter(|(n, _)| n.contains("sync")).map(|(_, n)| n).sum::<u64>()
        };
        // From the middle of a page on the last piece is of the bytes that found no page.
        for (from, len, pieces) in [(100, 65_436, 1), (100, 65_437, 2), (100, 65_536, 2)] {
            let before = syncs(&v);
            assert_eq!(v.copy_file_range((a, from), (b, 50), len).await, Ok(len));
            assert_eq!(syncs(&v) - before, pieces, "{from} {len}");
        }
        for fd in [a, b] {
            v.close(fd).await.expect("closes");
        }
    });
}
