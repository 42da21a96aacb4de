use super::*;
use wp_base::rng::Rng;

fn drive_of(name: &str, params: &[(&str, u64)]) -> Drive {
    Drive::new(name, wp_device::find(name).unwrap().make(params).unwrap(), Loss::Model)
}

fn request(tag: u64, what: What, at: u64, sectors: u64) -> Request {
    Request { tag, what, at: Sector(at), sectors, fua: false, data: Vec::new() }
}

fn write(tag: u64, at: u64, bytes: &[u8]) -> Request {
    let sectors = bytes.len() as u64 / SECTOR_BYTES;
    Request { data: slices_of(Sector(at), bytes), ..request(tag, What::Write, at, sectors) }
}

/// Lets everything happen; the answers.
pub(super) fn settle(drive: &mut Drive) -> Vec<Answer> {
    let mut out = Vec::new();
    while drive.unanswered() > 0 {
        let at = drive.next().expect("somebody will answer");
        drive.run_until(at);
        out.extend(std::iter::from_fn(|| drive.take()));
    }
    out.extend(std::iter::from_fn(|| drive.take()));
    out
}

fn bytes_of(answer: &Answer) -> Vec<u8> {
    Slice::concat(&answer.data)
}

fn one(drive: &mut Drive, request: Request) -> Answer {
    drive.submit(drive.now(), request);
    settle(drive).pop().unwrap()
}

#[test]
fn what_is_written_is_read_on_every_device_without_zones() {
    for entry in wp_device::DEVICES.iter() {
        let mut drive = drive_of(entry.name, &[]);
        if drive.limits().zones.is_some() {
            continue;
        }
        // Larger than any device takes at once, begun inside a page.
        let unit = u64::from(drive.limits().logical_bytes) / SECTOR_BYTES;
        let mut bytes = vec![0; 3 << 20];
        Rng::stream(1, entry.name).fill(&mut bytes);
        bytes[100_000..200_000].fill(0);
        assert_eq!(one(&mut drive, write(1, unit, &bytes)).status, Ok(()));
        let sectors = bytes.len() as u64 / SECTOR_BYTES;
        let read = one(&mut drive, request(2, What::Read, unit, sectors));
        assert_eq!(bytes_of(&read), bytes, "{}", entry.name);
    }
}

#[test]
fn random_requests_at_depth_read_as_a_plain_array_does() {
    const SECTORS: u64 = 4096;
    let mut drive = drive_of("ssd-128", &[]);
    let mut array = vec![0u8; (SECTORS * SECTOR_BYTES) as usize];
    let mut rng = Rng::stream(7, "drive");
    for round in 0..300u64 {
        let sectors = 1 + rng.below(64);
        let at = rng.below(SECTORS - sectors);
        let range = (at * SECTOR_BYTES) as usize..((at + sectors) * SECTOR_BYTES) as usize;
        match rng.below(4) {
            0 => {
                let answer = one(&mut drive, request(round, What::Read, at, sectors));
                assert_eq!(bytes_of(&answer), array[range], "round {round}");
            }
            1 => {
                let what = What::WriteZeroes { unmap: rng.below(2) == 0 };
                assert_eq!(one(&mut drive, request(round, what, at, sectors)).status, Ok(()));
                array[range].fill(0);
            }
            _ => {
                rng.fill(&mut array[range.clone()]);
                let fua = rng.below(3) == 0;
                let write = Request { fua, ..write(round, at, &array[range]) };
                assert_eq!(one(&mut drive, write).status, Ok(()));
            }
        }
    }
}

#[test]
fn every_request_is_answered_once_however_many_there_are() {
    let mut drive = drive_of("emmc-16", &[]);
    for tag in 0..200 {
        let what = [What::Write, What::Read, What::Flush][tag as usize % 3];
        let rq = match what {
            What::Write => write(tag, tag * 8, &[tag as u8; 4096]),
            What::Flush => request(tag, what, 0, 0),
            what => request(tag, what, tag, 8),
        };
        drive.submit(Time(0), rq);
    }
    let mut tags: Vec<u64> = settle(&mut drive).iter().map(|a| a.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..200).collect::<Vec<_>>());
    assert_eq!(drive.counts().events, 400);
}

#[test]
fn what_no_device_could_do_is_an_error() {
    let mut drive = drive_of("fixed", &[("discard", 0)]);
    let end = drive.limits().sectors;
    for (rq, status) in [
        (request(1, What::Read, end, 8), Status::Io),
        (request(2, What::Read, u64::MAX, 8), Status::Io),
        (request(3, What::Read, 0, 0), Status::Io),
        (request(4, What::Write, 0, 8), Status::Io),
        (request(5, What::Discard, 0, 8), Status::NotSupported),
        (request(6, What::Zone(ZoneOp::Reset), 0, 0), Status::NotSupported),
    ] {
        let tag = rq.tag;
        assert_eq!(one(&mut drive, rq).status, Err(status), "request {tag}");
    }
}

#[test]
fn a_forced_write_is_durable_with_and_without_fua() {
    for name in ["fixed", "fixed-nofua", "ssd-128"] {
        let mut drive = drive_of(name, &[]);
        one(&mut drive, write(1, 8, &[1; 4096]));
        let forced = Request { fua: true, ..write(2, 64, &[2; 4096]) };
        assert_eq!(one(&mut drive, forced).status, Ok(()));
        drive.freeze_now(drive.now()).unwrap();
        let (left, _) = drive.state(1, freeze::Keep::None).unwrap();
        let mut page = [0; 4096];
        left.read_bytes(64 * SECTOR_BYTES, &mut page);
        assert_eq!(page, [2; 4096], "{name}");
    }
}

