//! There and back: images that our mounted file systems leave, mounted, read and changed by a real
//! kernel in a guest, and mounted here again.
//!
//! Picture:    program, played here -> image -> guest: mount, list, change, list, unmount -> image
//!             -> our check and listing -> mount here, another program -> check; and with more
//!             rounds to the guest again. Or the first image is the real mkfs'.
//! Cuts:       half of our images are left without an unmount, and in every second round the
//!             guest's, which lists a copy that it has mounted, and so recovered.
//! Zones:      the guest has a zoned null_blk, into which the image is written zone by zone up to
//!             our write pointers; the pointers come back as a report of zones.
//! Source:     the guest is a User-Mode Linux ([`Kernel`]).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;
use wp_base::plain::Shown as _;
use wp_base::{Sector, Zone, zone_report};
use wp_campaign::{Bench, Extras, Source, leave};
use wp_machine::MachineError;
use wp_machine::files::{load, save};
use wp_medium::{Medium, MediumView, Sound, WithZones};
use wp_vfs::{FsEntry, Inspection, ListedFile, Options};

use crate::kernel_lab::Kernel;
use crate::vtime::guest::{MEMORY_MIB, compile};

mod zoned;

/// Seconds that a boot may take on the host.
const BOOT_SECONDS: u64 = 300;
/// Calls of a program, about.
const CALLS: u32 = 60;

/// What became of one image.
#[derive(Clone, Debug, Serialize)]
pub struct Trip {
    /// Seed of its programs.
    pub seed: u64,
    /// Was it left as a power failure leaves it, and recovered by the kernel?
    pub crashed: bool,
    /// Files that the kernel found.
    pub files: usize,
    /// Files after it had changed some.
    pub after: usize,
    /// What differs, at most a few lines of each kind.
    pub differences: Vec<String>,
}

/// Programs for images, and what is done with them.
#[derive(Clone)]
pub struct Plan<'a> {
    /// File system.
    pub fs: &'static FsEntry,
    /// Its options.
    pub options: &'a Options,
    /// Options of the kernel's mount, joined by commas.
    pub kernel_mount: &'a str,
    /// First seed, and how many.
    pub seeds: (u64, u64),
    /// On a zoned device.
    pub zoned: bool,
    /// Arguments of the real mkfs (`mkfs.NAME`), which makes the first image; `None`: ours is
    /// first.
    pub real_mkfs: Option<&'a str>,
    /// How often an image goes there and comes back.
    pub rounds: u64,
}

/// Bytes of an image; of a btrfs more, as it has to be.
const BYTES: u64 = 64 << 20;
const BTRFS_BYTES: u64 = 256 << 20;

impl Plan<'_> {
    /// Where our side's programs are played.
    fn bench(&self) -> Result<Bench, MachineError> {
        let fresh = Bench::of(self.fs, self.options.clone())?;
        let params = match self.zoned {
            true => zoned::params(),
            false => vec![("capacity_bytes".to_owned(), self.bytes())],
        };
        Ok(Bench { stale: false, device_params: params, ..fresh })
    }

    /// Bytes of a device without zones.
    fn bytes(&self) -> u64 {
        if self.fs.name == "btrfs" { BTRFS_BYTES } else { BYTES }
    }

    /// Is what the guest has left of this round a cut?
    fn is_cut_there(&self, round: u64) -> bool {
        !self.zoned && round % 2 == 1
    }
}

/// An image, and the zones of its device, if it has any.
struct Image {
    view: MediumView,
    zones: Vec<Zone>,
}

/// An image on its way.
struct Traveller {
    n: u64,
    /// `None`: a kernel could not mount it, and it stays there.
    image: Option<Image>,
    /// Did we leave it without an unmount?
    is_cut: bool,
    trip: Trip,
}

/// What a program that judges images of a file system has against one; nothing if there is no such
/// program, or nothing to be said.
fn judged(fs: &FsEntry, image: &Path) -> Option<String> {
    if fs.name != "btrfs" {
        return None;
    }
    let args = ["check", "--readonly", "--check-data-csum"];
    let out = Command::new("btrfs").args(args).arg(image).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    (!out.status.success()).then_some(text)
}

