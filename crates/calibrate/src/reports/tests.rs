use super::*;

fn read(text: &str) -> Input {
    parse("it", text).expect("a report").expect("a right one")
}

const PG: &str = include_str!("../../tests/testdata/pg_test_fsync.txt");
const IOPING: &str = include_str!("../../tests/testdata/ioping.txt");
const IOSTAT: &str = include_str!("../../tests/testdata/iostat.json");

#[test]
fn of_pg_test_fsync_what_is_the_drives_alone_is_taken() {
    let input = read(PG);
    let all: Vec<(String, f64)> =
        input.measured.iter().map(|m| (m.load.name(), m.figures.iops.expect("a rate"))).collect();
    assert_eq!(
        all,
        [
            ("write 8k depth 1 sync".to_owned(), 228.981),
            ("write 8k depth 1 fsync 1".to_owned(), 307.807),
            ("write 8k depth 1 sync".to_owned(), 2.0 * 111.117),
            ("write 16k depth 1 fsync 1".to_owned(), 251.471),
        ]
    );
    assert_eq!(input.skipped.len(), 4, "fsync and open_sync, twice: {:?}", input.skipped);
    assert!(input.measured[0].source.starts_with("it: line 6 (open_datasync)"));
}

#[test]
fn a_rate_that_is_none_and_a_report_without_loads_are_errors_with_their_place() {
    let wrong = PG.replace("307.807", "fast");
    let why = parse("it", &wrong).expect("a report").expect_err("no number");
    assert_eq!(why, "it:7:1: fdatasync: `fast` operations a second");
    let none = "Compare file sync methods using one 8kB write:\n";
    assert!(parse("it", none).expect("a report").is_err());
    let size = "Compare file sync methods using one 3kB write:\n";
    assert!(parse("it", size).expect("a report").expect_err("no size").contains("it:1:33:"));
}

#[test]
fn ioping_has_reads_and_writes_with_their_sync() {
    let input = read(IOPING);
    let [read, write] = &input.measured[..] else { panic!("{input:?}") };
    assert_eq!(read.load.name(), "randread 4k depth 1");
    assert_eq!(read.figures.mean_ns, Some(53_600.0));
    assert_eq!(write.load.name(), "randwrite 16k depth 1 fsync 1");
    assert!((write.figures.iops.expect("a rate") - 1e9 / 8.71e6).abs() < 1e-6);
    assert!(input.skipped[0].1.contains("3 requests"), "{:?}", input.skipped);
}

#[test]
fn a_truncated_report_of_ioping_is_an_error() {
    let end = IOPING.find("min/avg").expect("it is there");
    assert!(parse("it", &IOPING[..end]).expect("a report").is_err());
}

#[test]
fn iostat_has_the_time_of_a_flush_for_disks_that_flush() {
    let input = read(IOSTAT);
    let [m] = &input.measured[..] else { panic!("{input:?}") };
    assert_eq!(m.load.name(), "randwrite 388k depth 1 fsync 9");
    assert_eq!((m.figures.sync_ns, m.figures.iops), (Some(240_000.0), None));
    assert!(input.skipped.iter().any(|(whose, why)| {
        whose == "it: interval 1 (loop4)" && why.contains("FLUSHes a second")
    }));
    let none = "{\"sysstat\": {\"hosts\": []}}";
    assert!(parse("it", none).expect("a report").is_err());
    assert!(parse("it", "{\"sysstat\": ").expect("a report").is_err());
    assert!(parse("it", "{\"jobs\": []}").is_none() && parse("it", "").is_none());
}
