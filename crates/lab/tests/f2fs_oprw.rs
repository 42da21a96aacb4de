//! Paper f2fs-oprw on the mounted F2FS.

use wp_lab::paper::f2fs_oprw::{CutPlan, Drive, Mode, cut};

fn counts(mode: Mode, drive: Drive, seeds: u64, cuts: u64) -> wp_lab::paper::f2fs_oprw::CutCounts {
    let plan = CutPlan { mode, drive, seeds: (1, seeds), cuts };
    cut(&plan, 2, &|| true).expect("it runs").expect("not interrupted")
}

#[test]
fn posix_fails_and_the_others_do_not() {
    let t = std::time::Instant::now();
    for (mode, drive) in [
        (Mode::Posix, Drive::PRESET),
        (Mode::StrictFixed, Drive::PRESET),
        (Mode::OprwPosix, Drive::PRESET),
        (Mode::Posix, Drive { plp: true, ..Drive::PRESET }),
        (Mode::Posix, Drive { serial: true, ..Drive::PRESET }),
        (Mode::NoBarrier, Drive::PRESET),
        (Mode::OprwNoBarrier, Drive::PRESET),
    ] {
        let c = counts(mode, drive, 16, 25);
        eprintln!("{:?} {} {:?} {:?}", mode, c.failed, t.elapsed(), c);
    }
}