/// An image that the real mkfs makes. Errors: it is not here, or refuses.
fn really_made(plan: &Plan<'_>, args: &str, file: &Path) -> Result<Medium, String> {
    let at = |e: std::io::Error| format!("{}: {e}", file.shown());
    std::fs::File::create(file).and_then(|f| f.set_len(plan.bytes())).map_err(at)?;
    let program = format!("mkfs.{}", plan.fs.name);
    let made = Command::new(&program)
        .arg(if plan.fs.name == "ext4" { "-F" } else { "-f" })
        .args(args.split_whitespace())
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    if !made.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&made.stderr)));
    }
    load(file).map(|(medium, _)| medium).map_err(at)
}

/// Takes images there and back, all in one boot a round. Every second one is left as a power
/// failure leaves it.
///
/// Errors: a machine that cannot be, a guest that does not start or end.
pub fn trips(kernel: &Kernel, scratch: &Path, plan: &Plan<'_>) -> Result<Vec<Trip>, String> {
    let share = scratch.join("share");
    let at = |e: std::io::Error| format!("{}: {e}", share.shown());
    if share.exists() {
        std::fs::remove_dir_all(&share).map_err(at)?;
    }
    std::fs::create_dir_all(&share).map_err(at)?;
    // Of file systems that share blocks also images with shared blocks.
    let extras = Extras { shares: true, ..Extras::ALL }.on(plan.fs);
    let source = Source::Wild { seed: plan.seeds.0, calls: CALLS, extras };
    let text = |e: MachineError| e.to_string();
    let bench = plan.bench().map_err(text)?;
    if plan.zoned {
        compile(zoned::ZONES_C, &share.join("zones"))?;
    }
    let mut all = Vec::new();
    for n in 0..plan.seeds.1 {
        let crashed = n % 2 == 1;
        let (image, is_cut) = match plan.real_mkfs {
            None => {
                let (fresh, program) = (bench.image().map_err(text)?, source.program(2 * n));
                let left = leave(&bench, (fresh, &[]), &program, !crashed).map_err(text)?;
                (Image { view: left.0, zones: left.1 }, crashed)
            }
            Some(args) => {
                let medium = really_made(plan, args, &share.join("made"))?;
                let view = MediumView { medium, start: Sector(0), bytes: plan.bytes() };
                (Image { view, zones: Vec::new() }, false)
            }
        };
        let seed = plan.seeds.0 + 2 * n;
        let trip = Trip { seed, crashed, files: 0, after: 0, differences: Vec::new() };
        all.push(Traveller { n, image: Some(image), is_cut, trip });
    }
    for round in 0..plan.rounds {
        visit(kernel, &share, plan, round, &mut all)?;
        for t in &mut all {
            let Some(Image { view, zones }) = t.image.take() else { continue };
            let n = 2 * (t.n + round * plan.seeds.1) + 1;
            t.is_cut = t.trip.crashed && round + 1 < plan.rounds;
            match leave(&bench, (view.medium, &zones), &source.program(n), !t.is_cut) {
                Ok((view, zones)) => t.image = Some(Image { view, zones }),
                Err(e) => t.trip.differences.push(format!("mounted here again: {e}")),
            }
        }
    }
    for t in &mut all {
        let Some(image) = &t.image else { continue };
        let differs = &mut t.trip.differences;
        sound("ours again", plan, image, (None, false), differs);
        let file = share.join("ours");
        save(&image.view.medium, image.view.start, image.view.bytes, &file).map_err(at)?;
        differs.extend(judged(plan.fs, &file).map(|said| format!("ours again: {said}")));
    }
    Ok(all.into_iter().map(|t| t.trip).collect())
}

