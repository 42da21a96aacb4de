//! btrfs here and in the kernel of this host: the same calls on the same image, which goes there
//! and back.
//!
//! Picture:  image ─┬─ host: mount, calls, listing, unmount ─ btrfs check ─> image ─┐ one of the
//!                  └─ here: mount, calls, listing, unmount ─ btrfs check ─> image ─┴ two is next
//! Cuts:     a turn that is cut ends without an unmount on either side; what is left, with its log
//!           trees, is then mounted by both, and both must find the same.
//! Left out: times, owners and modes, which differ by the clock and the mount alone.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use wp_base::{Rng, Sector, Span};
use wp_machine::files;
use wp_machine::profile::Profile;
use wp_machine::testing::skipped;
use wp_machine::{Machine, MachineSpec};
use wp_medium::Medium;
use wp_vfs::{OpenFlags, Options, Vfs};

use crate::host::{tool, unmount};
use crate::twin::{
    Call, HostXattrs, Tree, call_or_xattr, host_tree, name, our_tree, ours, share, subvolume,
    wide_call,
};

/// Bytes of an image.
const BYTES: u64 = 256 << 20;

/// A setting: who makes the first image, and how both mount.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// Seed of its calls.
    pub seed: u64,
    /// Arguments of mkfs.btrfs; `None`: our mkfs makes the image.
    pub mkfs: Option<&'static str>,
    /// Options of our mkfs and mount.
    pub ours: &'static str,
    /// Options of the host's mount, beside `loop`.
    pub theirs: &'static str,
}

/// How long a trip is.
#[derive(Clone, Copy, Debug)]
pub struct Trip {
    /// Turns, each of which both sides take on the same image.
    pub turns: u64,
    /// Calls of a turn.
    pub calls: u64,
    /// Is every second turn cut off?
    pub cuts: bool,
}

/// One step of a program.
#[derive(Clone, Debug)]
enum Step {
    Call(Call),
    /// `fsync` of what a name leads to, a directory too.
    Fsync(String),
}

fn program(rng: &mut Rng, calls: u64, from: u64) -> Vec<Step> {
    let mut cloned = None;
    let step = |n| match rng.below(19) {
        0 => Step::Fsync(name(rng)),
        18 => Step::Call(subvolume(rng)),
        16..=17 => Step::Call(share(rng, &mut cloned)),
        1..=8 => Step::Call(wide_call(rng, n)),
        _ => Step::Call(call_or_xattr(rng, n)),
    };
    (from..from + calls).map(step).collect()
}

/// Are the programs here that make and judge images, and make calls? Says which is not.
pub fn has_programs(check: &str) -> bool {
    for program in ["mkfs.btrfs", "btrfs", "fallocate", "python3"] {
        if tool(program, &["--version"]).is_none() {
            skipped(check, &format!("{program} is not installed"));
            return false;
        }
    }
    true
}

