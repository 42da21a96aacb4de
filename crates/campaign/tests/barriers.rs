//! BarrierFS and CJFS under power failures: on a device that keeps the order of barrier writes
//! nothing that was put in order is torn apart, and nothing durable is lost.
//!
//! The same with 100,000 states that are recovered and checked, and more:
//! `writepath crash ordered --fs ext4,era=3.10.61,journaling=barrier --device
//! fixed,barrier_writes=1 --count 1700`.

use wp_campaign::programs::ordered;
use wp_campaign::wild::Extras;
use wp_campaign::{Bench, Campaign, Findings, Source, run};
use wp_crash::Rule;
use wp_workload::program::Program;

/// The device keeps the order, or says that it does not.
fn bench(options: &str, keeps_order: bool) -> Bench {
    let fresh = Bench::new(&wp_ext4::ENTRY, options).expect("options of ext4");
    let mut device_params = fresh.device_params.clone();
    device_params.push(("barrier_writes".to_owned(), u64::from(keeps_order)));
    Bench { device_params, ..fresh }
}

fn cut(bench: Bench, source: Source, count: u64) -> Findings {
    let f =
        run(&Campaign { check: true, ..Campaign::new(bench, source, (0, count)) }, 2, &|_| true);
    assert!(f.not_played.is_empty(), "{:?}", f.not_played);
    f
}

fn assert_clean(what: &str, f: &Findings) {
    assert_eq!(f.totals.broken.iter().sum::<u64>(), 0, "{what}: {:#?}", f.found);
}

const CURE: &str = "jh_versions=3,coalesce,compound_flush=3";

#[test]
fn what_was_put_in_order_stays_in_order_on_a_device_that_keeps_it() {
    let cure = |base: &str| format!("{base},{CURE}");
    let made = Source::Made { seed: 1, make: ordered::logs };
    for options in [
        "era=3.10.61,journaling=barrier".to_owned(),
        "era=3.10.61,journaling=barrier,ordering_only".to_owned(),
        "era=4.6,journaling=barrier,data=journal".to_owned(),
        "era=6.18,journaling=barrier,jh_versions=all".to_owned(),
        cure("era=3.10.61,journaling=barrier"),
        cure("era=3.4,journaling=barrier,data=journal,ordering_only"),
    ] {
        let f = cut(bench(&options, true), made.clone(), 6);
        assert_clean(&options, &f);
        assert!(f.totals.distinct > 150, "{options}: {:?}", f.totals);
    }
    // Names, large writes and direct ones. Not 3.8 to 4.6.1, which show old data anyhow.
    let extras = Extras { barriers: true, ..Extras::ALL };
    let wild = Source::Wild { seed: 1, calls: 40, extras };
    for options in ["era=4.6,journaling=barrier".to_owned(), cure("era=4.6,journaling=barrier")] {
        let f = cut(bench(&options, true), wild.clone(), 8);
        assert_clean(&options, &f);
        assert!(f.totals.distinct > 200, "{options}: {:?}", f.totals);
    }
}

#[test]
fn what_fsync_only_orders_may_be_lost_but_not_torn_apart() {
    let text = "open 0 f rw,creat\nopen 1 g rw,creat\npwrite 0 8192 0 1\nfsync 0\n\
                pwrite 1 8192 0 2\nfsync 1\npwrite 0 4096 0 3\nfdatasync 0\npwrite 1 4096 0 4\n\
                fdatasync 1\n";
    let source = || Source::Text(Program::parse(text).expect("a program"));
    let options = "era=3.10.61,journaling=barrier,ordering_only";
    assert_clean(options, &cut(bench(options, true), source(), 1));
    let broken = cut(bench(options, false), source(), 1).totals.broken;
    assert!(broken[Rule::Order as usize] > 0, "{broken:?}");
    // fsync promises no more than that.
    assert_eq!(broken[Rule::LostSync as usize], 0);
}

