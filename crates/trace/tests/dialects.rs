//! Every dialect, written from its description and read to the nanosecond and the sector; what is
//! ambiguous is refused with a choice.

use proptest::prelude::*;
use wp_base::event::Op;
use wp_trace::{Columns, File, Format, Place, Request, Requests, Select, Skip, Trace, TraceError};

const DAY_NS: u64 = 86_400_000_000_000;

fn file(bytes: &[u8]) -> Vec<File<'_>> {
    vec![File { name: "t".to_owned(), from: Box::new(bytes) }]
}

fn all(trace: &mut Trace<'_>) -> Result<Vec<Request>, TraceError> {
    Requests::new(trace, Select { devices: wp_trace::Devices::All, ..Select::default() }).collect()
}

type Short = (u64, Op, u64, u32, Option<u64>, String);

fn short(trace: &Trace<'_>, requests: &[Request]) -> Vec<Short> {
    let one = |r: &Request| {
        let e = &r.event;
        (e.at_ns, e.op, e.at.0, e.sectors, r.done_ns, trace.names().name(e.device).to_owned())
    };
    requests.iter().map(one).collect()
}

/// The format that the content says, and the requests.
fn read(text: &str) -> (Format, Vec<Short>) {
    read_as(text, None)
}

fn read_as(text: &str, format: Option<Format>) -> (Format, Vec<Short>) {
    let mut trace = Trace::open(file(text.as_bytes()), format, false).expect("recognised");
    let requests = all(&mut trace).unwrap_or_else(|e| panic!("{e}"));
    let requests = short(&trace, &requests);
    (trace.format(), requests)
}

fn described(columns: &str, text: &str) -> Result<Vec<Short>, TraceError> {
    let columns = Columns::parse(columns).expect("a description");
    let mut trace = Trace::open_columns(file(text.as_bytes()), &columns, false)?;
    let requests = all(&mut trace)?;
    Ok(short(&trace, &requests))
}

fn at(ns: u64, op: Op, sector: u64, sectors: u32, done: Option<u64>, device: &str) -> Short {
    (ns, op, sector, sectors, done, device.to_owned())
}

#[test]
fn every_dialect_has_its_own_units() {
    let (r, w) = (Op::Read, Op::Write);
    let spc = "0,303567,3584,w,0.000000\n1,55590,3072,R,0.026214\n 2 , 8, 512,W,1.5,note\n";
    let expected = vec![
        at(0, w, 303_567, 7, None, "0"),
        at(26_214_000, r, 55_590, 6, None, "1"),
        at(1_500_000_000, w, 8, 1, None, "2"),
    ];
    assert_eq!(read(spc), (Format::Spc, expected));
    let alibaba =
        "419,W,8792731648,16384,1577808144360767\n725,R,59110326272,4096,1577808144360797\n";
    let expected = vec![
        at(1_577_808_144_360_767_000, w, 17_173_304, 32, None, "419"),
        at(1_577_808_144_360_797_000, r, 115_449_856, 8, None, "725"),
    ];
    assert_eq!(read(alibaba), (Format::Alibaba, expected.clone()));
    let title = format!("device_id,opcode,offset,length,timestamp\n{alibaba}");
    assert_eq!(read(&title), (Format::Alibaba, expected));
    let tencent = "1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1627\n";
    let expected = vec![
        at(1_538_323_200_000_000_000, r, 12_910_952, 128, None, "1063"),
        at(1_538_323_201_000_000_000, w, 6_338_688, 8, None, "1627"),
    ];
    assert_eq!(read_as(tencent, Some(Format::Tencent)).1, expected);
    let title = format!("Timestamp,Offset,Size,IOType,VolumeID\n{tencent}");
    assert_eq!(read(&title), (Format::Tencent, expected));
    // A blank operation was never answered; a blank response time was not recorded.
    let systor = "Timestamp,Response,IOType,LUN,Offset,Size\n\
                  1456135200.013118000,0.001,W,0,4096,4096\n\
                  1456135200.014000000,,R,6,1024,513\n\
                  1456135200.015000000,,,6,1024,512\n";
    let base = 1_456_135_200_000_000_000;
    let expected = vec![
        at(base + 13_118_000, w, 8, 8, Some(base + 14_118_000), "0"),
        at(base + 14_000_000, r, 2, 2, None, "6"),
    ];
    assert_eq!(read(systor), (Format::Systor, expected.clone()));
    let untitled = &systor[systor.find('\n').expect("a title") + 1..];
    assert_eq!(read(untitled), (Format::Systor, expected));
    let mut trace = Trace::open(file(systor.as_bytes()), None, false).expect("recognised");
    all(&mut trace).expect("a trace");
    let skipped = trace.skipped();
    assert_eq!((skipped.count(Skip::NoOperation), skipped.count(Skip::Note)), (1, 1));
    let digest = "56f11b711d91a065a2b6458eca924523";
    let fiu = format!(
        "89968195792462 20782 gzip 283193184 8 R 6 0 {digest}\n\
         89968195801234 4892 syslogd 904265560 16 W 6 1 {digest} {digest}\n"
    );
    let expected = vec![
        at(89_968_195_792_462, r, 283_193_184, 8, None, "6.0"),
        at(89_968_195_801_234, w, 904_265_560, 16, None, "6.1"),
    ];
    assert_eq!(read(&fiu), (Format::Fiu, expected));
    let msr = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
               128166372003061629,usr,0,Read,7014609920,24576,41286\n";
    let base = 12_816_637_200_306_162_900;
    let expected = vec![at(base, r, 13_700_410, 48, Some(base + 4_128_600), "usr.0")];
    assert_eq!(read(msr), (Format::Msr, expected));
}

