//! Random programs on the mounted file system, beside a model in memory: answers, contents, names,
//! lengths and links are the model's at every step, after a second mount, and in the image.

use std::collections::BTreeMap;

use crate::model::{Model, Node};
use crate::world::{Setup, World, assert_nothing_lives};
use wp_base::{FsError, FsResult, Rng, Sector, Span};
use wp_medium::{Medium, MediumView, Slice};
use wp_nilfs2::fs::{CleanerOptions, Share};
use wp_nilfs2::image::{self, Image, InspectOptions};
use wp_vfs::{OpenFlags, Vfs};

/// The image's files in the form of [`Model::text`].
fn listing(w: &World, setup: &Setup) -> String {
    let view = MediumView { medium: w.medium(), start: Sector(0), bytes: setup.mib << 20 };
    let options = InspectOptions { hash: true, ..Default::default() };
    let found = image::inspect(&view, &options).expect("can be read");
    assert!(!found.recovery.is_needed, "an unmounted image needs no recovery");
    assert!(found.findings.is_empty(), "{:?}", found.findings);
    let mut lines: Vec<(String, String)> = Vec::new();
    for f in found.files {
        let path = String::from_utf8(f.path).expect("our names are text");
        let what = match (f.kind.word(), f.target, f.sha256) {
            ("dir", ..) => "dir".to_owned(),
            (_, Some(t), _) => format!("link {}", String::from_utf8_lossy(&t)),
            (_, _, h) => format!("file {} {}", f.size, h.expect("hashed")),
        };
        if path == ".nilfs" {
            continue;
        }
        let line = format!("{path}: {what} links {} \n", f.nlink);
        lines.push((path, line));
    }
    lines.sort();
    lines.into_iter().map(|l| l.1).collect()
}

fn same<T>(got: &FsResult<T>, want: &FsResult<T>, what: &str) {
    let errno = |r: &FsResult<T>| r.as_ref().err().map(FsError::errno);
    assert_eq!(errno(got), errno(want), "{what}");
}

/// What a program does with files: how many, how long.
#[derive(Clone, Copy)]
struct Style {
    steps: u32,
    names: u64,
    /// Longest offset of a write, in bytes.
    reach: u64,
    /// Longest write.
    most: u64,
    /// Milliseconds that go by between steps.
    pause: u64,
}

struct Program<'a> {
    v: &'a Vfs,
    m: Model,
    rng: Rng,
    style: Style,
}