/// Found by random programs, and reduced.
const FOUND: [(&str, &str); 8] = [
    // Nothing was left to commit, and no barrier was sent behind the data.
    (
        "era=3.10.61,journaling=barrier",
        "open 0 a rw,creat; pwrite 0 8192 0 1; fsync 0; pwrite 0 4096 0 2; fbarrier 0; \
         pwrite 0 4096 4096 3; fsync 0",
    ),
    // The same of data that went past the cache, or that the flusher had sent.
    (
        "era=3.10.61,journaling=barrier",
        "open 0 a rw,creat,direct; open 1 b rw,creat; pwrite 0 8192 0 1; pwrite 1 4096 0 4; sync; \
         pwrite 0 4096 0 2; fdatabarrier 0; pwrite 1 4096 0 3; fdatabarrier 1",
    ),
    (
        "era=3.10.61,journaling=barrier",
        "open 0 a rw,creat; open 1 b rw,creat; pwrite 0 8192 0 1; pwrite 1 4096 0 4; sync; \
         pwrite 0 4096 0 2; nap 31000000; fdatabarrier 0; pwrite 1 4096 0 3; fdatabarrier 1",
    ),
    // The commit that syncfs waits for was asked for without a flush, and was over.
    ("era=3.10.61,journaling=barrier", "open 0 . r; open 1 a rw,creat; syncfs 0"),
    (
        "era=3.10.61,journaling=barrier,data=journal",
        "open 0 . r; open 1 a rw,creat; pwrite 1 4096 0 1; fbarrier 1; nap 300000; syncfs 0",
    ),
    // So was the one that fsync of a directory waits for, and the one of sync.
    (
        "era=3.10.61,journaling=barrier",
        "open 0 . r; mkdir d; fbarrier 0; nap 300000; fsync 0; nap 300000",
    ),
    ("era=3.10.61,journaling=barrier", "open 0 . r; mkdir d; fbarrier 0; nap 300000; sync"),
    // The device got ordered data behind the log's last barrier, with the record.
    (
        "era=3.10.61,journaling=barrier",
        "open 0 . r; open 1 a rw,creat; fbarrier 1; pwrite 1 512 0 1; fbarrier 1; \
         symlink d3/n8/longlonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglong b; \
         syncfs 0",
    ),
];

#[test]
fn programs_that_tore_barriers_apart_no_longer_do() {
    for (options, program) in FOUND {
        let program = Program::parse(&program.replace(';', "\n")).expect("a program");
        let f = cut(bench(options, true), Source::Text(program.clone()), 1);
        assert_clean(&program.to_string(), &f);
        assert!(f.totals.raw > 10, "{program}: {:?}", f.totals);
    }
}

/// Delayed allocation between 3.8 and 4.6.1 (A3) puts no file on its transaction's list, and
/// BarrierFS' kernel is a 3.10.61: a commit that syncfs asks for, when it has sent data without
/// order, shows blocks that have not got theirs. Where the file was synced without those blocks,
/// what was promised is gone as well (O4), and not by a commit that was too early.
#[test]
fn the_hole_of_ordered_mode_is_open_in_dual_mode_in_the_same_kernels() {
    let text = "open 0 . r; open 1 a rw,creat,direct; pwrite 1 4096 0 1; open 2 b rw,creat; \
                open 3 a rw,trunc; syncfs 0; pwrite 3 65536 4096 1; syncfs 0; \
                pwrite 3 4096 0 2; fbarrier 0; symlink n3 c; syncfs 0";
    let program = Program::parse(&text.replace(';', "\n")).expect("a program");
    for (era, is_open) in
        [("3.4", false), ("3.8", true), ("3.10.61", true), ("4.6.1", true), ("4.6.2", false)]
    {
        let options = format!("era={era},journaling=barrier");
        let f = cut(bench(&options, true), Source::Text(program.clone()), 1);
        for rule in Rule::ALL {
            let broken = f.totals.broken[rule as usize] > 0;
            let of_the_hole = matches!(rule, Rule::Exposure | Rule::LostSync);
            assert_eq!(broken, is_open && of_the_hole, "{era} {rule:?}: {:#?}", f.found);
        }
    }
}