const FIVE: &str = "938513000 0 264719 16 0\n938828000 0 197570 16 0\n938944000 0 93230 32 1\n";

#[test]
fn five_whole_numbers_are_milliseconds_or_nanoseconds_and_nobody_guesses() {
    let e = Trace::open(file(FIVE.as_bytes()), None, false).err().expect("ambiguous");
    assert_eq!(e.place, Place::Line(1));
    for says in [
        "--format disksim: time ms, address 512 bytes, size 512 bytes, so that these 3 lines span 431 s",
        "--format mqsim (or ssdsim): time ns",
        "so that these 3 lines span 0.000431 s",
        "--columns",
    ] {
        assert!(e.help.contains(says), "{says}: {}", e.help);
    }
    let times = |format| read_as(FIVE, Some(format)).1.iter().map(|r| r.0).collect::<Vec<_>>();
    assert_eq!(times(Format::Mqsim), [938_513_000, 938_828_000, 938_944_000]);
    assert_eq!(Format::find("ssdsim"), Some(Format::Mqsim));
    let ops: Vec<_> =
        read_as(FIVE, Some(Format::Mqsim)).1.iter().map(|r| (r.1, r.2, r.3)).collect();
    let expected = [(Op::Write, 264_719, 16), (Op::Write, 197_570, 16), (Op::Read, 93_230, 32)];
    assert_eq!(ops, expected);
    let disksim: Vec<u64> =
        [938_513_000u64, 938_828_000, 938_944_000].map(|t| t * 1_000_000).into();
    assert_eq!(times(Format::Disksim), disksim);
    // Said, and told: nobody who wanted nanoseconds misses it.
    let mut trace = Trace::open(file(FIVE.as_bytes()), Some(Format::Disksim), false).expect("said");
    all(&mut trace).expect("a trace");
    assert!(trace.notes()[0].contains("--format mqsim"), "{:?}", trace.notes());
    // A fraction anywhere in the beginning is DiskSim's, as are other flags.
    for sure in ["10 0 8 8 1\n10.5 0 8 8 0\n", "0.0 0 1000 8 1\n"] {
        let mut trace = Trace::open(file(sure.as_bytes()), None, false).expect("certain");
        assert_eq!(trace.format(), Format::Disksim);
        all(&mut trace).expect("a trace");
        assert!(trace.notes().is_empty());
    }
}

#[test]
fn what_several_formats_may_be_is_refused_with_a_choice() {
    let tencent = "1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1627\n";
    let e = Trace::open(file(tencent.as_bytes()), None, false).err().expect("anybody's numbers");
    assert!(e.help.contains("--format tencent: time s, address 512 bytes"), "{}", e.help);
    let unknown = "1,2,3\n4,5,6\n";
    let e = Trace::open(file(unknown.as_bytes()), None, false).err().expect("nothing known");
    assert!(e.help.contains("--columns time:ns,lba:512,size:bytes,op"), "{}", e.help);
    for format in Format::ALL {
        assert!(e.help.contains(format.name()), "{} is not in {}", format.name(), e.help);
    }
}

