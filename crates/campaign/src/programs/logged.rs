//! Short programs of names, with a sync of a file or directory after many of their calls: what a
//! log of single inodes must get right. Bounded as ACE's are, and longer: three to nine calls on a
//! few names in nested directories, of which none or all are durable before.

use wp_workload::program::{Alloc, Call, Program, Step};

use super::{BLOCK, CREATE, READ, WRITE, Writer};

const FD: u32 = 0;
const SYNC_FD: u32 = 1;
/// Names that directories and files have within a directory.
const DIRS: [&str; 3] = ["A", "B", "C"];
const FILES: [&str; 2] = ["foo", "bar"];

/// What is there by now.
#[derive(Default)]
struct Tree {
    dirs: Vec<String>,
    files: Vec<String>,
}

impl Tree {
    fn has(&self, path: &str) -> bool {
        self.dirs.iter().chain(&self.files).any(|p| p == path)
    }

    fn is_empty(&self, dir: &str) -> bool {
        let inside = format!("{dir}/");
        !self.dirs.iter().chain(&self.files).any(|p| p.starts_with(&inside))
    }

    /// A name moves, with what is below it.
    fn rename(&mut self, old: &str, new: &str) {
        self.dirs.retain(|d| d != new);
        self.files.retain(|f| f != new);
        let inside = format!("{old}/");
        for p in self.dirs.iter_mut().chain(&mut self.files) {
            if p == old {
                *p = new.to_owned();
            } else if let Some(rest) = p.strip_prefix(&inside) {
                *p = format!("{new}/{rest}");
            }
        }
    }
}

fn pick<'t>(w: &mut Writer, of: &'t [String]) -> Option<&'t String> {
    let at = w.below(of.len() as u64) as usize;
    of.get(at)
}

/// A name in some directory, or in the root.
fn place(w: &mut Writer, tree: &Tree, names: &[&str]) -> String {
    let name = names[w.below(names.len() as u64) as usize];
    match w.below(4) {
        0 => name.to_owned(),
        _ => match pick(w, &tree.dirs) {
            Some(dir) => format!("{dir}/{name}"),
            None => name.to_owned(),
        },
    }
}

fn sync(w: &mut Writer, path: &str, is_dir: bool) {
    w.open(SYNC_FD, path, if is_dir { READ } else { WRITE });
    w.call(Call::Fsync(SYNC_FD));
    w.call(Call::Close(SYNC_FD));
}

/// One call, on what is there. Answers the path that it was about, if it did anything, and the
/// directory that something left.
fn operation(w: &mut Writer, tree: &mut Tree) -> Option<(String, Option<String>)> {
    let parent = |p: &str| p.rsplit_once('/').map_or(".", |(dir, _)| dir).to_owned();
    match w.below(12) {
        0..=1 => {
            let dir = place(w, tree, &DIRS);
            // Two levels are enough.
            if tree.has(&dir) || dir.matches('/').count() > 1 {
                return None;
            }
            w.call(Call::Mkdir(dir.clone()));
            tree.dirs.push(dir.clone());
            Some((dir, None))
        }
        2..=4 => {
            let file = place(w, tree, &FILES);
            if tree.has(&file) {
                return None;
            }
            w.open(FD, &file, CREATE);
            if w.below(2) == 0 {
                w.write(FD, 0, BLOCK);
            }
            w.call(Call::Close(FD));
            tree.files.push(file.clone());
            Some((file, None))
        }
        5..=6 => {
            let (old, new) = (pick(w, &tree.files)?.clone(), place(w, tree, &FILES));
            if tree.has(&new) {
                return None;
            }
            w.call(Call::Link(old.clone(), new.clone()));
            tree.files.push(new.clone());
            // Either name is the file's.
            Some((if w.below(2) == 0 { old } else { new }, None))
        }
        7..=8 => {
            let (old, new) = (pick(w, &tree.files)?.clone(), place(w, tree, &FILES));
            if old == new || tree.dirs.contains(&new) {
                return None;
            }
            w.call(Call::Rename(old.clone(), new.clone()));
            tree.rename(&old, &new);
            Some((new, Some(parent(&old))))
        }
        9 => {
            let (old, new) = (pick(w, &tree.dirs)?.clone(), place(w, tree, &DIRS));
            let into_itself = new.starts_with(&format!("{old}/"));
            let goes = !tree.has(&new) || tree.dirs.contains(&new) && tree.is_empty(&new);
            if old == new || into_itself || !goes {
                return None;
            }
            w.call(Call::Rename(old.clone(), new.clone()));
            tree.rename(&old, &new);
            Some((new, Some(parent(&old))))
        }
        10 => {
            let file = pick(w, &tree.files)?.clone();
            w.call(Call::Unlink(file.clone()));
            tree.files.retain(|f| *f != file);
            Some((parent(&file), None))
        }
        _ => {
            let file = pick(w, &tree.files)?.clone();
            w.open(FD, &file, WRITE);
            if w.below(2) == 0 {
                let at = u64::from(BLOCK) * w.below(3);
                w.write(FD, at, BLOCK);
            } else {
                let at = u64::from(BLOCK) * (1 + w.below(4));
                w.call(Call::Fallocate(FD, Alloc::Keep, at, u64::from(BLOCK)));
            }
            w.call(Call::Close(FD));
            Some((file, None))
        }
    }
}

