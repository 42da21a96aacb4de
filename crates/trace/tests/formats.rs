//! Every format, written as its specification says and read; cut off, damaged, and without end.

use std::cell::Cell;
use std::io::Read;
use std::rc::Rc;

use proptest::prelude::*;
use wp_base::Sector;
use wp_base::Time;
use wp_base::event::{BlockAction, Event, Flags, Op, Record};
use wp_block::trace::{TraceDevice, blkparse};
use wp_trace::{
    Action, Devices, File, Format, Place, Request, Requests, Select, Skip, Trace, TraceError,
};

fn open<'a>(
    bytes: &'a [u8],
    format: Option<Format>,
    torn_ok: bool,
) -> Result<Trace<'a>, TraceError> {
    let file = File { name: "t".to_owned(), from: Box::new(bytes) };
    Trace::open(vec![file], format, torn_ok)
}

fn all(trace: &mut Trace<'_>, select: Select) -> Result<Vec<Request>, TraceError> {
    Requests::new(trace, select).collect()
}

fn one(name: &str) -> Devices {
    Devices::These(vec![name.to_owned()])
}

fn read(bytes: &[u8]) -> Result<Vec<Request>, TraceError> {
    all(&mut open(bytes, None, false)?, Select::default())
}

type Short = (u64, Op, u64, u32, Option<u64>);

fn short(requests: &[Request]) -> Vec<Short> {
    let one = |r: &Request| {
        let e = &r.event;
        (e.at_ns, e.op, e.at.0, e.sectors, r.done_ns)
    };
    requests.iter().map(one).collect()
}

const ISSUED: &str = "  8,16   0        1     0.000001000  1001  Q  WS 100 + 8 [a]
  8,16   0        2     0.000002000  1001  D  WS 100 + 8 [a]
  8,16   0        3     0.000009000     0  C  WS 100 + 8 [0]
  8,16   0        4     0.000010000  1001  D   R 100 + 8 [a]
  8,16   0        5     0.000011000  1001  D  FN [a]
  8,16   0        6     0.000012000     0  C  FN 0 [0]
  8,16   0        7     0.000013000     0  C   R 100 + 8 [0]
CPU0 (t):
 Reads Queued:           0,        0KiB	 Writes Queued:           1,        4KiB
";

#[test]
fn a_request_is_taken_where_it_is_issued_and_completes_where_it_says() {
    let (w, r, f) = (Op::Write, Op::Read, Op::Flush);
    let issued = read(ISSUED.as_bytes()).expect("a trace");
    let expected = [
        (2_000, w, 100, 8, Some(9_000)),
        (10_000, r, 100, 8, Some(13_000)),
        (11_000, f, 0, 0, Some(12_000)),
    ];
    assert_eq!(short(&issued), expected);
    assert_eq!(issued[0].event.place, Place::Line(2));
    let mut trace = open(ISSUED.as_bytes(), None, false).expect("recognised");
    assert_eq!(trace.format(), Format::Blkparse);
    let queued = Select { action: Some(Action::Queue), ..Select::default() };
    let queued = all(&mut trace, queued).expect("a trace");
    assert_eq!(short(&queued), [(1_000, w, 100, 8, Some(9_000))]);
    assert_eq!(trace.skipped().count(Skip::Action), 3);
}

#[test]
fn what_stands_behind_a_summary_is_read() {
    let later = "  8,16   0        8     0.000020000  1001  D  WS 200 + 8 [a]\n";
    let two =
        read(format!("{ISSUED}{later}").as_bytes()).expect("two outputs, one after the other");
    assert_eq!(two.len(), 4);
    assert_eq!(two[3].event.at.0, 200);
    let twice = read(ISSUED.repeat(2).as_bytes()).expect("two disks of the same times");
    assert_eq!(twice.len(), 6);
}

