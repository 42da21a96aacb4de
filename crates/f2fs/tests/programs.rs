//! Random programs on the mounted file system, beside a model in memory: answers, contents, names,
//! lengths and links are the model's at every step, after a second mount, and in the image.

use std::collections::BTreeMap;

use crate::model::{Model, Node, hex};
use crate::world::{Setup, World, assert_nothing_lives};
use wp_base::{FsError, FsResult, Rng, Sector};
use wp_f2fs::fs::{FsMode, FsyncMode};
use wp_f2fs::image::{self, InspectOptions};
use wp_medium::{Medium, MediumView, Slice};
use wp_vfs::{OpenFlags, Reserve, Vfs, XattrSet};

/// The image's files in the form of [`Model::text`].
fn listing(w: &World, setup: &Setup) -> String {
    let view = MediumView { medium: w.medium(), start: Sector(0), bytes: setup.mib << 20 };
    let options = InspectOptions { hash: true, ..Default::default() };
    let found = image::inspect(&view, &options).expect("can be read");
    assert!(!found.recovery.is_needed(), "an unmounted image needs no recovery");
    assert!(found.findings.is_empty(), "{:?}", found.findings);
    let mut lines: Vec<(String, String)> = Vec::new();
    for f in found.files {
        let path = String::from_utf8(f.path).expect("our names are text");
        let what = match (f.kind.word(), f.target, f.sha256) {
            ("dir", ..) => "dir".to_owned(),
            (_, Some(t), _) => format!("link {}", String::from_utf8_lossy(&t)),
            (_, _, h) => format!("file {} {}", f.size, h.expect("hashed")),
        };
        let mut xattrs: Vec<String> = f
            .xattrs
            .iter()
            .map(|a| format!("{}={}", String::from_utf8_lossy(&a.name), hex(&a.value)))
            .collect();
        xattrs.sort();
        let line = format!("{path}: {what} links {} {}\n", f.nlink, xattrs.join(","));
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
}

struct Program<'a> {
    v: &'a Vfs,
    m: Model,
    rng: Rng,
    style: Style,
    /// Moves of ranges are refused with `mode=lfs` where no checkpoint has the blocks.
    lfs: bool,
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
            0..35 => self.write(&path, &what).await,
            35..43 => self.cut(&path, &what).await,
            43..55 => self.range(&path, &what).await,
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
                let text = "t".repeat(1 + self.below(4095) as usize);
                let node = Node { target: Some(text.clone()), links: 1, ..Node::default() };
                let want = self.m.add(&path, node).map(|_| ());
                same(&self.v.symlink(&text, &path).await, &want, &what);
            }
            84..90 => self.xattr(&path, &what).await,
            90..96 => self.sync(&path, &what).await,
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

    async fn range(&mut self, path: &str, what: &str) {
        let Some(n) = self.m.at(path).filter(|n| !self.m.is_dir(*n)) else { return };
        let (mut at, mut len) = (self.offset(), 1 + self.offset());
        let which = self.below(8);
        let how = match which {
            0 | 1 => Reserve::Space { keep_size: which == 1 },
            2 | 3 => Reserve::Zero { keep_size: which == 3 },
            4 | 5 => Reserve::Punch,
            6 => Reserve::Collapse,
            _ => Reserve::Insert,
        };
        if which >= 6 {
            (at, len) = (at / 4096 * 4096, len.next_multiple_of(4096).min(1 << 20));
        }
        let data = &self.m.nodes[n].data;
        let size = data.len() as u64;
        let fd = self.v.open(path, OpenFlags::WRITE, 0).await.expect("opens");
        let got = self.v.fallocate(fd, how, at, len).await;
        self.v.close(fd).await.expect("closes");
        let bad = match how {
            Reserve::Collapse => at + len >= size,
            Reserve::Insert => at >= size,
            _ => false,
        };
        let what = format!("{what}: {how:?} {at} {len} of {size}");
        if bad {
            return assert_eq!(got.err().map(|e| e.errno()), Some("EINVAL"), "{what}");
        }
        if self.lfs && which >= 6 && matches!(got, Err(FsError::Unsupported(_))) {
            return;
        }
        assert_eq!(got, Ok(()), "{what}");
        let (a, b) = (at as usize, (at + len) as usize);
        let data = &mut self.m.nodes[n].data;
        let whole = data.len();
        match how {
            Reserve::Space { keep_size: false } => data.resize(whole.max(b), 0),
            Reserve::Zero { keep_size } => {
                if !keep_size {
                    data.resize(whole.max(b), 0);
                }
                let (a, b) = (a.min(data.len()), b.min(data.len()));
                data[a..b].fill(0);
            }
            Reserve::Punch => {
                let (a, b) = (a.min(whole), b.min(whole));
                data[a..b].fill(0);
            }
            Reserve::Collapse => drop(data.drain(a..b)),
            Reserve::Insert => drop(data.splice(a..a, std::iter::repeat_n(0, b - a))),
            Reserve::Space { keep_size: true } => {}
        }
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

    async fn xattr(&mut self, path: &str, what: &str) {
        let Some(n) = self.m.at(path) else { return };
        let name = format!("user.{}", self.below(4));
        let len = [10, 60, 500, 1500][self.below(4) as usize];
        if self.below(4) == 0 {
            let got = self.v.remove_xattr(path, &name).await;
            let want = self.m.nodes[n].xattrs.remove(&name).map(|_| ()).ok_or(FsError::NoData);
            return same(&got, &want, &format!("{what}: removes {name}"));
        }
        let mut value = vec![0; len];
        self.rng.fill(&mut value);
        let mut all = self.m.nodes[n].xattrs.clone();
        all.insert(name.clone(), value.clone());
        let used: usize =
            all.iter().map(|(k, v)| (4 + k.len() - 5 + v.len()).next_multiple_of(4)).sum();
        let got = self.v.set_xattr(path, &name, &value, XattrSet::Any).await;
        let room = 24 + used <= 200 + 4072;
        let want = if room { Ok(()) } else { Err(FsError::NoSpace) };
        same(&got, &want, &format!("{what}: sets {name} to {len} bytes"));
        if room {
            self.m.nodes[n].xattrs = all;
        }
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
            for (name, value) in &node.xattrs {
                let got = self.v.get_xattr(&path, name).await;
                assert_eq!(got.as_ref(), Ok(value), "{what}: {name} of {path}");
            }
        }
    }
}

