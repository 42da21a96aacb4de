//! Walking a path: names, `..`, symbolic links.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::pin::pin;

use wp_base::{FsError, FsResult, Ino};
use wp_rt::soon;

use crate::Vfs;
use crate::file_type::FileType;

/// Longest chain of symbolic links that a path walk follows (Linux `MAXSYMLINKS`).
const LINKS_MAX: u32 = 40;

/// The names that are still to be walked.
struct Todo<'p> {
    path: &'p [u8],
    /// What symbolic links put before them, last first.
    linked: Vec<Vec<u8>>,
}

impl<'p> Todo<'p> {
    fn of(path: &'p [u8]) -> Todo<'p> {
        Todo { path, linked: Vec::new() }
    }

    fn next(&mut self) -> Option<Cow<'p, [u8]>> {
        if let Some(name) = self.linked.pop() {
            return Some(Cow::Owned(name));
        }
        let (name, rest) = split_first(self.path)?;
        self.path = rest;
        Some(Cow::Borrowed(name))
    }

    fn is_empty(&self) -> bool {
        self.linked.is_empty() && split_first(self.path).is_none()
    }
}

/// The way from the root so far, and how many links it took.
struct Way {
    at: Vec<Ino>,
    links: u32,
}

/// How a path ends, which says what its last name may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// In a name.
    Name,
    /// In a name and slashes: what it names is a directory.
    Slash,
    /// In `.`, or there is no name at all: a directory that has no name here.
    Dot,
    /// In `..`: the same.
    DotDot,
}

impl End {
    /// How `path` ends.
    pub(crate) fn of(path: &[u8]) -> End {
        let Some(last) = path.iter().rposition(|b| *b != b'/') else { return End::Dot };
        let start = path[..last].iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
        match &path[start..=last] {
            b"." => End::Dot,
            b".." => End::DotDot,
            _ if last + 1 < path.len() => End::Slash,
            _ => End::Name,
        }
    }
}

/// The last name of a path, for a call that makes, moves or removes it.
pub(crate) struct Last<'p> {
    /// The directory that has it, or is to have it.
    pub(crate) dir: Ino,
    /// The name.
    pub(crate) name: &'p [u8],
    /// Do slashes follow it?
    pub(crate) slash: bool,
}

/// The directory in which the last name of a path is missing, and that name, if that was all.
type Missing<'p> = Option<(Ino, Cow<'p, [u8]>)>;

/// What a walk found.
pub(crate) enum Walked<'p> {
    Found(Ino),
    /// The last name of the path is missing in a directory to which no symbolic link led, and the
    /// walk did not wait: to walk again before anything else has run would find the same.
    Missing(Ino, Cow<'p, [u8]>),
    Failed(FsError),
}

impl Vfs {
    /// A way that starts at the root, with room for a usual depth.
    fn way(&self) -> Way {
        let mut at = Vec::with_capacity(8);
        at.push(self.fs().root());
        Way { at, links: 0 }
    }

    /// Walks to what `path` names, following symbolic links.
    pub(crate) async fn walk(&self, path: &str) -> FsResult<Ino> {
        self.walk_on(&mut self.way(), Todo::of(path.as_bytes()), &mut None).await
    }