#[test]
fn merged_bios_complete_with_their_request_and_parts_one_after_the_other() {
    let line = |us: u64, what: &str| format!("8,0 0 1 0.{us:06}000 1 {what}\n");
    let merged = [
        line(1, "Q W 8 + 8 [a]"),
        line(2, "Q W 16 + 8 [a]"),
        line(3, "Q W 16 + 8 [a]"),
        line(4, "C W 8 + 16 [0]"),
        line(5, "C W 16 + 8 [0]"),
    ];
    let done: Vec<_> = read(merged.concat().as_bytes()).expect("a trace");
    let done: Vec<_> = done.iter().map(|r| r.done_ns).collect();
    assert_eq!(done, [Some(4_000), Some(4_000), Some(5_000)]);
    let parts = [
        line(1, "D W 8 + 24 [a]"),
        line(2, "C W 8 + 8 [0]"),
        line(3, "C W 16 + 16 [0]"),
        line(4, "C W 8 + 8 [0]"),
    ];
    let done = read(parts.concat().as_bytes()).expect("a trace");
    assert_eq!(short(&done), [(1_000, Op::Write, 8, 24, Some(3_000))]);
}

#[test]
fn a_trace_of_two_devices_needs_to_be_told_which() {
    let text = "8,0 0 1 0.000001000 1 D W 8 + 8 [a]\n8,16 0 1 0.000002000 1 D W 8 + 8 [a]\n";
    let e = read(text.as_bytes()).expect_err("two devices");
    assert_eq!(e.place, Place::Line(2));
    assert!(e.what.contains("8,0") && e.what.contains("8,16") && e.help.contains("--from"), "{e}");
    let mut trace = open(text.as_bytes(), None, false).expect("recognised");
    let select = Select { devices: one("8,16"), ..Select::default() };
    assert_eq!(all(&mut trace, select).expect("one of them").len(), 1);
    assert_eq!(trace.skipped().count(Skip::Device), 1);
}

#[test]
fn formats_of_one_line_a_request() {
    let iolog = "fio version 3 iolog\n22 /dev/x add\n243 /dev/x open\n252 /dev/x read 249856 4096\n\
                 300 /dev/x trim 0 1048576\n301 /dev/x sync 4096 0\n302 /dev/x write 100 1000\n\
                 310 /dev/x close\n";
    let expected = [
        (252_000, Op::Read, 488, 8, None),
        (300_000, Op::Discard, 0, 2048, None),
        (301_000, Op::Flush, 0, 0, None),
        (302_000, Op::Write, 0, 3, None),
    ];
    assert_eq!(short(&read(iolog.as_bytes()).expect("an iolog")), expected);
    let v2 = "fio version 2 iolog\nf add\nf open\nf write 0 512\nf wait 300 0\nf datasync 0 0\n\
              f wait 200 0\nf write 512 512\nf close\n";
    let expected = [
        (0, Op::Write, 0, 1, None),
        (300_000_000, Op::Flush, 0, 0, None),
        (300_000_000, Op::Write, 1, 1, None),
    ];
    assert_eq!(short(&read(v2.as_bytes()).expect("an iolog")), expected);
    let disksim = "0.000000 0 100 8 1\n12.5 0 200 16 0\n";
    let expected = [(0, Op::Read, 100, 8, None), (12_500_000, Op::Write, 200, 16, None)];
    assert_eq!(short(&read(disksim.as_bytes()).expect("DiskSim")), expected);
    // The first lines of the traces' own documentation have this shape.
    let msr = "128166372003061629,usr,0,Read,7014609920,24576,41286\n\
               128166372016382155,usr,0,Write,1317441536,8192,1963\n";
    let base = 12_816_637_200_306_162_900;
    let second = 12_816_637_201_638_215_500;
    let expected = [
        (base, Op::Read, 13_700_410, 48, Some(base + 4_128_600)),
        (second, Op::Write, 2_573_128, 16, Some(second + 196_300)),
    ];
    assert_eq!(short(&read(msr.as_bytes()).expect("MSR")), expected);
    let paper = "0.000011188 D WS 187310080 + 8 [w2]\n1.000000002 D FWS 0 + 0 [jbd2/sdb1-8]\n";
    let expected =
        [(11_188, Op::Write, 187_310_080, 8, None), (1_000_000_002, Op::Flush, 0, 0, None)];
    assert_eq!(short(&read(paper.as_bytes()).expect("a listing")), expected);
}

