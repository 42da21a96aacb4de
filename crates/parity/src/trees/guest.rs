//! A guest that mounts images, and runs programs itself, one boot for many.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use wp_base::Sector;
use wp_base::plain::Shown as _;
use wp_crash::Survivor;
use wp_machine::files::save;
use wp_medium::{MediumView, Slice};
use wp_vfs::{DeviceNumber, FileFlags, FileType, Stat, TimeSpec};
use wp_workload::program::{Program, Step};

use super::BLOCK;
use crate::host_kernel::{Found, Theirs};
use crate::kernel_lab::Kernel;
use crate::vtime::Config;
use crate::vtime::guest::{MEMORY_MIB, PROG_C, compile};

const TREE_C: &str = include_str!("tree.c");
/// Seconds that a boot may take on the host.
const BOOT_SECONDS: u64 = 600;

/// What a guest does with one image.
pub(super) enum Task {
    /// Mounts this one.
    Mount(MediumView),
    /// Makes a file system of this number of bytes, runs the program, and takes the image of that
    /// moment, which it mounts.
    Run(Program, u64),
}

/// A guest and a folder for what it shares.
pub(super) struct Mounter {
    kernel: Kernel,
    share: PathBuf,
    tree: Vec<u8>,
    prog: Vec<u8>,
    /// Boots so far.
    pub boots: u64,
}

impl Mounter {
    /// Errors: no C compiler; the host's.
    pub fn new(kernel: &Kernel, scratch: &Path) -> Result<Mounter, String> {
        let at = |e: std::io::Error| format!("{}: {e}", scratch.shown());
        let binary = |name: &str, source: &str| {
            let file = scratch.join(name);
            compile(source, &file)?;
            fs::read(&file).map_err(at)
        };
        let (tree, prog) = (binary("tree", TREE_C)?, binary("prog", PROG_C)?);
        let share = scratch.join("share");
        let kernel = kernel.with_memory(MEMORY_MIB);
        Ok(Mounter { kernel, share, tree, prog, boots: 0 })
    }

    /// What the guest's kernel makes of each image. A boot that fails is done again in halves: an
    /// image with which it fails alone is one that its kernel does not survive.
    ///
    /// Errors: those of the host.
    pub fn mount(&mut self, tasks: &[(&Config, &Task)]) -> Result<Vec<Theirs>, String> {
        match self.boot(tasks) {
            Ok(all) => Ok(all),
            Err(Failed::Host(why)) => Err(why),
            Err(Failed::Guest(why)) if tasks.len() == 1 => {
                Ok(vec![Theirs::Refused(format!("the kernel does not survive it: {why}"))])
            }
            Err(Failed::Guest(_)) => {
                let (left, right) = tasks.split_at(tasks.len() / 2);
                let mut all = self.mount(left)?;
                all.extend(self.mount(right)?);
                Ok(all)
            }
        }
    }

    fn boot(&mut self, tasks: &[(&Config, &Task)]) -> Result<Vec<Theirs>, Failed> {
        let share = &self.share;
        let at = |e: std::io::Error| Failed::Host(format!("{}: {e}", share.shown()));
        if share.exists() {
            fs::remove_dir_all(share).map_err(at)?;
        }
        fs::create_dir_all(share).map_err(at)?;
        fs::write(share.join("tree"), &self.tree).map_err(at)?;
        fs::write(share.join("prog"), &self.prog).map_err(at)?;
        let (mut list, mut script) = (String::new(), SETUP.to_owned());
        let line = "a string takes it";
        for (n, (config, task)) in tasks.iter().enumerate() {
            let options = if config.mount.is_empty() { "-" } else { config.mount };
            writeln!(list, "{n} {} {options}", config.fs).expect(line);
            match task {
                Task::Mount(view) => {
                    let file = share.join(format!("{n}.img"));
                    save(&view.medium, view.start, view.bytes, &file).map_err(at)?;
                }
                Task::Run(program, bytes) => {
                    fs::write(share.join(format!("{n}.prog")), timed(program)).map_err(at)?;
                    let (fs, mkfs, mount) = (config.fs, config.mkfs, config.mount);
                    writeln!(script, "own {n} {bytes} {fs} '{mkfs}' '{mount}'").expect(line);
                }
            }
        }
        writeln!(script, "/run/tree < /share/list || exit 4").expect(line);
        fs::write(share.join("list"), list).map_err(at)?;
        fs::write(share.join("run.sh"), script).map_err(at)?;
        self.boots += 1;
        self.kernel.run_script(share, BOOT_SECONDS).map_err(Failed::Guest)?;
        let read = |n: usize| {
            if share.join(format!("{n}.failed")).exists() {
                let said = fs::read_to_string(share.join(format!("{n}.err"))).unwrap_or_default();
                return Ok(Theirs::Refused(format!("mkfs, mount or the run: {}", said.trim())));
            }
            let bytes = fs::read(share.join(format!("{n}.tree"))).map_err(at)?;
            parse(&bytes).map_err(|e| Failed::Host(format!("{n}.tree: {e}")))
        };
        let all = (0..tasks.len()).map(read).collect();
        fs::remove_dir_all(share).map_err(at)?;
        all
    }
}