/// After some of the calls what they were about is synced, or a directory that is there.
pub fn names(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs for logs of names");
    let mut tree = Tree::default();
    if w.below(2) == 0 {
        for dir in &DIRS[..2] {
            w.call(Call::Mkdir((*dir).to_owned()));
            tree.dirs.push((*dir).to_owned());
            if w.below(2) == 0 {
                let file = format!("{dir}/foo");
                w.open(FD, &file, CREATE);
                w.write(FD, 0, BLOCK);
                w.call(Call::Close(FD));
                tree.files.push(file);
            }
        }
        w.call(Call::Sync);
        w.steps.push(Step::Case("names".to_owned()));
    }
    let calls = 3 + w.below(7);
    let mut done = 0;
    for _ in 0..40 {
        if done == calls {
            break;
        }
        let Some((path, left)) = operation(&mut w, &mut tree) else { continue };
        done += 1;
        let is_last = done == calls;
        match w.below(if is_last { 4 } else { 8 }) {
            0..=1 => {
                let is_dir = tree.dirs.contains(&path) || path == ".";
                sync(&mut w, &path, is_dir);
            }
            2 => {
                if let Some(dir) = left.filter(|d| d == "." || tree.dirs.contains(d)) {
                    sync(&mut w, &dir, true);
                }
            }
            3 => {
                // Any other.
                let (dirs, files) = (&tree.dirs, &tree.files);
                match if w.below(2) == 0 { pick(&mut w, dirs) } else { None } {
                    Some(dir) => sync(&mut w, dir, true),
                    None => {
                        if let Some(file) = pick(&mut w, files) {
                            sync(&mut w, file, false);
                        }
                    }
                }
            }
            _ => {}
        }
    }
    Program(w.steps)
}

/// Files move from a directory to another, which takes the place of the first, and are synced.
pub fn replaced(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs that replace directories");
    let (from, to) = if w.below(2) == 0 { ("A", "B") } else { ("B", "A") };
    for dir in ["A", "B"] {
        w.call(Call::Mkdir(dir.to_owned()));
    }
    let files = 1 + w.below(3);
    let name = |dir: &str, n: u64| format!("{dir}/f{n}");
    for n in 0..files {
        w.open(FD, &name(from, n), CREATE);
        if w.below(2) == 0 {
            w.write(FD, 0, BLOCK);
        }
        w.call(Call::Close(FD));
    }
    w.call(Call::Sync);
    w.steps.push(Step::Case("replace".to_owned()));
    for n in 0..files {
        w.call(Call::Rename(name(from, n), name(to, n)));
    }
    w.call(Call::Rename(to.to_owned(), from.to_owned()));
    w.nap(&[0, 3_000]);
    let last = w.below(files);
    sync(&mut w, &name(from, last), false);
    w.nap(&[0, 3_000]);
    Program(w.steps)
}

/// Bytes of the names of [`many_links`]: so long that few of them fill a tree block.
const LONG: usize = 181;

