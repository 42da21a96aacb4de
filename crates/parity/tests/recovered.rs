//! Recovery and logs of dm-log-writes against what real kernels found and wrote.

use wp_base::{FsResult, Rng};
use wp_ext4::image::{InspectOptions, inspect};
use wp_machine::files::Bytes;
use wp_machine::testing::reference;
use wp_medium::write_log::{LogEntry, LogFlags, Until, WriteLog, write_log};
use wp_parity::recovered::{rows, unpacked};

#[test]
fn every_image_and_every_mark_recovers_to_the_files_of_every_kernel_that_saw_it() {
    let (rows, _) = rows(&reference("."), &|_, _, _| ()).expect("the reference data can be read");
    for r in &rows {
        assert!(r.is_equal(), "{} by {}: {:?}", r.case, r.kernel, r.difference);
        assert_eq!(r.equal, r.expected, "{}", r.case);
    }
    let of = |prefix: &str| rows.iter().filter(|r| r.case.starts_with(prefix)).count();
    // 15 images, each by two kernels, one by three; the log has eight marks with files.
    assert_eq!((of("ext4-"), of("iolog-ext4@")), (31, 8));
    // 10 images by two kernels, 3 with zones by one.
    assert_eq!((of("f2fs-"), of("iolog-f2fs@")), (23, 8));
    // 5 images by two kernels.
    assert_eq!((of("nilfs2-"), of("iolog-nilfs2@")), (10, 8));
    let refused: Vec<&str> =
        rows.iter().filter(|r| r.refused.is_some()).map(|r| r.case.as_str()).collect();
    assert_eq!(refused, ["ext4-badcsum"]);
}

fn log() -> Bytes {
    unpacked(&reference("iolog-ext4/log.img.zst")).expect("a log")
}

#[test]
fn a_kernels_log_is_written_again_byte_for_byte() {
    let bytes = log();
    let read = WriteLog::open(&bytes).expect("a log");
    let entries: Vec<LogEntry> = read.entries().collect::<FsResult<_>>().expect("all whole");
    assert_eq!(entries.len(), 125);
    let mut ours = Vec::new();
    write_log(&mut ours, read.sector_bytes(), &entries).expect("a vector takes it");
    assert!(ours.len() > 1 << 20);
    assert!(bytes.0[..ours.len()] == ours[..], "not the kernel's bytes");
    let marks = entries.iter().filter(|e| e.flags.has(LogFlags::MARK)).count();
    assert_eq!(marks, 9);
    assert_eq!(read.replay(Until::Mark("none")).err(), Some(wp_base::FsError::NotFound));
}

#[test]
fn a_damaged_log_of_a_kernel_gives_one_error_or_an_image_that_does_no_harm() {
    let mut bytes = log();
    let used = {
        let read = WriteLog::open(&bytes).expect("a log");
        let entries: Vec<LogEntry> = read.entries().collect::<FsResult<_>>().expect("whole");
        let data: u64 = entries.iter().map(|e| 512 * (1 + e.sectors)).sum();
        512 + data as usize
    };
    bytes.0.truncate(used);
    // Where entries start: fields there are what a reader believes.
    let starts: Vec<usize> = {
        let read = WriteLog::open(&bytes).expect("a log");
        let mut at = 512;
        let each = read.entries().map(|e| {
            let start = at;
            at += 512 * (1 + e.expect("whole").sectors as usize);
            start
        });
        each.collect()
    };
    let rounds = std::env::var("ROBUSTNESS_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let mut refused = 0;
    for seed in 0..rounds {
        let mut rng = Rng::stream(seed, "write-log");
        let mut undo = Vec::new();
        for _ in 0..1 + rng.below(3) {
            let at = match rng.below(4) {
                0 => rng.below(28) as usize,
                1 => rng.below(used as u64) as usize,
                _ => starts[rng.below(starts.len() as u64) as usize] + rng.below(32) as usize,
            };
            undo.push((at, bytes.0[at]));
            bytes.0[at] = if rng.below(2) == 0 { rng.next_u64() as u8 } else { bytes.0[at] ^ 1 };
        }
        let cut = if rng.below(4) == 0 { rng.below(used as u64) as usize } else { used };
        let part = Bytes(bytes.0[..cut].to_vec());
        let replayed = WriteLog::open(&part).and_then(|log| log.replay(Until::End));
        match replayed {
            Err(e) => {
                refused += 1;
                assert!(e.to_string().contains("dm-log-writes log"), "seed {seed}: {e}");
            }
            Ok((medium, _)) => {
                let start = wp_base::Sector(0);
                let view = wp_medium::MediumView { medium, start, bytes: 64 << 20 };
                drop(inspect(&view, &InspectOptions { hash: false, ..Default::default() }));
            }
        }
        for (at, old) in undo.into_iter().rev() {
            bytes.0[at] = old;
        }
    }
    assert!(refused > 0);
}