/// The program with every call timed: the runner goes on after one that fails.
fn timed(program: &Program) -> String {
    let line = |s: &Step| match s {
        Step::Call(..) => format!("@call:0 {s}\n"),
        s => format!("{s}\n"),
    };
    program.0.iter().map(line).collect()
}

enum Failed {
    /// This host cannot go on.
    Host(String),
    /// The guest ended in another way than it should.
    Guest(String),
}

/// What a partition is, as a task. `start`: in bytes.
pub(super) fn image(medium: wp_medium::Medium, (start, bytes): (u64, u64)) -> Task {
    Task::Mount(MediumView { medium, start: Sector(start / wp_base::SECTOR_BYTES), bytes })
}

/// The guest's own run, on a file that the host shows it: what it has written is in the file, and
/// nothing else.
const SETUP: &str = r#"
cp /share/tree /share/prog /run/; chmod +x /run/tree /run/prog
# The runner counts the requests of a device called z0.
mkdir /sys/kernel/config/nullb/z0; echo 1 > /sys/kernel/config/nullb/z0/power
own() {
 truncate -s $2 /share/$1.own && L=$(losetup -f) && losetup $L /share/$1.own || exit 3
 case $3 in
  ext4) mkfs.ext4 -q -F -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 $4 $L ;;
  *) mkfs.$3 -f $4 $L ;;
 esac > /share/$1.err 2>&1 || touch /share/$1.failed
 mount -i -t $3 -o noatime${5:+,$5} $L /mnt/a 2>> /share/$1.err || touch /share/$1.failed
 sync; cp /share/$1.prog /run/p
 /run/prog /run/p /mnt/a exact > /dev/null 2>> /share/$1.err || touch /share/$1.failed
 cp --sparse=always /share/$1.own /share/$1.img
 umount /mnt/a 2> /dev/null || { sleep 1; umount /mnt/a; }
 losetup -d $L; rm /share/$1.own
}
"#;

/// What `tree.c` has written down. Errors: a line that it does not write.
fn parse(text: &[u8]) -> Result<Theirs, String> {
    let mut files: BTreeMap<String, Found> = BTreeMap::new();
    let (mut rest, mut last): (&[u8], Option<Survivor>) = (text, None);
    let keep = |last: &mut Option<Survivor>, files: &mut BTreeMap<String, Found>| {
        if let Some(mut file) = last.take() {
            if let Some(all) = &mut file.xattrs {
                all.sort();
            }
            files.insert(file.path.clone(), Found::File(Box::new(file)));
        }
    };
    loop {
        let end = rest.iter().position(|b| *b == b'\n').ok_or("the end is missing")?;
        let (line, after) = (&rest[..end], &rest[end + 1..]);
        rest = after;
        let line = std::str::from_utf8(line).map_err(|e| e.to_string())?;
        let wrong = || format!("`{line}` is not a line of a tree");
        let cells: Vec<&str> = line.split(' ').collect();
        match (&cells[..], &mut last) {
            (["Z"], _) => {
                keep(&mut last, &mut files);
                return Ok(Theirs::Files(files));
            }
            (["R", errno], _) => return Ok(Theirs::Refused(named(errno))),
            (["E", path, ..], _) => {
                keep(&mut last, &mut files);
                let path = text_of(path).ok_or_else(wrong)?;
                last = Some(entry(path, &cells[2..]).ok_or_else(wrong)?);
            }
            (["U", path, errno], _) => {
                keep(&mut last, &mut files);
                let path = text_of(path).ok_or_else(wrong)?;
                files.insert(path, Found::Unreadable(named(errno)));
            }
            (["X", name, value], Some(file)) => {
                let name = text_of(name).ok_or_else(wrong)?;
                let value = bytes_of(value).ok_or_else(wrong)?;
                file.xattrs.iter_mut().for_each(|all| all.push((name.clone(), value.clone())));
            }
            (["N"], Some(file)) => file.xattrs = None,
            (["D", number, length], Some(file)) => {
                let number: u64 = number.parse().map_err(|_| wrong())?;
                let length: usize = length.parse().map_err(|_| wrong())?;
                let bytes = rest.get(..length).ok_or_else(wrong)?;
                rest = &rest[length..];
                match length == BLOCK as usize {
                    true => file.blocks.push((number, Slice::from_bytes(bytes).id())),
                    false => file.tail = Some(bytes.to_vec()),
                }
            }
            _ => return Err(wrong()),
        }
    }
}