/// A record with a little of everything.
fn recorded() -> Vec<Record> {
    let mut out = Vec::new();
    let mut at = 0;
    let mut event = |action, op, flags, sector, sectors| {
        at += 1_117;
        let event = Event::Block { action, op, flags, at: Sector(sector), sectors, extra: 0 };
        out.push(Record { at: Time(at), task: "w".into(), event });
    };
    let (sync, fua) = (Flags::SYNC, Flags::SYNC | Flags::FUA | Flags::META);
    let steps = [
        (Op::Write, sync, 80, 16),
        (Op::Read, Flags::RAHEAD, 800, 8),
        (Op::Flush, Flags::PREFLUSH | sync, 0, 0),
        (Op::Write, fua, 8000, 8),
        (Op::Discard, sync, 90_000, 2048),
    ];
    for (op, flags, sector, sectors) in steps {
        event(BlockAction::Queue, op, flags, sector, sectors);
        event(BlockAction::GetRequest, op, flags, sector, sectors);
        event(BlockAction::Issue, op, flags, sector, sectors);
        event(BlockAction::Complete, op, flags, sector, sectors);
    }
    out
}

#[test]
fn what_we_write_is_the_same_as_binary_of_either_order_and_as_text() {
    let records = recorded();
    let binary = wp_trace::blktrace::write(&records, TraceDevice::default());
    let text = blkparse(&records, TraceDevice::default());
    for action in [None, Some(Action::Queue), Some(Action::Issue)] {
        let select = || Select { devices: one("8,16"), action, ..Select::default() };
        let of = |bytes: &[u8]| {
            let mut trace = open(bytes, None, false).expect("recognised");
            all(&mut trace, select()).expect("undamaged")
        };
        let (b, t, s) = (of(&binary), of(text.as_bytes()), of(&swapped(&binary)));
        assert_eq!(b.len(), 5);
        assert_eq!(short(&b), short(&t), "text");
        assert_eq!(short(&b), short(&s), "the other byte order");
        assert!(b.iter().zip(&t).all(|(b, t)| b.event.flags == t.event.flags));
        assert!(b.iter().all(|r| r.done_ns.is_some()), "{b:#?}");
    }
}

/// The records of a file as a machine of the other byte order writes them.
fn swapped(binary: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = binary;
    while !rest.is_empty() {
        let (header, behind) = rest.split_at(48);
        let length = usize::from(u16::from_le_bytes([header[46], header[47]]));
        let mut at = 0;
        for width in [4, 4, 8, 8, 4, 4, 4, 4, 4, 2, 2] {
            out.extend(header[at..at + width].iter().rev());
            at += width;
        }
        out.extend_from_slice(&behind[..length]);
        rest = &behind[length..];
    }
    out
}

/// One small trace of each format.
fn samples() -> Vec<(Format, Vec<u8>)> {
    let ftrace = "# tracer: nop\n#\n a-1 [000] ..... 1.000001: tracing_mark_write: x\n \
                  a-1 [000] ..... 1.000002: block_rq_issue: 7,0 WSM 4096 () 8 + 8 be,0,3 [a]\n \
                  a-1 [000] ..... 1.000009: block_rq_complete: 7,0 WSM () 8 + 8 be,0,3 [0]\n";
    let iolog = "fio version 3 iolog\n1 f add\n2 f open\n3 f read 0 4096\n4 f sync 0 0\n";
    vec![
        (Format::Blktrace, wp_trace::blktrace::write(&recorded(), TraceDevice::default())),
        (Format::Blkparse, ISSUED.as_bytes().to_vec()),
        (Format::Ftrace, ftrace.as_bytes().to_vec()),
        (Format::Iolog, iolog.as_bytes().to_vec()),
        (Format::Disksim, b"0.000000 0 100 8 1\n12.5 0 200 16 0\n".to_vec()),
        (Format::Msr, b"128166372003061629,usr,0,Read,7014609920,24576,41286\n".to_vec()),
    ]
}

