//! Random programs on the mounted file system, beside a model in memory: answers, contents, names,
//! lengths and links are the model's at every step and after a second mount; `btrfs check` has
//! nothing to say of the images.

use crate::mounted;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::model::{Model, Node};
use crate::mounted::{Setup, World, assert_nothing_lives};
use wp_base::{FsError, FsResult, Rng, Span};
use wp_block::BlockQueue;
use wp_btrfs::disk::CsumKind;
use wp_btrfs::fs::MountOptions;
use wp_medium::{Medium, Slice};
use wp_rt::Rt;
use wp_vfs::{OpenFlags, Reserve, Vfs, XattrSet};

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

/// What a power cut leaves right after an fsync, and what that made durable: a file's contents, or
/// a directory's names.
struct Cut {
    medium: Medium,
    path: String,
    data: Vec<u8>,
    names: Option<Vec<String>>,
    what: String,
}

struct Program<'a> {
    /// Where to look for what a cut leaves; with how many looks at most.
    disk: Option<(Rc<BlockQueue>, Rt, usize)>,
    cuts: Vec<Cut>,
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
            0..37 => self.write(&path, &what).await,
            37..44 => self.reserve(&path, &what).await,
            44..47 => self.xattr(&path, &what).await,
            47..55 => self.cut(&path, &what).await,
            55..62 => {
                let want = self.m.remove(&path, false).map(|_| ());
                same(&self.v.unlink(&path).await, &want, &what);
            }
            62..68 => {
                let dir = Node { names: Some(BTreeMap::new()), links: 1, ..Node::default() };
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
                if n != 4 {
                    self.note_cut(path, what);
                }
            }
        }
    }

    fn note_cut(&mut self, path: &str, what: &str) {
        let Some((queue, rt, most)) = &self.disk else { return };
        let Some(n) = self.m.at(path).filter(|_| self.cuts.len() < *most) else { return };
        let node = &self.m.nodes[n];
        let now = rt.now();
        self.cuts.push(Cut {
            medium: queue.with_device(|d| d.crash_view(now).medium),
            path: path.to_owned(),
            data: node.data.clone(),
            names: node.names.as_ref().map(|all| all.keys().cloned().collect()),
            what: what.to_owned(),
        });
    }

    async fn reserve(&mut self, path: &str, what: &str) {
        let (at, len) = (self.offset(), 1 + self.below(self.style.most));
        let keep_size = self.below(2) == 0;
        let how = match self.below(3) {
            0 => Reserve::Space { keep_size },
            1 => Reserve::Punch,
            _ => Reserve::Zero { keep_size },
        };
        let Some(n) = self.m.at(path).filter(|n| !self.m.is_dir(*n)) else { return };
        let fd = self.v.open(path, OpenFlags::WRITE, 0).await.expect("opens");
        let done = self.v.fallocate(fd, how, at, len).await;
        assert_eq!(done, Ok(()), "{what}: {how:?} {at} {len}");
        self.v.close(fd).await.expect("closes");
        let file = &mut self.m.nodes[n].data;
        let end = (at + len) as usize;
        if !keep_size && how != Reserve::Punch {
            file.resize(file.len().max(end), 0);
        }
        if !matches!(how, Reserve::Space { .. }) {
            let size = file.len();
            file[(at as usize).min(size)..end.min(size)].fill(0);
        }
    }

    async fn xattr(&mut self, path: &str, what: &str) {
        let Some(n) = self.m.at(path) else { return };
        let name = format!("user.{}", self.below(5));
        let value = (self.below(3) > 0).then(|| vec![7; self.below(300) as usize]);
        let there = self.m.nodes[n].xattrs.contains_key(&name);
        let done = match &value {
            Some(value) => self.v.set_xattr(path, &name, value, XattrSet::Any).await,
            None => self.v.remove_xattr(path, &name).await,
        };
        match &value {
            Some(v) => {
                assert_eq!(done, Ok(()), "{what}: {name}");
                self.m.nodes[n].xattrs.insert(name, v.clone());
            }
            None => {
                let want = if there { Ok(()) } else { Err(FsError::NoData) };
                assert_eq!(done, want, "{what}: {name}");
                self.m.nodes[n].xattrs.remove(&name);
            }
        }
    }

    async fn compare_xattrs(&self, path: &str, n: usize, what: &str) {
        let want = &self.m.nodes[n].xattrs;
        let mut got = self.v.list_xattrs(path).await.expect("lists");
        got.sort();
        let names: Vec<Vec<u8>> = want.keys().map(|k| k.as_bytes().to_vec()).collect();
        assert_eq!(got, names, "{what}: attributes of {path}");
        for (name, value) in want {
            let got = self.v.get_xattr(path, name).await;
            assert_eq!(got.as_ref(), Ok(value), "{what}: {name} of {path}");
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
            self.compare_xattrs(&path, n, what).await;
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

/// Plays a program, and looks at what it left: the image.
fn play(setup: &Setup, style: Style, seed: u64) -> Medium {
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    let (v, rt) = (vfs.clone(), w.rt.clone());
    let model = w.run(async move {
        let rng = Rng::stream(seed, "program");
        let mut p = Program { disk: None, cuts: Vec::new(), v: &v, m: Model::new(), rng, style };
        for d in 0..3 {
            for path in [format!("d{d}"), format!("d{d}/e")] {
                let node = Node { names: Some(BTreeMap::new()), links: 1, ..Node::default() };
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
    w.judge(setup, &what);
    let image = w.medium();
    drop(vfs);
    w.end();
    let w = World::empty(setup);
    w.load(&image);
    let vfs = w.mount(setup).expect("mounts again");
    let v = vfs.clone();
    w.run(async move {
        let rng = Rng::stream(seed, "again");
        let mut p = Program { disk: None, cuts: Vec::new(), v: &v, m: model, rng, style };
        p.compare("after another mount").await;
    });
    w.unmount(&vfs);
    drop(vfs);
    w.end();
    image
}

/// [`play`], after which nothing is left.
fn check(setup: &Setup, style: Style, seed: u64) {
    drop(play(setup, style, seed));
    assert_nothing_lives();
}

const SMALL: Style = Style { steps: 250, names: 30, reach: 20_000, most: 9_000, pause: 0 };
const LARGE: Style = Style { steps: 120, names: 8, reach: 6 << 20, most: 300_000, pause: 0 };

fn seeds(default: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("BTRFS_PROGRAMS").ok().and_then(|s| s.parse().ok());
    let first = std::env::var("BTRFS_FIRST").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    first..first + asked.unwrap_or(default)
}

/// Plays a program on a device with a volatile cache, and mounts what cuts right after its fsyncs
/// leave: what was synced is there, and the image is sound. Answers how many logs were synced.
fn cut_after_syncs(setup: &Setup, style: Style, seed: u64, most: usize) -> u64 {
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    let (v, rt, queue) = (vfs.clone(), w.rt.clone(), w.queue.clone());
    let cuts = w.run(async move {
        let rng = Rng::stream(seed, "program");
        let disk = Some((queue, rt.clone(), most));
        let mut p = Program { disk, cuts: Vec::new(), v: &v, m: Model::new(), rng, style };
        for d in 0..3 {
            for path in [format!("d{d}"), format!("d{d}/e")] {
                let node = Node { names: Some(BTreeMap::new()), links: 1, ..Node::default() };
                p.m.add(&path, node).expect("fresh");
                p.v.mkdir(&path, 0o755).await.expect("makes");
            }
        }
        for step in 0..style.steps {
            p.step(step).await;
            rt.sleep(Span::millis(style.pause)).await;
        }
        p.cuts
    });
    let syncs = vfs.fs().counters().into_iter().find(|(n, _)| *n == "log_syncs");
    let syncs = syncs.expect("is counted").1;
    drop(vfs);
    w.end();
    for cut in cuts {
        let what = format!("seed {seed}, {}, cut after its fsync", cut.what);
        mounted::check_ours(&cut.medium, setup.mib, &what);
        let w = World::empty(setup);
        w.load(&cut.medium);
        let vfs = w.mount(setup).unwrap_or_else(|e| panic!("{what}: {e}"));
        let v = vfs.clone();
        let say = what.clone();
        w.run(async move {
            if let Some(names) = cut.names {
                let got = v.read_dir(&cut.path).await;
                let got = got.unwrap_or_else(|e| panic!("{say}: {e}"));
                let mut got: Vec<String> = got
                    .into_iter()
                    .map(|e| String::from_utf8(e.name).expect("our names are text"))
                    .collect();
                got.sort();
                assert_eq!(got, names, "{say}");
                return;
            }
            let fd = v.open(&cut.path, OpenFlags::READ, 0).await;
            let fd = fd.unwrap_or_else(|e| panic!("{say}: {e}"));
            let got = v.pread(fd, 0, 1 << 40).await.unwrap_or_else(|e| panic!("{say}: {e}"));
            let got: Vec<u8> = Slice::concat(&got);
            let differs = || got.iter().zip(&cut.data).position(|(a, b)| a != b);
            let wrong = if got == cut.data { None } else { differs() };
            assert_eq!((wrong, got.len()), (None, cut.data.len()), "{say}: wrong byte, length");
            v.close(fd).await.expect("closes");
        });
        w.unmount(&vfs);
        w.judge(setup, &what);
        drop(vfs);
        w.end();
    }
    assert_nothing_lives();
    syncs
}

#[test]
fn what_was_synced_survives_a_cut() {
    let log = Setup { device: "ssd-128", ..Setup::new() };
    let mut commit = log.clone();
    commit.mount.treelog = false;
    let mut in_place = Setup { node_bytes: 4096, ..log.clone() };
    in_place.mount.datacow = false;
    let mut logs = 0;
    for seed in seeds(3) {
        logs += cut_after_syncs(&log, SMALL, 3000 + seed, 20);
        cut_after_syncs(&log, Style { pause: 700, ..SMALL }, 3100 + seed, 20);
        cut_after_syncs(&log, LARGE, 3200 + seed, 10);
        cut_after_syncs(&in_place, Style { pause: 400, ..SMALL }, 3300 + seed, 20);
        assert_eq!(cut_after_syncs(&commit, SMALL, 3400 + seed, 5), 0);
    }
    assert!(logs > 0, "fsyncs write logs");
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
fn commits_and_the_flusher_between_calls_change_nothing() {
    for seed in seeds(3) {
        check(&Setup::new(), Style { pause: 900, ..SMALL }, 200 + seed);
        check(&Setup::new(), Style { pause: 1900, ..LARGE }, 250 + seed);
    }
}

#[test]
fn other_shapes_and_options_are_as_in_the_model() {
    let mount = Setup::new().mount;
    let setups = [
        Setup { node_bytes: 4096, ..Setup::new() },
        Setup { dup: false, csum: CsumKind::Xxhash64, ..Setup::new() },
        Setup { mount: MountOptions { datacow: false, ..mount.clone() }, ..Setup::new() },
        Setup { mount: MountOptions { direct_sums: true, ..mount.clone() }, ..Setup::new() },
        Setup { mount: MountOptions { datasum: false, max_inline: 0, ..mount }, ..Setup::new() },
    ];
    for (n, setup) in setups.iter().enumerate() {
        for seed in seeds(2) {
            check(setup, SMALL, 1000 * n as u64 + 1000 + seed);
            check(setup, LARGE, 1000 * n as u64 + 1500 + seed);
        }
    }
}
