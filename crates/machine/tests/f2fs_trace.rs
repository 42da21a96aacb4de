//! What an fsync sends on a real F2FS (Linux 6.18, loop device), and on ours: every bio of it, with
//! flags, length and block.

use wp_machine::workload::fsync_create::CASES;

use crate::fsync_bios;
use crate::fsync_bios::{Bio, recorded, summaries};

/// The modes, and our options for them.
const MODES: [(&str, &str); 4] = [
    ("posix", ""),
    ("strict", "fsync_mode=strict"),
    ("nobarrier", "nobarrier"),
    ("lfs", "mode=lfs"),
];

/// Both parts of the recorded program in one mode.
fn ours(options: &str, files: u32, bytes: u32) -> Vec<Vec<Bio>> {
    fsync_bios::ours(&wp_f2fs::ENTRY, &format!("era=6.18,{options}"), files, bytes)
}

#[test]
fn an_fsync_sends_what_linux_6_18_sends() {
    for (name, bytes) in [("summary_2k.json", 2048), ("summary_4k.json", 4096)] {
        let all = summaries(name);
        let mut compared = 0;
        for (mode, options) in MODES {
            for files in [1, 100] {
                let found = ours(options, files, bytes);
                for (case, ours) in CASES.iter().zip(found) {
                    let Some(theirs) = all.get(&format!("f2fs-{mode}-N{files}-{case}")) else {
                        continue;
                    };
                    assert_eq!(ours, *theirs, "{name}: {mode}, {files} files, {case}");
                    compared += 1;
                }
            }
        }
        assert_eq!(compared, 16, "{name}");
    }
}

/// Of ten files there are binary traces only.
#[test]
fn an_fsync_of_one_in_ten_files_sends_what_linux_6_18_sends() {
    let mut compared = 0;
    for (size, bytes) in [("2k", 2048), ("4k", 4096)] {
        for (mode, options) in MODES {
            let found = ours(options, 10, bytes);
            for (case, ours) in CASES.iter().zip(found) {
                let name = format!("{size}.f2fs-{mode}-N10-{case}.tr.blktrace");
                let theirs = recorded(&name);
                assert!(!theirs.is_empty(), "{name}");
                assert_eq!(ours, theirs, "{name}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 16);
}