#[test]
fn a_format_is_told_by_its_beginning() {
    for (format, bytes) in samples() {
        assert_eq!(open(&bytes, None, false).expect("recognised").format(), format);
        assert_eq!(Format::find(format.name()), Some(format));
    }
    let unknown = |bytes: &[u8]| open(bytes, None, false).err().expect("no format").help;
    assert!(unknown(b"hello\nworld\n").contains("--format"));
    assert!(unknown(b"").contains("--format"));
    assert!(unknown(b"\x28\xb5\x2f\xfdrest").contains("zstd -dc"));
}

#[test]
fn a_trace_that_is_cut_off_is_refused_with_the_place_or_taken_up_to_there() {
    for (format, bytes) in samples() {
        let whole = read(&bytes).expect("undamaged").len();
        let mut torn = 0;
        for end in 0..bytes.len() {
            let cut = &bytes[..end];
            let strict =
                open(cut, Some(format), false).and_then(|mut t| all(&mut t, Select::default()));
            let mut lenient = open(cut, Some(format), true).expect("the format is said");
            let taken = all(&mut lenient, Select::default()).expect("what is before");
            assert!(taken.len() <= whole);
            match strict {
                Ok(requests) => assert_eq!(requests.len(), taken.len()),
                Err(e) => {
                    torn += 1;
                    assert!(e.help.contains("--torn-ok"), "{format:?} {end}: {e:?}");
                    assert_eq!(lenient.skipped().count(Skip::Torn), 1);
                    let last = Place::Line(1 + cut.iter().filter(|b| **b == b'\n').count() as u64);
                    match e.place {
                        Place::Byte(at) => assert!(at < end as u64),
                        line @ Place::Line(_) => assert_eq!(line, last),
                    }
                }
            }
        }
        assert!(torn > bytes.len() / 2, "{format:?}");
    }
}

#[test]
fn damage_is_named_with_its_line() {
    let bad = [
        (Format::Blkparse, "8,0 0 1 0.000001000 1 D X 8 + 8 [a]\n", "`X`"),
        (Format::Blkparse, "8,0 0 1 0.000001000 1 D W 8 - 8 [a]\n", "not a blkparse line"),
        (Format::Blkparse, "8,0 0 1 0.000001000 1 D W 8 + 99999999999 [a]\n", "99999999999"),
        (Format::Ftrace, "what is this\n", "not an ftrace line"),
        (Format::Iolog, "fio version 9 iolog\n", "version 9"),
        (Format::Iolog, "1 f write 0 1\n", "not the first line"),
        (Format::Disksim, "0.1 0 8 8\n", "not 5 fields but 4"),
        (Format::Disksim, "-1 0 8 8 1\n", "not a time"),
        (Format::Disksim, "1 0 8 8 g\n", "not an operation"),
        (Format::Msr, "1,h,0,Erase,0,512,1\n", "not an operation"),
        (Format::Msr, "999999999999999999999,h,0,Read,0,512,1\n", "not a time"),
    ];
    for (format, text, says) in bad {
        let good = if format == Format::Iolog { "" } else { "\n" };
        let text = format!("{good}{text}");
        let mut trace = open(text.as_bytes(), Some(format), false).expect("the format is said");
        let e = all(&mut trace, Select::default()).expect_err(&text);
        assert_eq!(e.place, Place::Line(1 + good.len() as u64), "{e}");
        assert!(e.what.contains(says) && !e.help.is_empty(), "{text}: {e:?}");
    }
}