/// Has the guest mount, list and change all images, in one boot, and takes them back.
fn visit(
    kernel: &Kernel,
    share: &Path,
    plan: &Plan<'_>,
    round: u64,
    all: &mut [Traveller],
) -> Result<(), String> {
    let at = |e: std::io::Error| format!("{}: {e}", share.shown());
    let mount = match plan.kernel_mount {
        "" => String::new(),
        options => format!(",{options}"),
    };
    let device = if plan.zoned { zoned::DEVICE } else { DEVICE };
    let mut steps = format!("{device}{SETUP}");
    steps = steps.replace("TYPE", plan.fs.name).replace("MOUNT", &mount);
    let end = if plan.is_cut_there(round) { "cut" } else { "whole" };
    let mut sent = Vec::new();
    for t in all.iter_mut() {
        let Some(image) = t.image.take() else { continue };
        let n = t.n;
        let whole = WithZones::new(&image.view, image.zones.clone());
        let expected =
            (plan.fs.inspect)(&whole, plan.options, true).map_err(|e| format!("image {n}: {e}"))?;
        let file = share.join(format!("{n}.img"));
        save(&image.view.medium, image.view.start, image.view.bytes, &file).map_err(at)?;
        if plan.zoned {
            let pointers = zoned::pointers(&image.zones);
            std::fs::write(share.join(format!("{n}.zones")), pointers).map_err(at)?;
        }
        let kind = if t.is_cut { "crashed" } else { "clean" };
        if let Some(said) = judged(plan.fs, &file).filter(|_| !t.is_cut) {
            t.trip.differences.push(format!("our image: {said}"));
        }
        writeln!(steps, "one {n} {kind} {end} {round}").expect("a string takes it");
        sent.push((t, expected));
    }
    std::fs::write(share.join("run.sh"), steps).map_err(at)?;
    kernel.with_memory(MEMORY_MIB).run_script(share, BOOT_SECONDS)?;
    for (t, expected) in sent {
        t.image = back(share, plan, round, &expected, t)?;
        std::fs::remove_file(share.join(format!("{}.img", t.n))).map_err(at)?;
    }
    Ok(())
}

/// Compares what the kernel found, and takes its image back. `None`: it could not mount it.
fn back(
    share: &Path,
    plan: &Plan<'_>,
    round: u64,
    expected: &Inspection,
    t: &mut Traveller,
) -> Result<Option<Image>, String> {
    let n = t.n;
    let read = |kind: &str| std::fs::read_to_string(share.join(format!("{n}.{kind}")));
    let said = read("err").unwrap_or_default();
    let differs = &mut t.trip.differences;
    if share.join(format!("{n}.failed")).exists() {
        differs.push(format!("the kernel: {}", said.trim()));
        return Ok(None);
    }
    let listing = |kind: &str| {
        let text = read(kind).map_err(|e| format!("{n}.{kind}: {e}"))?;
        tree_of_walk(&text)
    };
    let (theirs, changed) = (listing("before")?, listing("after")?);
    t.trip.files += theirs.len();
    t.trip.after += changed.len();
    compare("ours -> kernel", &tree(&expected.files), &theirs, differs);
    differs.extend(expected.findings.iter().map(|f| format!("our listing: {f}")));
    let image = share.join(format!("{n}.img"));
    let (medium, bytes) = load(&image).map_err(|e| format!("{}: {e}", image.shown()))?;
    let zones = match plan.zoned {
        true => {
            let report = read("report").map_err(|e| format!("{n}.report: {e}"))?;
            zone_report::parse(&report).map_err(|e| format!("{n}.report: {e}"))?
        }
        false => Vec::new(),
    };
    let view = MediumView { medium, start: Sector(0), bytes };
    let theirs = Image { view, zones };
    let is_cut = plan.is_cut_there(round);
    if let Some(said) = judged(plan.fs, &image).filter(|_| !is_cut) {
        differs.push(format!("the kernel's image: {said}"));
    }
    sound("the kernel's image", plan, &theirs, (Some(&changed), is_cut), differs);
    Ok(Some(theirs))
}