impl Program<'_> {
    fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }

    /// A path: mostly short, in one of few directories, some names long.
    fn path(&mut self) -> String {
        let n = self.below(self.style.names);
        let name = match n % 17 {
            5 => format!("a name of more than a few slots {n}"),
            _ => format!("f{n}"),
        };
        match self.below(4) {
            0 => format!("d{}/{name}", self.below(3)),
            1 => format!("d{}/e/{name}", self.below(3)),
            2 => format!("d{}", self.below(3)),
            _ => name,
        }
    }

    fn offset(&mut self) -> u64 {
        let reach = self.style.reach;
        match self.below(4) {
            0 => self.below(4000),
            1 => self.below(reach) / 4096 * 4096,
            _ => self.below(reach),
        }
    }

    fn file(&mut self, path: &str) -> FsResult<usize> {
        match self.m.at(path) {
            Some(n) if self.m.is_dir(n) => Err(FsError::IsDir),
            Some(n) => Ok(n),
            None => self.m.add(path, Node { links: 1, ..Node::default() }),
        }
    }

    async fn step(&mut self, step: u32) {
        let path = self.path();
        let what = format!("step {step}, {path}");
        // A path through a file or link is another test's.
        let (dir, _) = Model::split(&path);
        match self.m.at(dir) {
            Some(d) if self.m.is_dir(d) => {}
            _ => {
                let got = self.v.stat(&path).await.map(|_| ());
                assert!(got.is_err(), "{what}: its directory is not there");
                return;
            }
        }
        let target = self.m.at(&path);
        if target.is_some_and(|n| self.m.nodes[n].target.is_some()) {
            let want = self.m.remove(&path, false).map(|_| ());
            same(&self.v.unlink(&path).await, &want, &what);
            return;
        }
        match self.below(100) {
            0..47 => self.write(&path, &what).await,
            47..55 => self.cut(&path, &what).await,
            55..62 => {
                let want = self.m.remove(&path, false).map(|_| ());
                same(&self.v.unlink(&path).await, &want, &what);
            }
            62..68 => {
                let dir = Node { names: Some(BTreeMap::new()), links: 2, ..Node::default() };
                let want = self.m.add(&path, dir).map(|_| ());
                same(&self.v.mkdir(&path, 0o755).await, &want, &what);
            }
            68..71 => {
                let want = self.m.remove(&path, true).map(|_| ());
                same(&self.v.rmdir(&path).await, &want, &what);
            }
            71..77 => {
                let to = self.path();
                let want = self.m.clone().rename(&path, &to);
                let got = self.v.rename(&path, &to).await;
                if !matches!((&got, &want), (Err(_), Err(_))) {
                    same(&got, &want, &format!("{what} to {to}"));
                    self.m.rename(&path, &to).expect("as in the copy");
                }
            }
            77..81 => self.link(&path, &what).await,
            81..84 => {
                let text = "t".repeat(1 + self.below(1000) as usize);
                let node = Node { target: Some(text.clone()), links: 1, ..Node::default() };
                let want = self.m.add(&path, node).map(|_| ());
                same(&self.v.symlink(&text, &path).await, &want, &what);
            }
            84..94 => self.sync(&path, &what).await,
            _ => self.compare(&what).await,
        }
    }

    async fn write(&mut self, path: &str, what: &str) {
        let (at, seed) = (self.offset(), self.rng.next_u64());
        let len = 1 + self.below(self.style.most);
        let direct = self.below(6) == 0;
        let (at, len) = match direct {
            true => (at / 4096 * 4096, len.next_multiple_of(4096)),
            false => (at, len),
        };
        let want = self.file(path);
        let flags = OpenFlags { direct, ..OpenFlags::CREATE };
        let fd = self.v.open(path, flags, 0o644).await;
        assert_eq!(fd.is_ok(), want.is_ok(), "{what}: open");
        let (Ok(fd), Ok(n)) = (fd, want) else { return };
        let data = Slice::pattern(seed, 0, len as u32);
        let done = self.v.pwrite(fd, at, std::slice::from_ref(&data)).await;
        assert_eq!(done, Ok(len), "{what}: {len} bytes at {at}");
        self.v.close(fd).await.expect("closes");
        let file = &mut self.m.nodes[n].data;
        let end = (at + len) as usize;
        file.resize(file.len().max(end), 0);
        file[at as usize..end].copy_from_slice(&data.to_vec());
    }

    async fn cut(&mut self, path: &str, what: &str) {
        let Some(n) = self.m.at(path) else { return };
        let size = self.offset();
        let got = self.v.truncate(path, size).await;
        if self.m.is_dir(n) {
            return assert_eq!(got, Err(FsError::IsDir), "{what}");
        }
        assert_eq!(got, Ok(()), "{what}");
        self.m.nodes[n].data.resize(size as usize, 0);
    }

    async fn link(&mut self, path: &str, what: &str) {
        let to = self.path();
        let (Some(n), Some(d)) = (self.m.at(path), self.m.at(Model::split(&to).0)) else { return };
        if self.m.is_dir(n) || !self.m.is_dir(d) {
            return;
        }
        let got = self.v.link(path, &to).await;
        if self.m.at(&to).is_some() {
            return assert_eq!(got, Err(FsError::Exists), "{what} as {to}");
        }
        assert_eq!(got, Ok(()), "{what} as {to}");
        let name = Model::split(&to).1.to_owned();
        self.m.names(d).insert(name, n);
        self.m.nodes[n].links += 1;
    }

    async fn sync(&mut self, path: &str, what: &str) {
        match self.below(8) {
            0 => self.v.sync().await.expect("syncs"),
            1 => self.v.fs().drop_caches(),
            n => {
                let Some(_) = self.m.at(path) else { return };
                let fd = self.v.open(path, OpenFlags::READ, 0).await.expect("opens");
                let done = match n {
                    2 | 3 => self.v.fdatasync(fd).await,
                    4 => self.v.syncfs(fd).await,
                    _ => self.v.fsync(fd).await,
                };
                assert_eq!(done, Ok(()), "{what}");
                self.v.close(fd).await.expect("closes");
            }
        }
    }

    /// Everything is as in the model.
    async fn compare(&mut self, what: &str) {
        for (path, n) in self.m.walk() {
            let node = &self.m.nodes[n];
            let stat = self.v.stat(&path).await;
            if node.target.is_some() {
                continue;
            }
            let stat = stat.unwrap_or_else(|e| panic!("{what}: {path}: {e}"));
            assert_eq!(stat.nlink, node.links, "{what}: links of {path}");
            if let Some(names) = &node.names {
                let got = self.v.read_dir(&path).await.expect("lists");
                let mut got: Vec<String> = got
                    .into_iter()
                    .map(|e| String::from_utf8(e.name).expect("our names are text"))
                    .collect();
                got.sort();
                let want: Vec<String> = names.keys().cloned().collect();
                assert_eq!(got, want, "{what}: names in {path}");
                continue;
            }
            assert_eq!(stat.size, node.data.len() as u64, "{what}: length of {path}");
            let fd = self.v.open(&path, OpenFlags::READ, 0).await.expect("opens");
            let got = self.v.pread(fd, 0, 1 << 40).await.expect("reads");
            self.v.close(fd).await.expect("closes");
            let got: Vec<u8> = Slice::concat(&got);
            let differs = || got.iter().zip(&node.data).position(|(a, b)| a != b);
            let wrong = if got == node.data { None } else { differs() };
            assert_eq!(wrong, None, "{what}: contents of {path}, first wrong byte");
            assert_eq!(got.len(), node.data.len(), "{what}: bytes of {path}");
        }
    }
}