/// No device takes a discard forced: a flush behind it makes it durable, with FUA or without.
#[test]
fn what_is_discarded_or_zeroed_with_force_does_not_come_back() {
    for name in ["fixed", "fixed-nofua", "ssd-128", "ssd-p16"] {
        for what in [What::Discard, What::WriteZeroes { unmap: true }] {
            let mut drive = drive_of(name, &[]);
            if !drive.limits().discard_zeroes {
                continue;
            }
            let sectors = u64::from(drive.limits().discard_granularity_sectors.max(8));
            let bytes = vec![1; (sectors * SECTOR_BYTES) as usize];
            one(&mut drive, write(1, 0, &bytes));
            one(&mut drive, request(2, What::Flush, 0, 0));
            let forced = Request { fua: true, ..request(3, what, 0, sectors) };
            assert_eq!(one(&mut drive, forced).status, Ok(()));
            drive.freeze_now(drive.now()).unwrap();
            let (left, _) = drive.state(1, freeze::Keep::None).unwrap();
            let mut page = [7; 512];
            left.read_bytes(0, &mut page);
            assert_eq!(page, [0; 512], "{name} {what:?}");
        }
    }
}

#[test]
fn a_drive_that_is_read_only_keeps_what_it_has() {
    let mut drive = drive_of("fixed", &[]);
    one(&mut drive, write(1, 8, &[1; 4096]));
    drive.set_read_only();
    let changes = [
        write(2, 8, &[2; 4096]),
        request(3, What::Discard, 8, 8),
        request(4, What::WriteZeroes { unmap: false }, 8, 8),
    ];
    for request in changes {
        assert_eq!(one(&mut drive, request).status, Err(Status::Io));
    }
    assert_eq!(bytes_of(&one(&mut drive, request(5, What::Read, 8, 8))), [1; 4096]);
}

#[test]
fn a_write_behind_the_end_of_all_addresses_is_refused() {
    let mut drive = drive_of("fixed", &[]);
    for at in [u64::MAX, u64::MAX - 7, drive.limits().sectors] {
        assert_eq!(one(&mut drive, write(1, at, &[1; 4096])).status, Err(Status::Io), "{at}");
    }
}

#[test]
fn the_record_is_what_blkparse_prints() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut drive = drive_of("fixed", &[]);
    drive.record(Log::new(Box::new(file.reopen().unwrap())));
    one(&mut drive, write(1, 8, &[1; 4096]));
    one(&mut drive, request(2, What::Flush, 0, 0));
    drive.end_record().unwrap();
    let text = std::fs::read_to_string(file.path()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].contains("Q   W 8 + 8"), "{text}");
    assert!(lines[3].contains("C   F 0 + 0 [0]"), "{text}");
}

#[test]
fn an_image_file_is_read_and_written_in_place() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let mut drive = Drive::of_file(file.path(), false).unwrap();
    assert_eq!(one(&mut drive, write(1, 16, &[7; 8192])).status, Ok(()));
    assert_eq!(one(&mut drive, request(2, What::Flush, 0, 0)).status, Ok(()));
    let held = std::fs::read(file.path()).unwrap();
    assert_eq!(held[8192..16384], [7; 8192]);
    assert_eq!(bytes_of(&one(&mut drive, request(3, What::Read, 16, 16))), [7; 8192]);
    let zeroed = one(&mut drive, request(4, What::WriteZeroes { unmap: true }, 16, 8));
    assert_eq!(zeroed.status, Ok(()));
    assert_eq!(std::fs::read(file.path()).unwrap()[8192..12288], [0; 4096]);
    let told: u64 = drive.extents(Sector(0), 2048).iter().map(|e| e.sectors).sum();
    assert_eq!(told, 2048);
    assert_eq!(drive.freeze_now(Time(0)), Err(freeze::PowerError::NoModel));
    let mut kept = Drive::of_file(file.path(), true).unwrap();
    assert_eq!(one(&mut kept, write(1, 0, &[1; 512])).status, Err(Status::Io));
}

#[test]
fn a_log_of_writes_replays_to_what_the_drive_holds() {
    use wp_medium::write_log::{Until, WriteLog, write_log};
    let mut drive = drive_of("ssd-128", &[("capacity_bytes", 1 << 24)]);
    drive.keep_writes();
    one(&mut drive, write(1, 8, &[1; 8192]));
    one(&mut drive, request(2, What::Flush, 0, 0));
    one(&mut drive, request(3, What::Discard, 8, 8));
    one(&mut drive, Request { fua: true, ..write(4, 64, &[2; 4096]) });
    let file = tempfile::NamedTempFile::new().unwrap();
    write_log(&mut file.reopen().unwrap(), 512, drive.written()).unwrap();
    let view = wp_machine::files::FileView::open(file.path()).unwrap();
    let log = WriteLog::open(&view).unwrap();
    // Each with a mark where it was submitted and one where it completed.
    assert_eq!(log.entries_count(), 4 * 3);
    let (medium, _) = log.replay(Until::End).unwrap();
    medium.diff(&drive.medium().unwrap(), &mut |at, n| panic!("{n} sectors at {at:?} differ"));
}