/// Our check and listing of an image, which is clean, or cut off (`is_cut`) and recovered for it.
fn sound(
    what: &str,
    plan: &Plan<'_>,
    image: &Image,
    (files, is_cut): (Option<&Tree>, bool),
    differs: &mut Vec<String>,
) {
    let view = WithZones::new(&image.view, image.zones.clone());
    match (plan.fs.check)(&view, plan.options, is_cut, &Sound::default()) {
        // What does no harm may be left by a kernel too.
        Ok(report) => differs.extend(
            report.faults.iter().filter(|f| f.severity != "harmless").take(4).map(|f| {
                format!(
                    "{what}, our check: {} {}: {}, not {}",
                    f.kind, f.place, f.found, f.expected
                )
            }),
        ),
        Err(e) => differs.push(format!("{what}, our check: {e}")),
    }
    match (plan.fs.inspect)(&view, plan.options, true) {
        Ok(i) if i.recovered && !is_cut => differs.push(format!("{what}: not clean")),
        Ok(i) => {
            if let Some(files) = files {
                compare(what, files, &tree(&i.files), differs);
            }
        }
        Err(e) => differs.push(format!("{what}, our listing: {e}")),
    }
}

/// Path -> what is said of it.
type Tree = BTreeMap<String, String>;

fn describe(kind: &str, mode: u32, nlink: u32, size: u64, ino: u64, more: &str) -> String {
    // A directory's size is the file system's own business and is told by both.
    format!("{kind} {mode:o} links {nlink} size {size} inode {ino} {more}")
}

fn tree(files: &[ListedFile]) -> Tree {
    let line = |f: &ListedFile| {
        let hash = f.sha256.clone().filter(|_| f.kind == "file");
        let more = hash.or_else(|| f.target.clone()).unwrap_or_default();
        let text = describe(f.kind, f.mode, f.nlink, f.size, f.ino, &more);
        (f.path.clone(), text)
    };
    files.iter().map(line).collect()
}

/// Reads what the guest's script listed. Errors: a line that is none.
fn tree_of_walk(text: &str) -> Result<Tree, String> {
    let mut hashes: BTreeMap<&str, &str> = BTreeMap::new();
    let mut entries = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        match cells[..] {
            ["S", hash, path] => drop(hashes.insert(path, hash)),
            ["E", kind, mode, nlink, size, ino, path, target] => {
                entries.push((kind, mode, nlink, size, ino, path, target));
            }
            _ => return Err(format!("`{line}` is not a line of a listing")),
        }
    }
    let one = |e: &(&str, &str, &str, &str, &str, &str, &str)| {
        let (kind, mode, nlink, size, ino, path, target) = *e;
        let wrong = || format!("{path}: a number of the listing");
        let kind = match kind {
            "f" => "file",
            "d" => "dir",
            "l" => "symlink",
            "p" => "fifo",
            "s" => "socket",
            "c" => "char",
            "b" => "block",
            other => other,
        };
        let more = if kind == "file" { hashes.get(path).copied().unwrap_or("?") } else { target };
        let text = describe(
            kind,
            u32::from_str_radix(mode, 8).map_err(|_| wrong())?,
            nlink.parse().map_err(|_| wrong())?,
            size.parse().map_err(|_| wrong())?,
            ino.parse().map_err(|_| wrong())?,
            more,
        );
        Ok((path.to_owned(), text))
    };
    entries.iter().map(one).collect()
}

fn compare(what: &str, left: &Tree, right: &Tree, out: &mut Vec<String>) {
    let paths: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    let mut found = Vec::new();
    for path in paths {
        let (a, b) = (left.get(path), right.get(path));
        if a != b {
            let text = |x: Option<&String>| x.cloned().unwrap_or_else(|| "not there".to_owned());
            found.push(format!("{what}: {path}: {} | {}", text(a), text(b)));
        }
    }
    let more = found.len().saturating_sub(6);
    out.extend(found.into_iter().take(6));
    if more > 0 {
        out.push(format!("{what}: {more} more"));
    }
}

/// A loop device over the image, in `$L`.
const DEVICE: &str = r#"
attach() { L=$(losetup -f) && losetup $L /share/$1.img || exit 3; }
detach() { losetup -d $L; }
"#;

