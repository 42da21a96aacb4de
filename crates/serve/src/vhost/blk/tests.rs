use super::*;

fn header(number: u32, sector: u64, data: &[u8], room: usize) -> (Wish, usize) {
    let (wish, slices) = wish(number, Sector(sector), data, room);
    (wish, slices.len())
}

fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
}

#[test]
fn requests_are_what_their_type_says() {
    let drive = |what, at, sectors| Wish::Drive { what, at: Sector(at), sectors };
    assert_eq!(header(kind::IN, 5, &[], 1024).0, drive(What::Read, 5, 2));
    assert_eq!(header(kind::OUT, 5, &[1; 512], 0), (drive(What::Write, 5, 1), 1));
    assert_eq!(header(kind::FLUSH, 5, &[], 0).0, drive(What::Flush, 0, 0));
    assert_eq!(header(kind::ZONE_RESET, 64, &[], 0).0, drive(What::Zone(ZoneOp::Reset), 64, 0));
    assert_eq!(header(kind::ZONE_REPORT, 64, &[], 4096).0, Wish::Report(Sector(64)));
    let append = header(kind::ZONE_APPEND, 64, &[1; 512], 8).0;
    assert_eq!(append, drive(What::Zone(ZoneOp::Append), 64, 1));
}

#[test]
fn what_is_no_request_is_answered_and_not_done() {
    let said = |number, data: &[u8], room| match header(number, 0, data, room).0 {
        Wish::Say(said) => said,
        other => panic!("{other:?}"),
    };
    assert_eq!(said(kind::IN, &[], 0), Said::IoError);
    assert_eq!(said(kind::IN, &[], 513), Said::IoError);
    assert_eq!(said(kind::OUT, &[0; 100], 0), Said::IoError);
    assert_eq!(said(kind::ZONE_APPEND, &[0; 512], 7), Said::IoError);
    assert_eq!(said(4711, &[], 0), Said::Unsupported);
    assert_eq!(said(kind::DISCARD, &[0; 15], 0), Said::IoError);
    assert_eq!(said(kind::DISCARD, &[], 0), Said::IoError);
    assert_eq!(said(kind::DISCARD, &range(0, 8, 1), 0), Said::Unsupported);
    assert_eq!(said(kind::DISCARD, &range(0, u32::MAX, 0), 0), Said::Unsupported);
    assert_eq!(said(kind::WRITE_ZEROES, &range(0, 8, 2), 0), Said::Unsupported);
    assert_eq!(
        said(kind::WRITE_ZEROES, &[range(0, 8, 0), range(8, 8, 0)].concat(), 0),
        Said::IoError
    );
}

#[test]
fn ranges_are_discarded_or_made_zero() {
    let two = [range(0, 8, 0), range(64, 16, 0)].concat();
    let wanted = vec![(What::Discard, Sector(0), 8), (What::Discard, Sector(64), 16)];
    assert_eq!(header(kind::DISCARD, 0, &two, 0).0, Wish::Ranges(wanted));
    let unmap = vec![(What::WriteZeroes { unmap: true }, Sector(8), 8)];
    assert_eq!(header(kind::WRITE_ZEROES, 0, &range(8, 8, 1), 0).0, Wish::Ranges(unmap));
}

#[test]
fn a_report_tells_as_many_zones_as_there_is_room_for() {
    let device = wp_device::find("zn540").unwrap().make(&[]).unwrap();
    let zones = device.zones();
    let report = report(&zones, zones[3].start, 64 + 2 * 64 + 63);
    assert_eq!(report.len(), 64 + 2 * 64);
    assert_eq!(report[..8], 2u64.to_le_bytes());
    assert_eq!(report[64 + 8..64 + 16], zones[3].start.0.to_le_bytes());
    assert_eq!(report[64..72], zones[3].capacity.to_le_bytes());
    assert_eq!(report[64 + 24..64 + 26], [2, 1], "sequential, empty");
}