/// A file gets many long names in one directory, which become durable; then some go, some come, and
/// it is synced.
pub fn many_links(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs of many links");
    let name = |n: u64| format!("{n:0>width$}", width = LONG);
    w.open(FD, "file", CREATE);
    let first = 40 + w.below(20);
    for n in 0..first {
        w.call(Call::Link("file".to_owned(), name(n)));
    }
    w.call(Call::Sync);
    w.steps.push(Step::Case("links".to_owned()));
    for _ in 0..w.below(3) {
        let gone = w.below(first);
        w.call(Call::Unlink(name(gone)));
        if w.below(2) == 0 {
            w.call(Call::Link("file".to_owned(), name(gone)));
        }
    }
    let more = match w.below(2) {
        0 => 1 + w.below(4),
        _ => 10 + w.below(25),
    };
    for n in first..first + more {
        w.call(Call::Link("file".to_owned(), name(n)));
    }
    w.call(Call::Fsync(FD));
    Program(w.steps)
}

/// Durable files in a directory move out of it, by a new name elsewhere and the removal of the old
/// one; then a file or a directory is synced.
pub fn linked_away(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs of files that are linked away");
    let files = 1 + w.below(3);
    w.call(Call::Mkdir("A".to_owned()));
    w.call(Call::Mkdir("B".to_owned()));
    for n in 0..files {
        w.open(FD, &format!("A/f{n}"), CREATE);
        w.write(FD, 0, BLOCK);
        w.call(Call::Close(FD));
    }
    w.call(Call::Sync);
    w.steps.push(Step::Case("linked away".to_owned()));
    let goes = w.below(files);
    let new = if w.below(2) == 0 { format!("B/g{goes}") } else { format!("g{goes}") };
    if w.below(2) == 0 {
        w.call(Call::Mkdir("A/C".to_owned()));
    }
    w.call(Call::Link(format!("A/f{goes}"), new.clone()));
    w.call(Call::Unlink(format!("A/f{goes}")));
    match w.below(4) {
        0 => sync(&mut w, &new, false),
        1 => sync(&mut w, "B", true),
        _ => sync(&mut w, "A", true),
    }
    Program(w.steps)
}

/// New files in a directory and in one below it: one of them is synced, one may be renamed or
/// linked into place, and a directory is synced.
pub fn nested(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs of nested directories");
    let make = |w: &mut Writer, path: &str| {
        w.open(FD, path, CREATE);
        if w.below(2) == 0 {
            w.write(FD, 0, BLOCK);
        }
        w.call(Call::Close(FD));
    };
    for dir in ["t", "t/A", "B"] {
        w.call(Call::Mkdir(dir.to_owned()));
    }
    if w.below(4) == 0 {
        w.call(Call::Sync);
        w.steps.push(Step::Case("directories are durable".to_owned()));
    }
    let mut files = ["t/foo", "t/A/foo", "B/foo"].map(str::to_owned).to_vec();
    for n in (1..files.len()).rev() {
        files.swap(n, w.below(n as u64 + 1) as usize);
    }
    for path in &files {
        make(&mut w, path);
    }
    for _ in 0..1 + w.below(2) {
        let synced = files[w.below(files.len() as u64) as usize].clone();
        sync(&mut w, &synced, false);
        let (old, new) = ("B/foo".to_owned(), "t/A/bar".to_owned());
        match w.below(4) {
            0 => {
                w.call(Call::Rename(old.clone(), new.clone()));
                files.retain(|f| *f != old);
            }
            1 => w.call(Call::Link(old, new.clone())),
            _ => continue,
        }
        files.push(new);
        break;
    }
    let dir = if w.below(3) == 0 { "t/A" } else { "t" };
    sync(&mut w, dir, true);
    Program(w.steps)
}

/// A file with space behind its end, which is durable; then its directory changes and is synced.
pub fn spare(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs of space behind the end");
    w.call(Call::Mkdir("A".to_owned()));
    w.open(FD, "A/foo", CREATE);
    let size = BLOCK * w.below(3) as u32;
    if size > 0 {
        w.write(FD, 0, size);
    }
    let len = u64::from(BLOCK) * (1 + w.below(4));
    w.call(Call::Fallocate(FD, Alloc::Keep, size.into(), len));
    w.call(Call::Fsync(FD));
    w.call(Call::Sync);
    w.steps.push(Step::Case("space is durable".to_owned()));
    match w.below(3) {
        0 => w.call(Call::Rename("A/foo".to_owned(), "A/bar".to_owned())),
        1 => w.call(Call::Link("A/foo".to_owned(), "A/bar".to_owned())),
        _ => w.call(Call::Link("A/foo".to_owned(), "bar".to_owned())),
    }
    let dir = if w.below(2) == 0 { "A" } else { "." };
    sync(&mut w, dir, true);
    Program(w.steps)
}