#[test]
fn columns_are_what_their_description_says() {
    let (r, w, d, f) = (Op::Read, Op::Write, Op::Discard, Op::Flush);
    let text = "time;op;lba;bytes\n1;R;2;4096\n2;trim;0x10;8192\n3;FLUSH;0;0\n4;WS;3;100\n";
    let expected = vec![
        at(1_000, r, 2, 8, None, "0"),
        at(2_000, d, 16, 16, None, "0"),
        at(3_000, f, 0, 0, None, "0"),
        at(4_000, w, 3, 1, None, "0"),
    ];
    assert_eq!(described("time:us,op,lba:512,size:bytes", text).expect("a trace"), expected);
    // MiDAS' traces: seconds, a number for each operation, pages of 4 KiB, a stream.
    let text = "0.5 0 7 4096 0\n1.25 1 9 8192 2\n2 3 1 4096 0\n";
    let columns = "time:s,op:r=0/w=1/d=3,lba:4096,size:bytes,dev";
    let expected = vec![
        at(500_000_000, r, 56, 8, None, "0"),
        at(1_250_000_000, w, 72, 16, None, "2"),
        at(2_000_000_000, d, 8, 8, None, "0"),
    ];
    assert_eq!(described(columns, text).expect("a trace"), expected);
    let text = "7,a,1999,5,9,w,2.5,x,y\n";
    let columns = "dev,dev,time:ps,lba:bytes,size:512,op,took:ms,...";
    let expected = vec![at(1, w, 0, 10, Some(2_500_001), "7.a")];
    assert_eq!(described(columns, text).expect("a trace"), expected);
    // A title in front of each of several files; remarks.
    let text = "t,l,s,o\n# a remark\n5,0,512,R\nt,l,s,o\n6,0,512,W\n";
    assert_eq!(described("time:ns,lba:512,size:bytes,op", text).expect("a trace").len(), 2);
}

#[test]
fn descriptions_that_say_too_little_are_refused() {
    let wrong = [
        ("time,lba:512,size:bytes,op", "`time` has no unit"),
        ("time:ns,lba,size:bytes,op", "`lba` has no unit"),
        ("time:ns,lba:512,size,op", "`size` has no unit"),
        ("time:h,lba:512,size:bytes,op", "`h` is no unit of time"),
        ("time:ns,lba:sectors,size:bytes,op", "neither `bytes` nor"),
        ("time:ns,lba:0,size:bytes,op", "neither `bytes` nor"),
        ("time:ns,size:bytes,op", "no column `lba`"),
        ("time:ns,lba:512,size:bytes", "no column `op`"),
        ("time:ns,time:us,lba:512,size:bytes,op", "`time` is there 2 times"),
        ("time:ns,lba:512,size:bytes,op:1=r", "not like r=0"),
        ("time:ns,lba:512,size:bytes,op:r=0/w=0", "there twice"),
        ("time:ns,lba:512?,size:bytes,op", "may be empty"),
        ("...,time:ns,lba:512,size:bytes,op", "must be the last"),
        ("when:ns,lba:512,size:bytes,op", "is no column"),
        ("", "is no column"),
    ];
    for (columns, says) in wrong {
        let e = Columns::parse(columns).expect_err(columns);
        assert!(e.contains(says), "{columns}: {e}");
    }
}

#[test]
fn a_wrong_line_is_named_with_its_field() {
    let columns = "time:ns,lba:512,size:bytes,op";
    let bad = [
        ("1,2,512,R\n1,2,512\n", "not 4 fields but 3"),
        ("1,2,512,R\n1,2,512,R,9\n", "not 4 fields but 5"),
        ("1,2,512,R\nx,2,512,R\n", "field 1 is not a time"),
        ("1,2,512,R\n1,-2,512,R\n", "field 2 is not an address"),
        ("1,2,512,R\n1,2,4k,R\n", "field 3 is not a size"),
        ("1,2,512,R\n1,2,512,1\n", "field 4 is not an operation"),
        ("1,2,512,R\n1,2,512,\n", "field 4 is not an operation"),
        ("1,2,512,R\n1,36893488147419103232,512,R\n", "field 2"),
        ("1,2,512,R\n1,18446744073709551615,512,R\n", "field 2 is not a possible address"),
        ("1,2,512,R\n1,2,9999999999999,R\n", "2 TiB"),
    ];
    for (text, says) in bad {
        let e = described(columns, text).expect_err(text);
        assert!(e.what.contains(says) && e.place == Place::Line(2), "{text}: {e:?}");
        assert!(e.help.contains(columns), "{e:?}");
    }
    let e = described(columns, "1,2,512,R\n1,2,512,R").expect_err("cut off");
    assert!(e.help.contains("--torn-ok"), "{e:?}");
}

