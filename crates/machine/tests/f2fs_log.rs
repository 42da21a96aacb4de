//! What a mount of F2FS sends to its device in the era of Linux 6.1, compared with a log that
//! dm-log-writes took of one: mount, files, syncfs, fsyncs, a rename, unmount.

use serde::Deserialize;
use wp_base::event::{BlockAction, Class, Event, Flags, Op, Record};
use wp_base::{Sector, Span};
use wp_machine::testing::reference;
use wp_machine::{Machine, MachineSpec};
use wp_vfs::Options;
use wp_workload::program::{Player, Program, Step};

#[derive(Deserialize)]
struct Manifest {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    sector: u64,
    nr: u64,
    flags: String,
    #[serde(default)]
    mark: Option<String>,
}

/// A bio: first sector, sectors, flags.
type Bio = (u64, u64, String);

/// `iolog_steps.sh` with seed 7: mark, and what is done until it. Each process took some ticks.
const STEPS: [(&str, &str); 7] = [
    (
        "base",
        "open 0 a1 rw,creat\npwrite 0 3007 0 1\nclose 0\nnap 20000\n\
         open 0 a2 rw,creat\npwrite 0 6007 0 2\nclose 0\nnap 20000\n\
         open 0 a3 rw,creat\npwrite 0 9007 0 3\nclose 0\nnap 20000\n\
         open 0 a4 rw,creat\npwrite 0 12007 0 4\nclose 0\nnap 20000\n\
         open 0 a5 rw,creat\npwrite 0 15007 0 5\nclose 0\nnap 20000\n\
         open 0 . r\nsyncfs 0\nclose 0",
    ),
    ("fsync_n1", "open 0 n1 rw,creat\npwrite 0 2021 0 11\nfsync 0\nclose 0"),
    ("fsync_n2", "open 0 n2 rw,creat\npwrite 0 4021 0 12\nfsync 0\nclose 0"),
    ("fsync_n3", "open 0 n3 rw,creat\npwrite 0 6021 0 13\nfsync 0\nclose 0"),
    ("fsync_a2", "open 0 a2 rw\npwrite 0 5000 1000 20\nfsync 0\nclose 0"),
    ("fsync_r3", "rename a3 r3\nnap 20000\nopen 0 r3 r\nfsync 0\nclose 0"),
    ("umount", ""),
];

/// Bios as dm-log-writes has them: with each flush what was complete when it was sent, and one with
/// PREFLUSH and data is an empty one before it.
fn as_logged(records: &[Record]) -> Vec<Bio> {
    let (mut out, mut flying, mut done) = (Vec::new(), Vec::<Bio>::new(), Vec::new());
    for r in records {
        let Event::Block { action, op, flags, at, sectors, .. } = &r.event else { continue };
        let n = u64::from(*sectors);
        match (action, op) {
            (_, Op::Read) => {}
            (BlockAction::Queue, _) => {
                let mut names = Vec::new();
                let listed = [
                    (*op == Op::Discard, "DISCARD"),
                    (*op == Op::Flush, "FLUSH"),
                    (flags.has(Flags::FUA), "FUA"),
                    (flags.has(Flags::META), "META"),
                ];
                names.extend(listed.iter().filter(|(holds, _)| *holds).map(|(_, name)| *name));
                let text = names.join("|");
                if *op == Op::Flush || flags.has(Flags::PREFLUSH) {
                    out.append(&mut done);
                    let text = if n > 0 { format!("FLUSH|{text}") } else { text.clone() };
                    out.push((at.0, 0, text));
                }
                if n > 0 {
                    flying.push((at.0, n, text));
                }
            }
            (BlockAction::Complete, _) => {
                let inside = |bio: &Bio| bio.0 >= at.0 && bio.0 + bio.1 <= at.0 + n;
                let (ended, left) = flying.drain(..).partition::<Vec<_>, _>(inside);
                done.extend(ended);
                flying = left;
            }
            _ => {}
        }
    }
    out.append(&mut done);
    out
}