    /// As [`Vfs::walk`], for those who make what is missing.
    pub(crate) async fn walk_or_miss<'p>(&self, path: &'p str) -> Walked<'p> {
        let mut way = self.way();
        let (mut waited, mut missing) = (false, None);
        let out = {
            let mut walk = pin!(self.walk_on(&mut way, Todo::of(path.as_bytes()), &mut missing));
            poll_fn(|cx| {
                let out = walk.as_mut().poll(cx);
                waited |= out.is_pending();
                out
            })
            .await
        };
        let missing = missing.filter(|_| End::of(path.as_bytes()) == End::Name);
        match (out, missing) {
            (Ok(ino), _) => Walked::Found(ino),
            (Err(FsError::NotFound), Some((dir, name))) if !waited => Walked::Missing(dir, name),
            (Err(e), _) => Walked::Failed(e),
        }
    }

    /// Where `open` makes a file: beside the last name of `path`, or where the symbolic links that
    /// stand there lead in the end. Errors: `NotFound` where a path ends in `.` or `..`: what
    /// stands before it is missing; `IsDir` where it ends in a slash.
    pub(crate) async fn creation(&self, path: &str) -> FsResult<(Ino, Vec<u8>)> {
        let fs = self.fs();
        let mut way = self.way();
        let mut path = Cow::Borrowed(path.as_bytes());
        loop {
            let (before, name) = split_last(&path).ok_or(FsError::IsDir)?;
            let dir = self.walk_on(&mut way, Todo::of(before), &mut None).await?;
            match End::of(&path) {
                End::Name => {}
                End::Slash => return Err(FsError::IsDir),
                End::Dot | End::DotDot => return Err(FsError::NotFound),
            }
            let found = match soon!(fs.lookup(dir, name)) {
                Err(FsError::NotFound) => return Ok((dir, name.to_vec())),
                other => other?,
            };
            if self.kind(found).await? != FileType::Symlink {
                // Another task was quicker: creating it will say so.
                return Ok((dir, name.to_vec()));
            }
            way.links += 1;
            if way.links > LINKS_MAX {
                return Err(FsError::Loop);
            }
            let target = fs.read_link(found).await?;
            if target.first() == Some(&b'/') {
                way.at.truncate(1);
            }
            path = Cow::Owned(target);
        }
    }

    /// Walks to the directory that holds the last name of `path`; `dots` is the error for a path
    /// that ends in `.` or `..`.
    pub(crate) async fn last<'p>(&self, path: &'p str, dots: FsError) -> FsResult<Last<'p>> {
        let whole = path.as_bytes();
        let slash = match End::of(whole) {
            End::Name => false,
            End::Slash => true,
            End::Dot | End::DotDot => return self.walk(path).await.and(Err(dots)),
        };
        let (before, name) = split_last(whole).expect("a path that ends in a name has one");
        let dir = self.walk_on(&mut self.way(), Todo::of(before), &mut None).await?;
        Ok(Last { dir, name, slash })
    }

    /// Walks the names `todo` from the end of `way`, which it extends. Every directory that a name
    /// or `..` is looked up in must be one, and so must be what stands before a slash or a `.` at
    /// the end (`LOOKUP_DIRECTORY`). `missing` is set with the error `NotFound`.
    async fn walk_on<'p>(
        &self,
        way: &mut Way,
        mut todo: Todo<'p>,
        missing: &mut Missing<'p>,
    ) -> FsResult<Ino> {
        let fs = self.fs();
        let mut is_dir = End::of(todo.path) != End::Name;
        while let Some(name) = todo.next() {
            let here = *way.at.last().expect("the root stays");
            if *name == *b".." {
                if self.kind(here).await? != FileType::Dir {
                    return Err(FsError::NotDir);
                }
                if way.at.len() > 1 {
                    way.at.pop();
                }
                continue;
            }
            let ino = match soon!(fs.lookup(here, &name)) {
                Err(FsError::NotFound) => {
                    *missing = (way.links == 0 && todo.is_empty()).then_some((here, name));
                    return Err(FsError::NotFound);
                }
                found => found?,
            };
            if self.kind(ino).await? == FileType::Symlink {
                way.links += 1;
                if way.links > LINKS_MAX {
                    return Err(FsError::Loop);
                }
                let target = fs.read_link(ino).await?;
                if target.first() == Some(&b'/') {
                    way.at.truncate(1);
                }
                is_dir |= todo.is_empty() && End::of(&target) != End::Name;
                let mut rest = &target[..];
                let mut names = Vec::new();
                while let Some((name, after)) = split_first(rest) {
                    names.push(name.to_vec());
                    rest = after;
                }
                todo.linked.extend(names.into_iter().rev());
            } else {
                way.at.push(ino);
            }
        }
        let end = *way.at.last().expect("the root stays");
        if is_dir && self.kind(end).await? != FileType::Dir {
            return Err(FsError::NotDir);
        }
        Ok(end)
    }

    /// The kind of an inode.
    pub(crate) async fn kind(&self, ino: Ino) -> FsResult<FileType> {
        match self.fs().kind_in_memory(ino) {
            Some(kind) => Ok(kind),
            None => Ok(self.fs().attr(ino).await?.kind),
        }
    }
}

/// The first name of a path and what follows it; no name is empty or `.`.
fn split_first(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = path;
    loop {
        let start = rest.iter().position(|b| *b != b'/')?;
        rest = &rest[start..];
        let (name, after) =
            rest.split_at(rest.iter().position(|b| *b == b'/').unwrap_or(rest.len()));
        if name != b"." {
            return Some((name, after));
        }
        rest = after;
    }
}

/// The last name of a path and what precedes it; no name is empty or `.`.
fn split_last(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = path;
    loop {
        let end = rest.iter().rposition(|b| *b != b'/')? + 1;
        let start = rest[..end].iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
        let (before, name) = rest[..end].split_at(start);
        if name != b"." {
            return Some((before, name));
        }
        rest = before;
    }
}

#[cfg(test)]
mod tests {
    use super::{End, split_first, split_last};

    #[test]
    fn how_a_path_ends() {
        for (path, end) in [
            ("a", End::Name),
            ("/b/a", End::Name),
            ("..a", End::Name),
            ("a/", End::Slash),
            ("b//a//", End::Slash),
            ("", End::Dot),
            ("/", End::Dot),
            (".", End::Dot),
            ("a/./", End::Dot),
            ("..", End::DotDot),
            ("a/../", End::DotDot),
        ] {
            assert_eq!(End::of(path.as_bytes()), end, "{path}");
        }
    }

    #[test]
    fn names_of_a_path() {
        for path in ["", "/", "a", "/a/", "a/b", "//a/.//b/./", ".", "./..", "a/../b.c/.d", "..."] {
            let path = path.as_bytes();
            let right: Vec<&[u8]> =
                path.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".").collect();
            let (mut ours, mut rest) = (Vec::new(), path);
            while let Some((name, after)) = split_first(rest) {
                ours.push(name);
                rest = after;
            }
            assert_eq!(ours, right);
            let (mut ours, mut rest) = (Vec::new(), path);
            while let Some((before, name)) = split_last(rest) {
                ours.insert(0, name);
                rest = before;
            }
            assert_eq!(ours, right);
        }
    }
}
