//! What filebench would only find while it runs: it is told before, with its place.

use crate::fio::{Diagnostic, Place};

use super::super::model::{Fileset, Flowop, Kind, Num};
use super::vars::Vars;

/// Looks at the flowops of a thread, in order.
pub(super) fn thread(list: &[(Flowop, Place)], memory: Num, sets: &[Fileset], vars: &mut Vars) {
    for (f, at) in list {
        one(f, at, memory, sets, vars);
        if let Some(target) = &f.target
            && !matches!(f.kind, Kind::Wakeup | Kind::Sempost)
            && !list.iter().any(|(f, _)| f.name == *target)
        {
            vars.error(at, format!("its target `{target}` is not a flowop of this thread"), "");
        }
    }
    descriptors(list, vars);
}

fn needs_fileset(f: &Flowop) -> bool {
    matches!(
        f.kind,
        Kind::OpenFile | Kind::CreateFile | Kind::MakeDir | Kind::RemoveDir | Kind::ListDir
    ) || matches!(f.kind, Kind::StatFile | Kind::DeleteFile) && f.fd == 0
}

/// Does it read or write in pieces of `iosize`?
fn has_size(kind: Kind) -> bool {
    kind.reads() || kind.writes()
}

fn one(f: &Flowop, at: &Place, memory: Num, sets: &[Fileset], vars: &mut Vars) {
    if f.fileset.is_none() && needs_fileset(f) {
        let message = format!("`{}` needs a fileset", f.kind.name());
        vars.error(at, message, "filesetname=NAME");
    }
    let whole = matches!(f.kind, Kind::ReadWholeFile | Kind::WriteWholeFile);
    if has_size(f.kind) && !whole && f.iosize == Num::Fixed(0) {
        vars.error(at, format!("`{}` needs an iosize above 0", f.kind.name()), "iosize=4k");
    }
    if let (true, Num::Fixed(memory), Num::Fixed(size)) = (has_size(f.kind), memory, f.iosize) {
        let size = size.saturating_add(if f.directio { 512 } else { 0 });
        // An append of a random length needs less, by chance.
        if memory > 0 && size > memory && f.kind != Kind::AppendFileRand {
            let help = format!("thread ...,memsize={size}");
            vars.error(at, "the thread's memsize is below what this reads or writes at once", help);
        }
        if size > 1 << 30 {
            vars.error(at, "a read or write of more than 1 GiB is not supported", "iosize=1g");
        }
    }
    if f.kind == Kind::AioWrite && !f.random {
        vars.error(at, "`aiowrite` needs `random`", "add `random`; filebench supports no other");
    }
    if f.random
        && matches!(f.kind, Kind::Read | Kind::Write | Kind::AioWrite)
        && let (Some(set), Num::Fixed(size)) = (f.fileset.and_then(|i| sets.get(i)), f.iosize)
    {
        let used = if f.workingset == Num::Fixed(0) { set.size } else { f.workingset };
        if let Num::Fixed(used) = used
            && used < size
        {
            vars.error(at, "the file is smaller than what is read or written at once", "");
        }
    }
    if matches!(f.kind, Kind::Wakeup | Kind::Sempost) && f.target.is_none() {
        vars.error(at, format!("`{}` needs a target", f.kind.name()), "target=NAME");
    }
}

/// What is known of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Closed,
    Open,
    /// Opened by a flowop that may have skipped it.
    Either,
}

/// Opens, closes and syncs, twice through the list: filebench ends at a wrong one.
fn descriptors(list: &[(Flowop, Place)], vars: &mut Vars) {
    let mut fds = [Known::Closed; 129];
    for _ in 0..2 {
        for (f, at) in list {
            // Once through a list whose flowops go round the descriptors tells nothing.
            if f.opennext && f.fd == 0 {
                return;
            }
            let Some(fd) = fds.get_mut(f.fd as usize) else { return };
            let wrong = match (f.kind, *fd) {
                (Kind::OpenFile | Kind::CreateFile, Known::Open) => {
                    Some(("opens a file while one is open", "close it first, or give another fd"))
                }
                (Kind::CloseFile, Known::Closed) => {
                    Some(("closes a file that is not open", "open it first"))
                }
                (Kind::Fsync, Known::Closed) => {
                    Some(("syncs a file that is not open", "open it first"))
                }
                (k, Known::Closed) if has_size(k) && f.fileset.is_none() => {
                    Some(("has no open file and no fileset", "filesetname=NAME"))
                }
                _ => None,
            };
            if let Some((what, help)) = wrong {
                let message = format!("`{}` {what} (fd={}): filebench ends here", f.name, f.fd);
                vars.found.push(Diagnostic::error(at, message, help));
                return;
            }
            *fd = match f.kind {
                Kind::OpenFile | Kind::CreateFile => Known::Open,
                Kind::CloseFile => Known::Closed,
                Kind::AppendFileRand if *fd == Known::Closed => Known::Either,
                k if has_size(k) => Known::Open,
                _ => *fd,
            };
        }
    }
}