/// The file of a line, from its mode on.
fn entry(path: String, cells: &[&str]) -> Option<Survivor> {
    let [mode, nlink, size, ino, uid, gid, secs, nanos, major, minor, flags, target] = *cells
    else {
        return None;
    };
    let mode = u32::from_str_radix(mode, 8).ok()?;
    let kind = FileType::from_mode(mode)?;
    let stat = Stat {
        mode: mode & 0o7777,
        owner: (uid.parse().ok()?, gid.parse().ok()?),
        mtime: TimeSpec { secs: secs.parse().ok()?, nanos: nanos.parse().ok()? },
        device: DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? },
        flags: FileFlags(flags.parse::<u32>().ok()? & FileFlags::SETTABLE.0),
    };
    Some(Survivor {
        path,
        kind,
        ino: ino.parse().ok()?,
        nlink: nlink.parse().ok()?,
        size: size.parse().ok()?,
        stat: Some(stat),
        target: if kind == FileType::Symlink { Some(text_of(target)?) } else { None },
        xattrs: Some(Vec::new()),
        blocks: Vec::new(),
        tail: None,
        allocated: None,
    })
}

fn bytes_of(cell: &str) -> Option<Vec<u8>> {
    let digits = cell.strip_prefix('-').filter(|d| d.len() % 2 == 0)?;
    (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).ok()).collect()
}

fn text_of(cell: &str) -> Option<String> {
    bytes_of(cell).map(|b| String::from_utf8_lossy(&b).into_owned())
}

/// An error by its name.
fn named(number: &str) -> String {
    let known = number.parse::<i32>().ok().map(std::io::Error::from_raw_os_error);
    known.map_or_else(|| number.to_owned(), |e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_the_guest_is_read_to_its_last_byte() {
        let mut text = b"E -61 100644 2 4099 12 0 7 5 6 0 0 8 -\nX -757365722e61 -00ff\n".to_vec();
        text.extend(b"D 0 4096\n");
        text.extend([b'\n'; 4096]);
        text.extend(b"D 1 3\nab\nE -64 40755 2 4096 13 0 0 1 0 0 0 0 -\nU -642f78 5\nZ\n");
        let Ok(Theirs::Files(files)) = parse(&text) else { panic!("files") };
        let Found::File(a) = &files["a"] else { panic!("a file") };
        let stat = a.stat.expect("known");
        assert_eq!((a.nlink, a.size, a.ino, stat.owner), (2, 4099, 12, (0, 7)));
        assert_eq!((stat.mode, stat.flags), (0o644, FileFlags::SYNC));
        assert_eq!(a.xattrs, Some(vec![("user.a".to_owned(), vec![0, 255])]));
        assert_eq!(a.blocks, [(0, Slice::from_bytes(&[b'\n'; 4096]).id())]);
        assert_eq!(a.tail.as_deref(), Some(&b"ab\n"[..]));
        assert!(matches!(&files["d"], Found::File(d) if d.kind == FileType::Dir));
        assert!(matches!(&files["d/x"], Found::Unreadable(_)));
        assert!(matches!(parse(b"R 117\nZ\n"), Ok(Theirs::Refused(why)) if !why.is_empty()));
        // What is cut off, or no such line, is no tree.
        for cut in [&text[..text.len() - 2], b"E -61 1\nZ\n", b"X -61 -62\nZ\n", b"D 0 9\nabc"] {
            assert!(parse(cut).is_err());
        }
    }
}
