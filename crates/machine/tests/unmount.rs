//! What an unmount asks of the device, beside the kernel of this host.
//!
//! Needs Linux 6.18, root, loop devices, tracefs and findmnt; skipped by name elsewhere.

use std::path::Path;
use std::process::Command;

use wp_base::Sector;
use wp_base::event::{BlockAction, Class, Event, rwbs};
use wp_machine::files;
use wp_machine::profile::Profile;
use wp_machine::registry;
use wp_machine::testing::host::{Asked, Bios, is_linux, run};
use wp_machine::testing::skipped;
use wp_machine::{Machine, MachineSpec};
use wp_medium::Slice;
use wp_vfs::{OpenFlags, Options};

const MIB: u64 = 64;

/// Writes with those that go on where they end in one, flushes one after the other in one: the
/// kernel's `ext4_quota_off` syncs once for each kind of quota, which we have none of.
fn merged(all: impl Iterator<Item = Asked>) -> Vec<Asked> {
    let mut out: Vec<Asked> = Vec::new();
    for (flags, at, sectors) in all {
        match out.last_mut() {
            Some(last) if last.0 == flags && last.1 + u64::from(last.2) == at => last.2 += sectors,
            _ => out.push((flags, at, sectors)),
        }
    }
    out
}

fn image(dir: &Path) -> String {
    let image = dir.join("image");
    std::fs::File::create(&image).and_then(|f| f.set_len(MIB << 20)).expect("made");
    let i = image.display().to_string();
    // Inode tables are zeroed here, so that nothing is left to do after the mount.
    let how = "lazy_itable_init=0,lazy_journal_init=0";
    let args = ["-q", "-F", "-t", "ext4", "-b", "4096", "-E", how, &i];
    assert!(Command::new("mke2fs").args(args).status().is_ok_and(|s| s.success()));
    i
}

/// What Linux `era` asks for here from the program's last call on.
fn ours(image: &str, era: &str) -> Vec<Asked> {
    let fs = registry::FILE_SYSTEMS[0];
    let spec = MachineSpec {
        seed: 1,
        cpu: Profile::known("i7-4770").model(),
        device: "fixed".to_owned(),
        device_params: vec![("capacity_bytes".to_owned(), MIB << 20)],
        more: Vec::new(),
        elevator: "none".to_owned(),
        start: Sector(0),
        sectors: None,
        fs,
        fs_options: Options::parse(&format!("era={era}"), fs.options).expect("known"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (6, 18),
    };
    let (medium, _) = files::load(Path::new(image)).expect("readable");
    let m = Machine::new(spec, Some(medium)).expect("builds");
    let vfs = m.mount().expect("mounts");
    let v = vfs.clone();
    m.block_on("program", async move {
        let fd = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
        v.pwrite(fd, 0, &[Slice::pattern(1, 0, 4096)]).await.expect("writes");
        v.close(fd).await.expect("closes");
    })
    .expect("runs");
    m.record(Class::BLOCK);
    m.unmount(&vfs).expect("unmounts");
    let all = m.rt.probe().take();
    merged(
        all.iter()
            .filter_map(|r| match r.event {
                Event::Block { action: BlockAction::Queue, op, flags, at, sectors, .. } => {
                    Some((rwbs(op, flags), at.0, sectors))
                }
                _ => None,
            })
            .filter(|a| !a.0.starts_with('R')),
    )
}

/// What the host's kernel asks for. `None`: it cannot be asked here.
fn theirs(image: &str, dir: &Path) -> Option<Vec<Asked>> {
    let at = dir.join("mnt");
    std::fs::create_dir(&at).expect("made");
    let m = at.display().to_string();
    let trace = Bios::new(1024).ok()?;
    run("mount", &["-o", "loop", "-t", "ext4", image, &m])?;
    let device = run("findmnt", &["-n", "-o", "MAJ:MIN", &m]);
    std::fs::write(at.join("f"), vec![1; 4096]).expect("written");
    trace.enable(true).expect("traced");
    let unmounted = run("umount", &[&m]).or_else(|| run("umount", &["--lazy", &m]));
    trace.enable(false).expect("traced");
    unmounted.expect("unmounted");
    let asked = trace.asked(&device?).expect("readable");
    let asked = asked.into_iter().filter(|(flags, ..)| !flags.contains('R'));
    Some(merged(asked))
}

#[test]
fn an_unmount_asks_what_the_host_kernel_asks() {
    let dir = tempfile::tempdir().expect("a directory");
    if run("mke2fs", &["-V"]).is_none() {
        skipped("requests of an unmount", "mke2fs is not installed");
        return;
    }
    let image = image(dir.path());
    let asked = ours(&image, "6.18");
    assert!(asked.iter().any(|a| a.0 == "WFSM" && a.1 == 0), "the super block: {asked:?}");
    let old = ours(&image, "3.18");
    let last = old.last().expect("requests");
    assert_eq!((last.0.as_str(), last.1), ("WSM", 0), "without FUA until 4.3");
    if let Err(why) = is_linux("6.18") {
        return skipped("requests of an unmount", &why);
    }
    // Where the commit is when the unmount asks for it is chance there, and a commit that is
    // through already gives a flush more: some run must be as ours.
    let mut others = Vec::new();
    for _ in 0..12 {
        let dir = tempfile::tempdir().expect("a directory");
        let Some(theirs) = theirs(&self::image(dir.path()), dir.path()) else {
            skipped("requests of an unmount", "no loop mounts, no tracefs or no findmnt here");
            return;
        };
        if theirs == asked {
            return;
        }
        others.push(theirs);
    }
    panic!("{asked:?}\nis none of\n{others:#?}");
}