/// A file that was synced, with space behind its end, which is durable; then the front of the space
/// is written and synced.
pub fn front(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs of space whose front is written");
    w.open(FD, "foo", CREATE);
    let size = BLOCK * w.below(3) as u32;
    if size > 0 {
        w.write(FD, 0, size);
    }
    w.call(Call::Fsync(FD));
    let blocks = 2 + w.below(8);
    w.call(Call::Fallocate(FD, Alloc::Keep, size.into(), u64::from(BLOCK) * blocks));
    w.call(Call::Sync);
    w.steps.push(Step::Case("space is durable".to_owned()));
    let written = 1 + w.below(blocks - 1) as u32;
    w.write(FD, size.into(), BLOCK * written);
    let last = if w.below(2) == 0 { Call::Fsync(FD) } else { Call::Fdatasync(FD) };
    w.call(last);
    Program(w.steps)
}

/// A file is synced in a log, others are made beside it and forgotten by the cache; the file gets
/// another name, and one of the others is synced.
pub fn reloaded(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs of inodes that were forgotten");
    let dir = if w.below(2) == 0 {
        String::new()
    } else {
        w.call(Call::Mkdir("A".to_owned()));
        "A/".to_owned()
    };
    let old = format!("{dir}old");
    w.open(FD, &old, CREATE);
    w.call(Call::Sync);
    w.write(FD, 0, BLOCK);
    w.call(Call::Fdatasync(FD));
    let new = 1 + w.below(2);
    for n in 0..new {
        w.open(FD + 1, &format!("{dir}new{n}"), CREATE);
        w.call(Call::Close(FD + 1));
    }
    w.call(Call::DropCaches);
    w.steps.push(Step::Case("files are forgotten".to_owned()));
    let to = format!("{dir}renamed");
    let moves = if w.below(4) == 0 { Call::Link(old, to) } else { Call::Rename(old, to) };
    w.call(moves);
    let which = w.below(new);
    sync(&mut w, &format!("{dir}new{which}"), false);
    Program(w.steps)
}

/// Symbolic links are made and synced with their directory, then one is renamed, perhaps over
/// another, as who publishes a version does; and the directory is synced again.
pub fn renamed_links(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs of links that are renamed");
    let in_root = w.below(2) == 0;
    let (dir, prefix) = if in_root { (".", "") } else { ("A", "A/") };
    if !in_root {
        w.call(Call::Mkdir("A".to_owned()));
    }
    let current = format!("{prefix}current");
    if w.below(2) == 0 {
        w.call(Call::Symlink("v1".to_owned(), current.clone()));
    } else {
        w.open(FD, &format!("{prefix}other"), CREATE);
        w.call(Call::Close(FD));
    }
    w.call(Call::Sync);
    w.steps.push(Step::Case("a version is published".to_owned()));
    let links = 1 + w.below(2);
    for n in 0..links {
        w.call(Call::Symlink(format!("v{}", n + 2), format!("{prefix}new{n}")));
    }
    sync(&mut w, dir, true);
    let which = w.below(links);
    w.call(Call::Rename(format!("{prefix}new{which}"), current));
    sync(&mut w, dir, true);
    Program(w.steps)
}

/// A file is cut within a block and synced, then made longer, in the same block or behind it; and
/// another file, which moved, is synced with its old directory: that is a commit.
pub fn longer(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs of files that become longer again");
    w.call(Call::Mkdir("A".to_owned()));
    w.open(FD + 1, "A/f", CREATE);
    w.call(Call::Close(FD + 1));
    w.open(FD, "foo", CREATE);
    let blocks = 1 + w.below(2);
    w.write(FD, 0, BLOCK * blocks as u32);
    w.call(Call::Sync);
    let cut = (blocks - 1) * u64::from(BLOCK) + 1 + w.below(2000);
    w.call(Call::Ftruncate(FD, cut));
    w.call(Call::Fsync(FD));
    w.steps.push(Step::Case("what was cut is gone".to_owned()));
    let more = if w.below(2) == 0 { 1 + w.below(2000) } else { u64::from(BLOCK) * 2 };
    w.call(Call::Ftruncate(FD, cut + more));
    w.call(Call::Rename("A/f".to_owned(), "f".to_owned()));
    sync(&mut w, "A", true);
    Program(w.steps)
}
