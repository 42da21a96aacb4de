//! Journal conflicts and commits beside the published BarrierFS kernel's:
//! `testdata/reference/linux-3.10`.

use std::io::Read;

use wp_base::Sector;
use wp_base::event::Class;
use wp_machine::classify::{Classifier, mark};
use wp_machine::registry;
use wp_machine::testing::reference;
use wp_machine::workload::fsync_last::MARK_FSYNC;
use wp_machine::{Machine, MachineSpec};
use wp_papers::journal_conflict::real::{Reference, beside, parse, run_like};
use wp_papers::journal_conflict::{KERNEL, Load, Outcome, System, TYPES};
use wp_rt::CpuModel;
use wp_vfs::Options;

fn pair(kernel: &str, load: Load) -> (Reference, Outcome) {
    let mode = if load == Load::Varmail { "del" } else { "nodel" };
    let name = format!("linux-3.10/varmail/{kernel}.t4.s7.fsync.{mode}.defaults.quiet.tsv");
    let text = std::fs::read_to_string(reference(&name)).expect("reads");
    let theirs = parse(&text).expect("is understood");
    let system = if kernel == "bfs" { System::BfsDr } else { System::Ext4Dr };
    let ours = run_like(system, load, theirs.threads, 7).expect("runs");
    println!("{kernel} {}\n{}", load.name(), beside(&theirs, &ours));
    (theirs, ours)
}

/// Do two rows name the types in the same order? Types within a tenth of each other have none.
fn same_order(a: &[u64; 6], b: &[u64; 6]) -> bool {
    let far = |x: u64, y: u64| x.abs_diff(y) * 10 > x.max(y);
    let pairs = (0..6).flat_map(|i| (i + 1..6).map(move |j| (i, j)));
    pairs
        .into_iter()
        .all(|(i, j)| !far(a[i], a[j]) || !far(b[i], b[j]) || (a[i] < a[j]) == (b[i] < b[j]))
}

/// Calls by type within an eighth; the same zeros; conflicts an operation of each type within a
/// third, and falling by the same factor within a quarter when nothing is created and deleted; the
/// same order of types; BarrierFS' delayed commits within 15 points, and fsyncs a commit within a
/// sixth.
#[test]
fn calls_zeros_and_the_fall_of_conflicts_are_those_of_the_real_kernel() {
    for kernel in ["bfs", "stock"] {
        let mut per_op = Vec::new();
        for load in [Load::Varmail, Load::NoCreateDelete] {
            let (theirs, ours) = pair(kernel, load);
            for (i, t) in TYPES.iter().enumerate() {
                let what = format!("{kernel} {}: {t}", load.name());
                // A few of thousands are none: map nodes meet when two threads take one file.
                let none = |n: u64, all: u64| n * 1000 < all;
                let (a, b) = (theirs.row("conflict_calls"), &ours.conflicts);
                let (a, b) = (none(a[i], a.iter().sum()), none(b.of_type(t), b.total()));
                assert_eq!(a, b, "{what}: no conflicts, theirs and ours");
                if !a {
                    let a = theirs.row("conflict_calls")[i] as f64 / theirs.operations as f64;
                    let b = ours.conflicts.of_type(t) as f64 / ours.operations as f64;
                    let near = (b / a - 1.0).abs() <= 1.0 / 3.0;
                    assert!(near, "{what}: {a:.3} and {b:.3} conflicts an operation");
                }
                let a = theirs.row("calls")[i] as f64 / theirs.loops as f64;
                let b = ours.accesses.of_type(t) as f64 / ours.loops as f64;
                // Map nodes hang on how long files have grown, and in how many pieces: ours are in
                // more (1.2 calls against 0.5 without creation and deletion).
                let near = if *t == "D" { 1.0 } else { 0.125 };
                assert!(
                    (a - b).abs() <= near * a.max(1.0),
                    "{what}: {a:.2} and {b:.2} calls a loop"
                );
            }
            per_op.push((theirs.per_op(), ours.per_op()));
            let fsyncs = |all: u64, commits: u64| all as f64 / commits as f64;
            let a = fsyncs(theirs.fsyncs, theirs.single["commits"]);
            let b = fsyncs(ours.fsyncs, ours.counter("commits"));
            let what = format!("{kernel} {}", load.name());
            assert!((b / a - 1.0).abs() <= 1.0 / 6.0, "{what}: {a:.2} and {b:.2} fsyncs a commit");
            let delayed = ours.counter("delayed_commits") as f64 / ours.counter("commits") as f64;
            let (a, b) = (theirs.delayed(), delayed);
            assert!((a - b).abs() <= 0.15, "{what}: {a:.3} and {b:.3} of the commits delayed");
            if kernel == "bfs" {
                let theirs = theirs.row("conflict_calls");
                let ours = TYPES.map(|t| ours.conflicts.of_type(t));
                assert!(same_order(&theirs, &ours), "{what}: {theirs:?} and {ours:?}");
            }
        }
        let [(a, b), (c, d)] = per_op[..] else { unreachable!("two loads") };
        let (theirs, ours) = (a / c, b / d);
        println!("{kernel}: conflicts an operation fall by {theirs:.2}, ours by {ours:.2}");
        assert!((ours / theirs - 1.0).abs() <= 0.25, "{kernel}: {theirs:.2} and {ours:.2}");
    }
}