#[test]
fn biosnoop_tells_completions_and_latencies() {
    let text = "Tracing block device I/O... Hit Ctrl-C to end.\n\
        TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  LAT(ms)\n\
        0.000000    jbd2/sda1-8    184    sda     W 2694656    12288     6.72\n\
        1.500000    a b c          7      nvme0n1 R 16         512       0.10\n";
    let first = DAY_NS - 6_720_000;
    let second = DAY_NS + 1_500_000_000 - 100_000;
    let expected = vec![
        at(first, Op::Write, 2_694_656, 24, Some(DAY_NS), "sda"),
        at(second, Op::Read, 16, 1, Some(DAY_NS + 1_500_000_000), "nvme0n1"),
    ];
    assert_eq!(read_as(text, Some(Format::Biosnoop)).1, expected);
    let titled = &text[text.find('\n').expect("a line") + 1..];
    assert_eq!(read(titled), (Format::Biosnoop, expected.clone()));
    let queued = titled.replace("BYTES  LAT(ms)", "BYTES QUE(ms) LAT(ms)");
    let queued = queued.replace("     6.72", "  0.01   6.72").replace("  0.10", " 3.00 0.10");
    assert_eq!(read(&queued), (Format::Biosnoop, expected));
    let without = "TIME(ms) COMM PID LAT(ms)\n0 a 1 2\n";
    let mut trace = Trace::open(file(without.as_bytes()), None, false).expect("its title");
    let e = all(&mut trace).expect_err("no sector");
    assert!(e.what.contains("no column"), "{e}");
    let untitled = "0.0 a 1 sda W 8 512 1.0\n";
    let mut trace =
        Trace::open(file(untitled.as_bytes()), Some(Format::Biosnoop), false).expect("said");
    let e = all(&mut trace).expect_err("no title");
    assert!(e.help.contains("TIME(s)"), "{e:?}");
}

/// A record of CloudPhysics: version, operation code, block, bytes, microseconds.
fn vscsi(version: u8, code: u16, block: u64, bytes: u32, us: u64) -> Vec<u8> {
    let (number, entries) = (7u32.to_le_bytes(), 1u32.to_le_bytes());
    let (code, version_field) = (code.to_le_bytes(), u16::from(version) << 8);
    let version_field = version_field.to_le_bytes();
    let (bytes, block, us) = (bytes.to_le_bytes(), block.to_le_bytes(), us.to_le_bytes());
    match version {
        1 => [&number[..], &bytes, &entries, &code, &version_field, &block, &us].concat(),
        _ => [&code[..], &version_field, &number, &bytes, &entries, &block, &us, &[9; 8]].concat(),
    }
}

#[test]
fn records_of_cloudphysics_in_both_versions() {
    for version in [1, 2] {
        let records = [
            vscsi(version, 0x2A, 42_932_745, 512, 5_633_898),
            vscsi(version, 0x12, 0, 36, 5_633_899),
            vscsi(version, 0x88, 8, 4096, 5_633_900),
            vscsi(version, 0x35, 0, 0, 5_633_901),
        ];
        let bytes = records.concat();
        let mut trace = Trace::open(file(&bytes), None, false).expect("recognised");
        assert_eq!(trace.format(), Format::Cloudphysics);
        let requests = all(&mut trace).expect("a trace");
        let expected = [
            at(5_633_898_000, Op::Write, 42_932_745, 1, None, "0"),
            at(5_633_900_000, Op::Read, 8, 8, None, "0"),
            at(5_633_901_000, Op::Flush, 0, 0, None, "0"),
        ];
        assert_eq!(short(&trace, &requests), expected);
        assert_eq!(trace.skipped().count(Skip::DriverCommand), 1);
        let cut = &bytes[..bytes.len() - 3];
        let mut trace = Trace::open(file(cut), None, false).expect("recognised");
        let e = all(&mut trace).expect_err("cut off");
        let last = (bytes.len() - records[3].len()) as u64;
        assert!(e.help.contains("--torn-ok") && e.place == Place::Byte(last), "{e:?}");
        let other = vscsi(3 - version, 0x2A, 1, 512, 1);
        let mixed = [&bytes.repeat(20)[..], &other, &other].concat();
        let mut trace = Trace::open(file(&mixed), None, false).expect("recognised");
        assert!(all(&mut trace).expect_err("mixed").what.contains("another version"));
    }
}