/// Plays a program, and looks at what it left: the image, and the model as text.
fn play(setup: &Setup, style: Style, seed: u64) -> (Medium, String) {
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    let (v, rt) = (vfs.clone(), w.rt.clone());
    let model = w.run(async move {
        let rng = Rng::stream(seed, "program");
        let mut p = Program { v: &v, m: Model::new(), rng, style };
        for d in 0..3 {
            for path in [format!("d{d}"), format!("d{d}/e")] {
                let node = Node { names: Some(BTreeMap::new()), links: 2, ..Node::default() };
                p.m.add(&path, node).expect("fresh");
                p.v.mkdir(&path, 0o755).await.expect("makes");
            }
        }
        for step in 0..style.steps {
            p.step(step).await;
            rt.sleep(Span::millis(style.pause)).await;
        }
        p.compare("at the end").await;
        p.m
    });
    w.unmount(&vfs);
    let what = format!("seed {seed}");
    w.judge(&what);
    assert_eq!(listing(&w, setup), model.text(), "{what}: the image");
    let text = model.text();
    let image = w.medium();
    drop(vfs);
    w.end();
    let w = World::empty(setup);
    w.load(&image);
    let vfs = w.mount(setup).expect("mounts again");
    let v = vfs.clone();
    w.run(async move {
        let rng = Rng::stream(seed, "again");
        let mut p = Program { v: &v, m: model, rng, style };
        p.compare("after another mount").await;
    });
    w.unmount(&vfs);
    drop(vfs);
    w.end();
    (image, text)
}

/// [`play`], after which nothing is left.
fn check(setup: &Setup, style: Style, seed: u64) {
    drop(play(setup, style, seed));
    assert_nothing_lives();
}

const SMALL: Style = Style { steps: 250, names: 30, reach: 20_000, most: 9_000, pause: 0 };
const LARGE: Style = Style { steps: 120, names: 8, reach: 6 << 20, most: 300_000, pause: 0 };

fn seeds(default: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("NILFS2_PROGRAMS").ok().and_then(|s| s.parse().ok());
    let first = std::env::var("NILFS2_FIRST").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    first..first + asked.unwrap_or(default)
}

#[test]
fn small_files_are_as_in_the_model() {
    for seed in seeds(6) {
        check(&Setup::new(), SMALL, seed);
    }
}

#[test]
fn large_files_are_as_in_the_model() {
    for seed in seeds(4) {
        check(&Setup::new(), LARGE, 100 + seed);
    }
}

#[test]
fn small_blocks_and_every_way_to_sync_are_as_in_the_model() {
    let small = Setup { block_bytes: 1024, segment_blocks: 512, ..Setup::new() };
    let setups = [
        Setup { strict_order: true, ..Setup::new() },
        Setup { barrier: false, ..Setup::new() },
        small,
    ];
    for (n, setup) in setups.iter().enumerate() {
        for seed in seeds(2) {
            check(setup, SMALL, 1000 * n as u64 + seed);
            check(setup, LARGE, 1000 * n as u64 + 500 + seed);
        }
    }
}

/// A small device, whose cleaner never pauses and keeps nothing that is old.
fn cleaned(block_bytes: u32) -> Setup {
    let cleaner = CleanerOptions {
        protection_period: 0,
        min_clean_segments: Share::Count(0),
        clean_check_interval: 1,
        cleaning_interval: [1, 1],
        nsegments_per_clean: [3, 3],
        min_reclaimable_blocks: [Share::Count(1), Share::Count(1)],
        ..CleanerOptions::default()
    };
    Setup { mib: 64, block_bytes, segment_blocks: 64, cleaner: Some(cleaner), ..Setup::new() }
}

#[test]
fn what_the_cleaner_moves_is_as_in_the_model() {
    for seed in seeds(2) {
        let small = Style { steps: 250, pause: 200, ..SMALL };
        let large = Style { pause: 400, reach: 3 << 20, ..LARGE };
        for (n, setup, style) in [(0, cleaned(4096), small), (1, cleaned(4096), large)] {
            let (medium, _) = play(&setup, style, 7000 + 100 * n + seed);
            let view = MediumView { medium, start: Sector(0), bytes: setup.mib << 20 };
            let image = Image::open(&view).expect("opens");
            let left = image.checkpoints().expect("listed").len() as u64;
            assert!(left < image.tip().cno, "seed {seed}: all {left} checkpoints are left");
        }
        check(&cleaned(1024), Style { pause: 300, ..SMALL }, 7200 + seed);
    }
    assert_nothing_lives();
}