/// Can this host mount btrfs, and look at it? Says why not.
pub fn is_possible(check: &str) -> bool {
    if !has_programs(check) {
        return false;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    make(&image, "");
    if let Err(why) = Mounted::new(&image, dir.path(), "") {
        skipped(check, &format!("this host cannot mount a btrfs image: {why}"));
        return false;
    }
    true
}

fn make(image: &Path, args: &str) {
    std::fs::File::create(image).and_then(|f| f.set_len(BYTES)).expect("made");
    let at = image.display().to_string();
    let mut all = vec!["-q", "-f"];
    all.extend(args.split_whitespace());
    all.push(&at);
    let (ok, text) = tool("mkfs.btrfs", &all).expect("mkfs.btrfs is here");
    assert!(ok, "mkfs.btrfs {args}: {text}");
}

/// The kernel knows a btrfs by its uuid, which images that were copied and all of ours share: one
/// is mounted at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// An image that the host's kernel has mounted.
struct Mounted {
    at: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Mounted {
    fn new(image: &Path, dir: &Path, options: &str) -> Result<Mounted, String> {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let at = dir.join("mnt");
        std::fs::create_dir_all(&at).map_err(|e| e.to_string())?;
        let (i, m) = (image.display().to_string(), at.display().to_string());
        let how = if options.is_empty() { "loop".to_owned() } else { format!("loop,{options}") };
        match tool("mount", &["-t", "btrfs", "-o", &how, &i, &m]) {
            Some((true, _)) => Ok(Mounted { at, _alone: alone }),
            Some((false, text)) => Err(text),
            None => Err("mount is not installed".to_owned()),
        }
    }

    fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        host_tree(&self.at, "", &mut tree);
        tree
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let at = self.at.display().to_string();
        if std::thread::panicking() {
            // Nothing of a test that has failed may stay on the host.
            drop(tool("umount", &["--lazy", &at]));
        } else {
            unmount(&at);
        }
    }
}

fn assert_clean(image: &Path, what: &str) {
    let at = image.display().to_string();
    let args = ["check", "--readonly", "--check-data-csum", &at];
    let (ok, text) = tool("btrfs", &args).expect("btrfs is here");
    assert!(ok, "{what}: btrfs check says\n{text}");
}

fn save(medium: &Medium, image: &Path) {
    files::save(medium, Sector(0), BYTES, image).expect("saved");
}

fn load(image: &Path) -> Medium {
    files::load(image).expect("read").0
}

/// A machine on whose device the image is, or that of our mkfs.
fn machine(world: &World, image: Option<Medium>) -> Machine {
    let fs = &wp_btrfs::ENTRY;
    let spec = MachineSpec {
        seed: world.seed,
        cpu: Profile::known("i7-4770").model(),
        device: "ssd-128".to_owned(),
        device_params: Vec::new(),
        more: Vec::new(),
        elevator: String::new(),
        start: Sector(0),
        sectors: Some(BYTES / 512),
        fs,
        fs_options: Options::parse(world.ours, fs.options).expect("known"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (6, 12),
    };
    let m = Machine::new(spec, image).expect("builds");
    // Building a machine does not wait for the image's writes.
    m.rt.run_until(m.rt.now() + Span::secs(20));
    m
}

/// What is mounted here, and then unmounted; the image afterwards is clean.
fn our_view(world: &World, dir: &Path, image: &Path, what: &str) -> (Tree, Medium) {
    let m = machine(world, Some(load(image)));
    let vfs = m.mount().unwrap_or_else(|e| panic!("{what}: {e}"));
    let v = vfs.clone();
    let tree = m.block_on("walk", async move { our_tree(&v).await }).expect("walks");
    m.unmount(&vfs).expect("unmounts");
    let medium = m.view().medium;
    drop(vfs);
    m.rt.cut();
    let file = dir.join("viewed");
    save(&medium, &file);
    assert_clean(&file, &format!("{what}, mounted here"));
    (tree, medium)
}

/// The same of the host's kernel. The image is changed by it, as by every mount.
fn their_view(dir: &Path, image: &Path, what: &str) -> Tree {
    let mounted = Mounted::new(image, dir, "").unwrap_or_else(|e| panic!("{what}: {e}"));
    let tree = mounted.tree();
    drop(mounted);
    assert_clean(image, &format!("{what}, mounted by the kernel"));
    tree
}

async fn our_step(v: &Vfs, step: &Step) -> Result<String, String> {
    let done = match step {
        Step::Call(c) => ours(v, c).await,
        Step::Fsync(path) => match v.open(path, OpenFlags::READ, 0).await {
            Ok(fd) => {
                let done = v.fsync(fd).await;
                v.close(fd).await.and(done).map(|()| String::new())
            }
            Err(e) => Err(e),
        },
    };
    done.map_err(|e| e.errno().to_owned())
}

fn their_step(host: &mut HostXattrs, root: &Path, step: &Step) -> Result<String, String> {
    match step {
        Step::Call(c) => host.ask(root, c),
        Step::Fsync(path) => std::fs::File::open(root.join(path))
            .and_then(|f| f.sync_all())
            .map(|()| String::new())
            .map_err(|e| crate::twin::errno_name(&e)),
    }
}

/// A copy that keeps the holes: images are mostly holes.
fn copy(from: &Path, to: &Path) {
    let (from, to) = (from.display().to_string(), to.display().to_string());
    assert!(tool("cp", &["--sparse=always", &from, &to]).expect("cp is here").0);
}

/// Takes an image there and back. Returns the number of calls that were answered alike.
pub fn there_and_back(world: &World, trip: &Trip) -> u64 {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str| dir.path().join(name);
    let (theirs_file, ours_file) = (file("theirs"), file("ours"));
    let mut start = match world.mkfs {
        Some(args) => {
            make(&theirs_file, args);
            load(&theirs_file)
        }
        None => machine(world, None).view().medium,
    };
    let mut rng = Rng::stream(world.seed, "btrfs calls");
    let mut shared = 0;
    for turn in 0..trip.turns {
        let steps = program(&mut rng, trip.calls, turn * trip.calls);
        let is_cut = trip.cuts && turn % 2 == 1;
        let what = format!("{world:?}, turn {turn}");

        let mut host = HostXattrs::new().expect("python3 starts");
        save(&start, &theirs_file);
        let mounted = Mounted::new(&theirs_file, dir.path(), world.theirs)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let expected: Vec<Result<String, String>> =
            steps.iter().map(|s| their_step(&mut host, &mounted.at, s)).collect();
        let shares = |step: &Step| matches!(step, Step::Call(Call::Share(..)));
        shared += steps.iter().zip(&expected).filter(|(s, want)| shares(s) && want.is_ok()).count();
        let tree = mounted.tree();
        drop(host);
        if is_cut {
            copy(&theirs_file, &file("cut"));
        }
        drop(mounted);
        assert_clean(&theirs_file, &format!("{what}, the kernel's image"));

        let m = machine(world, Some(start));
        let vfs = m.mount().unwrap_or_else(|e| panic!("{what}: {e}"));
        let (v, told) = (vfs.clone(), what.clone());
        let got = m.block_on("calls", async move {
            for (n, (step, want)) in steps.iter().zip(&expected).enumerate() {
                let got = our_step(&v, step).await;
                assert_eq!(got, *want, "{told}, call {n}: {step:?}");
            }
            our_tree(&v).await
        });
        assert_eq!(got.expect("runs"), tree, "{what}");
        if !is_cut {
            m.unmount(&vfs).expect("unmounts");
        }
        let medium = m.view().medium;
        drop(vfs);
        m.rt.cut();
        save(&medium, &ours_file);
        start = if is_cut {
            let cut = file("cut");
            let mut left = Vec::new();
            for (whose, image) in [("the kernel's cut image", &cut), ("our cut image", &ours_file)]
            {
                let what = format!("{what}, {whose}");
                let (found, recovered) = our_view(world, dir.path(), image, &what);
                assert_eq!(found, their_view(dir.path(), image, &what), "{what}");
                left.push(recovered);
            }
            left.swap_remove(usize::from(turn % 4 == 1))
        } else {
            let what = format!("{what}, our image");
            assert_clean(&ours_file, &what);
            assert_eq!(their_view(dir.path(), &ours_file, &what), tree, "{what}");
            let what = format!("{what}, the kernel's image");
            let (found, _) = our_view(world, dir.path(), &theirs_file, &what);
            assert_eq!(found, tree, "{what}");
            // Once one side's, once the other's.
            if turn % 4 < 2 { load(&ours_file) } else { load(&theirs_file) }
        };
    }
    let calls = trip.turns * trip.calls;
    assert!(shared as u64 >= calls / 1000, "{world:?}: {shared} calls shared something");
    println!("{world:?}: {shared} clones, dedupes and copies succeeded");
    calls
}