/// In groups that end with a flush, each sorted: what was complete is logged in no order.
fn groups(sent: &[Bio]) -> Vec<Vec<Bio>> {
    let mut out = vec![Vec::new()];
    for bio in sent {
        let last = out.len() - 1;
        let ends = bio.2.contains("FLUSH");
        if ends {
            out[last].sort();
        }
        out[last].push(bio.clone());
        if ends {
            out.push(Vec::new());
        }
    }
    if let Some(last) = out.last_mut() {
        last.sort();
    }
    out
}

fn ours() -> Vec<Record> {
    let fs = &wp_f2fs::ENTRY;
    let spec = MachineSpec {
        seed: 1,
        cpu: wp_machine::profile::PROFILES[0].model(),
        device: "sata-disk-nofua".to_owned(),
        device_params: Vec::new(),
        elevator: "none".to_owned(),
        more: Vec::new(),
        start: Sector(0),
        sectors: Some((64 << 20) / 512),
        fs,
        fs_options: Options::parse("era=6.1", fs.options).expect("options"),
        disk: "dm-0".to_owned(),
        device_number: (254, 0),
        kernel: (6, 1),
    };
    let machine = Machine::new(spec, None).expect("a machine");
    machine.record(Class(Class::BLOCK.0));
    let vfs = machine.mount().expect("a mount");
    for (mark, text) in STEPS {
        if mark == "umount" {
            machine.unmount(&vfs).expect("an unmount");
        }
        let program = Program::parse(text).expect("a program");
        let (steps, v, rt) = (program.0, vfs.clone(), machine.rt.clone());
        machine
            .block_on("wl", async move {
                let player = Player::new(v);
                for step in &steps {
                    match step {
                        Step::Nap(us) => rt.sleep(Span::micros(*us)).await,
                        Step::Call(_, call) => player.call(call).await.expect("it succeeds"),
                        other => panic!("{other:?}"),
                    }
                }
                rt.sleep(Span::micros(20_000)).await;
            })
            .expect("it ends");
    }
    machine.rt.probe().take()
}

#[test]
fn a_mount_sends_what_linux_6_1_sent() {
    let path = reference("iolog-f2fs/manifest.json");
    let text = std::fs::read_to_string(&path).expect("readable");
    let manifest: Manifest = serde_json::from_str(&text).expect("a manifest");
    let marks: Vec<&str> = manifest.entries.iter().filter_map(|e| e.mark.as_deref()).collect();
    assert!(
        marks.iter().zip(["mkfs"].iter().chain(STEPS.iter().map(|(m, _)| m))).all(|(a, b)| a == b)
    );
    let of_mount = manifest.entries.iter().skip_while(|e| e.mark.as_deref() != Some("mkfs"));
    let theirs: Vec<Bio> =
        of_mount.filter(|e| e.mark.is_none()).map(|e| (e.sector, e.nr, e.flags.clone())).collect();
    let ours = as_logged(&ours());
    // Discards are logged when the log ends, whenever they were done.
    let discards = |all: &[Bio]| -> Vec<Bio> {
        let mut found: Vec<Bio> = all.iter().filter(|b| b.2 == "DISCARD").cloned().collect();
        found.sort();
        found
    };
    assert_eq!(discards(&ours), discards(&theirs));
    let writes =
        |all: Vec<Bio>| -> Vec<Bio> { all.into_iter().filter(|b| b.2 != "DISCARD").collect() };
    let (ours, theirs) = (writes(ours), writes(theirs));
    for (n, (our, their)) in groups(&ours).iter().zip(groups(&theirs)).enumerate() {
        assert_eq!(*our, their, "flush {n}");
    }
    assert_eq!(ours.len(), theirs.len());
    assert!(theirs.len() > 40, "{}", theirs.len());
}