/// A trace that never ends, line by line.
struct Endless {
    line: u64,
    left: Vec<u8>,
    given: Rc<Cell<u64>>,
}

impl Read for Endless {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.left.is_empty() {
            self.line += 1;
            let text = format!("{}.5 0 {} 8 {}\n", self.line, self.line * 8, self.line % 2);
            self.left = text.into_bytes();
        }
        let n = out.len().min(self.left.len());
        out[..n].copy_from_slice(&self.left[..n]);
        self.left.drain(..n);
        self.given.set(self.given.get() + n as u64);
        Ok(n)
    }
}

#[test]
fn what_is_held_does_not_grow_with_what_was_read() {
    let given = Rc::new(Cell::new(0));
    let endless = Endless { line: 0, left: Vec::new(), given: given.clone() };
    let file = File { name: "endless".to_owned(), from: Box::new(endless) };
    let mut trace = Trace::open(vec![file], None, false).expect("recognised");
    let mut requests = Requests::new(&mut trace, Select::default());
    let mut before = 0;
    for n in 1..=200_000u64 {
        let r = requests.next().expect("it never ends").expect("nothing is wrong");
        assert_eq!(r.event.at, Sector(n * 8));
        if n % 50_000 == 0 {
            // What was given beyond what was taken: buffers and a window, 20 bytes a line.
            let taken: u64 = (1..=n).map(|n| format!("{n}.5 0 {} 8 1\n", n * 8).len() as u64).sum();
            let ahead = given.get() - taken;
            assert!(ahead < 256 * 1024, "{ahead} bytes ahead after {n}");
            assert!(before == 0 || ahead < before + 128 * 1024);
            before = ahead;
        }
    }
}

proptest! {
    #[test]
    fn disksim_and_msr_lines_are_read_as_they_were_meant(
        lines in prop::collection::vec(
            (0u64..1 << 40, 0u64..1 << 40, 1u32..4096, any::<bool>(), 0u64..1 << 30),
            1..60,
        )
    ) {
        let mut lines = lines;
        lines.sort_by_key(|l| l.0);
        let (mut disksim, mut msr) = (String::new(), String::new());
        let mut wanted: Vec<[Short; 2]> = Vec::new();
        for (ticks, sector, sectors, reads, took) in &lines {
            let op = if *reads { Op::Read } else { Op::Write };
            let ns = ticks * 100;
            let ms = format!("{}.{:06}", ns / 1_000_000, ns % 1_000_000);
            disksim += &format!("{ms} 3 {sector} {sectors} {:x}\n", u8::from(*reads));
            let kind = if *reads { "Read" } else { "Write" };
            let (offset, size) = (sector * 512, sectors * 512);
            msr += &format!("{ticks},host,1,{kind},{offset},{size},{took}\n");
            let whole = (ns, op, *sector, *sectors);
            wanted.push([
                (whole.0, whole.1, whole.2, whole.3, None),
                (whole.0, whole.1, whole.2, whole.3, Some(ns + took * 100)),
            ]);
        }
        let firsts: Vec<Short> = wanted.iter().map(|w| w[0]).collect();
        let seconds: Vec<Short> = wanted.iter().map(|w| w[1]).collect();
        prop_assert_eq!(short(&read(disksim.as_bytes()).expect("DiskSim")), firsts);
        prop_assert_eq!(short(&read(msr.as_bytes()).expect("MSR")), seconds);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(
        which in 0usize..6,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        torn_ok in any::<bool>(),
    ) {
        let (format, mut bytes) = samples().swap_remove(which);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for format in [Some(format), None] {
            if let Ok(mut trace) = open(&bytes, format, torn_ok) {
                match all(&mut trace, Select::default()) {
                    Ok(requests) => prop_assert!(requests.len() <= 6),
                    Err(e) => prop_assert!(!e.what.is_empty() && e.file == "t"),
                }
            }
        }
    }
}