/// Plays a program, and looks at what it left: the image, and the model as text.
fn play(setup: &Setup, style: Style, seed: u64) -> (Medium, String) {
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    let (v, lfs) = (vfs.clone(), setup.mode == FsMode::Lfs || setup.device != "fixed");
    let model = w.run(async move {
        let rng = Rng::stream(seed, "program");
        let mut p = Program { v: &v, m: Model::new(), rng, style, lfs };
        for d in 0..3 {
            for path in [format!("d{d}"), format!("d{d}/e")] {
                let node = Node { names: Some(BTreeMap::new()), links: 2, ..Node::default() };
                p.m.add(&path, node).expect("fresh");
                p.v.mkdir(&path, 0o755).await.expect("makes");
            }
        }
        for step in 0..style.steps {
            p.step(step).await;
        }
        p.compare("at the end").await;
        p.m
    });
    w.unmount(&vfs);
    let what = format!("seed {seed}");
    w.judge(setup, &what);
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
        let mut p = Program { v: &v, m: model, rng, style, lfs };
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

const SMALL: Style = Style { steps: 250, names: 30, reach: 20_000, most: 9_000 };
const LARGE: Style = Style { steps: 120, names: 8, reach: 6 << 20, most: 300_000 };

fn seeds(default: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("F2FS_PROGRAMS").ok().and_then(|s| s.parse().ok());
    let first = std::env::var("F2FS_FIRST").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    first..first + asked.unwrap_or(default)
}

#[test]
fn small_files_are_as_in_the_model() {
    for seed in seeds(6) {
        check(&Setup::new("6.1"), SMALL, seed);
    }
}

#[test]
fn large_files_are_as_in_the_model() {
    for seed in seeds(4) {
        check(&Setup::new("6.18"), LARGE, 100 + seed);
    }
}

#[test]
fn log_structured_files_are_as_in_the_model() {
    let setup = Setup { mode: FsMode::Lfs, ..Setup::new("6.12") };
    for seed in seeds(4) {
        check(&setup, SMALL, 200 + seed);
        check(&setup, LARGE, 300 + seed);
    }
}

#[test]
fn every_way_to_sync_and_every_feature_is_as_in_the_model() {
    let today = Setup::new("5.14");
    let features: &[&str] = &["extra_attr", "inode_checksum", "inode_crtime"];
    let flexible: &[&str] = &["extra_attr", "flexible_inline_xattr"];
    let setups = [
        Setup { fsync_mode: FsyncMode::Strict, ..today.clone() },
        Setup { fsync_mode: FsyncMode::StrictFixed, ..today.clone() },
        Setup { fsync_mode: FsyncMode::NoBarrier, ..today.clone() },
        Setup { features, ..today.clone() },
        Setup { features: flexible, logs: 4, ..today.clone() },
        Setup { logs: 2, ..today },
    ];
    for (n, setup) in setups.iter().enumerate() {
        for seed in seeds(2) {
            check(setup, SMALL, 1000 * n as u64 + seed);
        }
    }
}