#[test]
fn remarks_and_stacks_are_passed_over_and_counted() {
    let blkparse = "## one I/O\n\
        259,9 2 359 0.001173558 113640 Q WS 75242264 + 8 [a.out]\n\
        259,9 2 363 0.001174249 113640 D WS 75242264 + 8 [a.out]\n\
        # another\n\
        259,9 2 364 0.001180838 0 C WS 75242264 + 8 [0]\n";
    let perf = "fio 12341 [001]  1234.100012: block:block_rq_issue: 8,0 R 4096 () 2097152 + 8 [fio]\n\
        \tffffffff8148c1b1 blk_mq_start_request+0x91 ([kernel.kallsyms])\n\
        \t    7f12a0b1c2d3 [unknown] (/usr/lib/libc.so.6)\n\n\
        swapper 0 [001]  1234.100318: block:block_rq_complete: 8,0 R () 2097152 + 8 [0]\n";
    let ftrace = "# tracer: nop\n\
        fio-1 [001] ..... 1234.100012: block_rq_issue: 8,0 R 4096 () 2097152 + 8 be,0,3 [fio]\n\
        fio-1 [001] ..... 1234.100013: <stack trace>\n => blk_mq_start_request\n => nvme_queue_rq\n\
        fio-1 [001] ..... 1234.100318: block_rq_complete: 8,0 R () 2097152 + 8 be,0,3 [0]\n";
    for (text, notes, stacks) in [(blkparse, 2, 0), (perf, 0, 2), (ftrace, 1, 3)] {
        let mut trace = Trace::open(file(text.as_bytes()), None, false).expect("recognised");
        let requests = all(&mut trace).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(requests.len(), 1);
        assert!(requests[0].done_ns.is_some());
        let skipped = trace.skipped();
        assert_eq!(
            (skipped.count(Skip::Note), skipped.count(Skip::Stack)),
            (notes, stacks),
            "{text}"
        );
    }
}

#[test]
fn every_format_is_found_by_its_name_and_says_its_units() {
    for format in Format::ALL {
        assert_eq!(Format::find(format.name()), Some(format));
        assert!(!format.what().is_empty() && format.units().contains("time"), "{format:?}");
    }
    assert_eq!(Format::find("columns"), None);
}

/// A line or record of each format that has one line a request.
fn samples() -> Vec<(Format, Vec<u8>)> {
    let records = [vscsi(2, 0x2A, 8, 512, 5), vscsi(2, 0x28, 8, 512, 6)].concat();
    vec![
        (Format::Cloudphysics, records),
        (
            Format::Biosnoop,
            b"TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n1.0 a 1 b W 8 512 1.0\n".to_vec(),
        ),
        (Format::Mqsim, FIVE.as_bytes().to_vec()),
        (Format::Spc, b"0,303567,3584,w,0.000000\n1,55590,3072,R,0.026214\n".to_vec()),
        (Format::Alibaba, b"419,W,8792731648,16384,1577808144360767\n".to_vec()),
        (Format::Tencent, b"1538323200,12910952,128,0,1063\n".to_vec()),
        (Format::Systor, b"1456135200.013118000,0.001,W,0,4096,4096\n".to_vec()),
        (Format::Fiu, b"89968195792462 20782 gzip 283193184 8 R 6 0 56f1\n".to_vec()),
    ]
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_of_a_dialect_panic(
        which in 0usize..8,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        torn_ok in any::<bool>(),
    ) {
        let (format, mut bytes) = samples().swap_remove(which);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for format in [Some(format), None] {
            if let Ok(mut trace) = Trace::open(file(&bytes), format, torn_ok) {
                match all(&mut trace) {
                    Ok(requests) => prop_assert!(requests.len() <= 3),
                    Err(e) => prop_assert!(!e.what.is_empty() && e.file == "t"),
                }
            }
        }
    }

    #[test]
    fn no_text_makes_a_description_panic(text in "[a-z0-9:=/?,.-]{0,40}") {
        if let Ok(columns) = Columns::parse(&text) {
            prop_assert_eq!(columns.text(), text);
        }
    }
}