/// What the guest does with an image: checks it if it is clean and that can be, lists it, changes
/// it in ways that do not depend on what is there, lists it again.
const SETUP: &str = r#"
list() {
 ( cd /mnt/a
 find . -mindepth 1 -not -path './lost+found*' -printf 'E\t%y\t%m\t%n\t%s\t%i\t%P\t%l\n'
 find . -type f -not -path './lost+found*' -printf '%P\0' | xargs -0 -r sha256sum |
  sed -E 's/^([0-9a-f]{64}) [ *](.*)$/S\t\1\t\2/' ) > $1
}
change() {
 K=kernel$1
 cd /mnt/a
 mkdir $K $K/deep
 for i in 1 2 3 4 5 6 7 8; do seq $i 4000 > $K/f$i; done
 ln $K/f1 $K/deep/again; ln -s ../f2 $K/deep/link
 head -c 3000 /dev/zero | tr '\0' x > $K/small
 n=0
 find . -type f -not -path './kernel*' | sort | while read -r f; do
  n=$((n + 1))
  case $((n % 4)) in
   0) rm "$f" ;;
   1) echo more >> "$f" ;;
   2) mv "$f" $K/deep/m$n ;;
   3) head -c 5000 /dev/zero > "$f" ;;
  esac
 done
 rm $K/f3; sync
 seq 1 20000 > $K/f4; cd /
}
synced() {
 K=kernel$1
 cd /mnt/a
 for i in 5 6 7; do seq $i 300 >> $K/f$i; done
 seq 1 900 > $K/new; mkdir $K/dir; echo short > $K/dir/inside; ln $K/f8 $K/dir/linked
 mv $K/f6 $K/dir/moved; echo unsynced > $K/lost; rm $K/small
 for f in f5 new dir/inside dir/moved dir; do fsync $K/$f; done
 seq 1 500 >> $K/f7; rm $K/f1; cd /
}
one() {
 attach $1
 if [ TYPE.$2 = f2fs.clean ] && ! fsck.f2fs --dry-run $L > /share/$1.err 2>&1; then
  touch /share/$1.failed
 elif mount -t TYPE -o "rwMOUNT" $L /mnt/a 2> /share/$1.err; then
  list /share/$1.before
  change $4 2>> /share/$1.err
  if [ $3 = cut ]; then
   synced $4 2>> /share/$1.err
   cp /share/$1.img /share/$1.cut
  else
   list /share/$1.after
  fi
  umount /mnt/a 2>> /share/$1.err || touch /share/$1.failed
 else
  touch /share/$1.failed; dmesg | tail -n 4 >> /share/$1.err
 fi
 detach $1
 if [ $3 = cut ] && [ ! -e /share/$1.failed ]; then
  cp /share/$1.cut /share/$1.img; attach $1
  if mount -t TYPE -o "rwMOUNT" $L /mnt/a 2>> /share/$1.err; then
   list /share/$1.after; umount /mnt/a
  else
   touch /share/$1.failed; dmesg | tail -n 4 >> /share/$1.err
  fi
  detach $1; mv /share/$1.cut /share/$1.img
 fi
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read_and_differences_are_told_by_path() {
        let text = "E\td\t755\t2\t4096\t12\ta\t\nE\tf\t644\t1\t3\t13\ta/b\t\nS\tff00\ta/b\n";
        let theirs = tree_of_walk(text).expect("a listing");
        assert_eq!(theirs["a/b"], "file 644 links 1 size 3 inode 13 ff00");
        let mut ours = theirs.clone();
        let mut out = Vec::new();
        compare("x", &ours, &theirs, &mut out);
        assert!(out.is_empty(), "{out:?}");
        ours.remove("a/b");
        compare("x", &ours, &theirs, &mut out);
        assert_eq!(out, ["x: a/b: not there | file 644 links 1 size 3 inode 13 ff00"]);
        assert!(tree_of_walk("E\tf\t9\t1\t3\t13\ta\t\n").is_err());
        assert!(tree_of_walk("nonsense\n").is_err());
    }
}