/// A request as both have it: who sent it, blkparse's letters, sectors, what it is.
type Sent = (String, String, u32, &'static str);

/// Whose request it is: the program's, the commit thread's, the flush thread's; or of whoever
/// completed the flush before it.
fn issuer(comm: &str) -> String {
    match comm {
        "wx" | "w2" => "program",
        c if c.starts_with("jbd2cp/") => "flush thread",
        c if c.starts_with("jbd2/") => "commit thread",
        _ => "somebody",
    }
    .to_owned()
}

/// Writes and flushes that the reference dispatched within half a second of the call.
fn theirs(name: &str) -> Vec<Sent> {
    let path = reference(&format!("linux-3.10/fsync/{name}.events.tsv.zst"));
    let packed = std::fs::read(path).expect("reads");
    let mut text = String::new();
    let mut unpacked = zstd::stream::read::Decoder::new(&packed[..]).expect("unpacks");
    unpacked.read_to_string(&mut text).expect("is text");
    let rows = text.lines().filter_map(|line| {
        let f: Vec<&str> = line.split('\t').collect();
        let [at, "D", who, rwbs, _, sectors, class] = f[..] else { return None };
        let within = at.parse::<f64>().is_ok_and(|t| (0.0..0.5).contains(&t));
        let what = match class {
            "flush" => "flush",
            c if c.starts_with("journal") => "journal",
            _ => "data",
        };
        let sectors: u32 = sectors.parse().ok()?;
        (within && !rwbs.contains('R')).then(|| (issuer(who), rwbs.to_owned(), sectors, what))
    });
    rows.collect()
}

/// Ours, of the same program.
fn ours(options: &str, case: &str, files: u32) -> Vec<Sent> {
    let fs = registry::FILE_SYSTEMS[0];
    let text = format!("era={KERNEL},journal_mb=128,noinit_itable{options}");
    let spec = MachineSpec {
        seed: 1,
        cpu: CpuModel::free(),
        device: "fixed".to_owned(),
        device_params: vec![("capacity_bytes".to_owned(), 4 << 30), ("fua".to_owned(), 0)],
        more: Vec::new(),
        elevator: "cfq".to_owned(),
        start: Sector(0),
        sectors: None,
        fs,
        fs_options: Options::parse(&text, fs.options).expect("known"),
        disk: "vda".to_owned(),
        device_number: (254, 0),
        kernel: (3, 10),
    };
    let m = Machine::new(spec, None).expect("builds");
    let vfs = m.mount().expect("mounts");
    m.record(Class::ALL);
    let workload =
        registry::find("workload", registry::WORKLOADS, |w| w.name, "fsync-last").expect("known");
    let text = format!("n={files},case={case}");
    let o = Options::parse(&text, workload.options).expect("known");
    let v = vfs.clone();
    m.block_on("wx", async move { (workload.run)(&v, &o).await }).expect("ends").expect("runs");
    let records = m.rt.probe().take();
    m.unmount(&vfs).expect("unmounts");
    let zero = mark(&records, MARK_FSYNC).expect("the call is marked");
    let spec = m.spec();
    let named = Classifier::new(spec.fs, &spec.fs_options, &m.view(), spec.start).expect("reads");
    let lines = named.lines(&records, zero).into_iter();
    let within = lines.filter(|l| {
        l.action == 'D'
            && (0..500_000_000).contains(&l.ns_from_fsync_start)
            && !l.rwbs.contains('R')
    });
    within
        .map(|l| {
            let class = l.class.to_string();
            let what = match class.as_str() {
                _ if l.sectors == 0 => "flush",
                c if c.starts_with("journal") => "journal",
                _ => "data",
            };
            (issuer(&l.comm), l.rwbs.clone(), l.sectors, what)
        })
        .collect()
}

/// Classes, order, and where flushes stand; who sent what, but for what the completion of a flush
/// sends, which is whoever's turn it is.
#[test]
fn an_fsync_sends_what_the_real_kernel_sends() {
    let bfs = ",journaling=barrier";
    let cases = [
        ("bfs.allocating.n10.cfq.s1.defaults.fsync", bfs, "alloc", 10),
        ("bfs.extend_in_block.n10.cfq.s1.defaults.fsync", bfs, "extend", 10),
        (
            "bfs.allocating.n10.cfq.s1.defaults.fbarrier",
            ",journaling=barrier,ordering_only",
            "alloc",
            10,
        ),
        ("stock.allocating.n1.cfq.s1.defaults.fsync", "", "alloc", 1),
        ("stock.allocating.n10.cfq.s1.defaults.fsync", "", "alloc", 10),
        ("stock.allocating.n100.cfq.s1.defaults.fsync", "", "alloc", 100),
        ("stock.extend_in_block.n10.cfq.s1.defaults.fsync", "", "extend", 10),
        ("stock.overwrite.n10.cfq.s1.defaults.fsync", "", "over", 10),
        ("stock.allocating.n10.cfq.s1.nobarrier.fsync", ",nobarrier", "alloc", 10),
    ];
    for (name, options, case, files) in cases {
        let theirs = theirs(name);
        let ours = ours(options, case, files);
        let bare = |all: &[Sent]| -> Vec<(String, u32, &'static str)> {
            all.iter().map(|(_, rwbs, n, what)| (rwbs.clone(), *n, *what)).collect()
        };
        println!("{name}\n  theirs {theirs:?}\n  ours   {ours:?}");
        let (a, b) = (bare(&theirs), bare(&ours));
        assert_eq!(a.len(), b.len(), "{name}");
        for ((letters, n, what), (our_letters, m, our_what)) in a.iter().zip(&b) {
            assert_eq!((letters, what), (our_letters, our_what), "{name}");
            // Ten files' inodes lie in one block there and in two here: other inodes come before.
            let near = if *what == "journal" && *n > 8 { 8 } else { 0 };
            assert!(n.abs_diff(*m) <= near, "{name}: {n} and {m} sectors of {what}");
        }
        if name.starts_with("bfs") {
            let who = |all: &[Sent]| all.iter().map(|s| s.0.clone()).collect::<Vec<_>>();
            assert_eq!(who(&ours), who(&theirs), "{name}");
        }
    }
}
