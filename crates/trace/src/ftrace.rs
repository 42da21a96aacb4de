//! Block events of ftrace as text, as `trace`, `trace_pipe`, trace-cmd and `perf script` print
//! them.
//!
//! Picture:    `task-pid [cpu] flags seconds.fraction: event: what the event says`.
//!             `block_bio_queue: 7,0 WS 266240 + 8 [wl]`,
//!             `block_rq_issue: 7,0 WS 4096 () 266240 + 8 be,0,6 [wl]`; older kernels have no
//!             priority, or no bytes. The `blk` tracer has `7,0 Q WS 0 + 8 [dd]` in place of an
//!             event.
//! Laws:       fractions are what the trace's clock has, usually microseconds; lines of one
//!             instant keep their order.
//! Left out:   the kernel's binary formats (`trace.dat`): `trace-cmd report` makes this of them.
//! Source:     Linux `include/trace/events/block.h`; recorded traces of 6.18.

use crate::blkparse::{self, Fields, shortened};
use crate::error::{Place, Wrong};
use crate::item::{Item, Names, Skip, Step};
use crate::lines::{Lines, Source, decimal, digits, major_minor, word};
use crate::trace::Parse;

const SECOND_NS: u64 = 1_000_000_000;

/// A text of ftrace.
pub(crate) struct Text<'a> {
    lines: Lines<'a>,
}

impl<'a> Text<'a> {
    pub fn new(from: Source<'a>) -> Text<'a> {
        Text { lines: Lines::new(from) }
    }
}

impl Parse for Text<'_> {
    fn next_item(&mut self, names: &mut Names) -> Result<Option<Item>, Wrong> {
        while self.lines.advance()? {
            let text = self.lines.text();
            if text.is_empty() {
                continue;
            }
            if text.starts_with('#') {
                return Ok(Some(Item::Skip(Skip::Note, 1)));
            }
            return match line(text, self.lines.place(), names) {
                Ok(Some(item)) => Ok(Some(item)),
                // trace-cmd says so before the events.
                Ok(None) if text.starts_with("cpus=") || text.starts_with("version =") => continue,
                Ok(None) if is_stack(text) => Ok(Some(Item::Skip(Skip::Stack, 1))),
                Ok(None) => Err(self.lines.wrong(
                    format!("not an ftrace line: `{}`", shortened(text)),
                    "expected `task-pid [cpu] flags seconds: event: …`",
                )),
                Err(e) => Err(e),
            };
        }
        Ok(None)
    }
}

/// Is it a line of a call stack? perf script -g has `ffffffff8148c1b1 name+0x91 (module)` or
/// `[unknown]` in the name's place, ftrace's `stacktrace` `=> name+0x91` under a title, and
/// trace-cmd `=> name (ffffffff8148c1b1)`.
fn is_stack(text: &str) -> bool {
    if text.starts_with("=>") {
        return true;
    }
    let (address, rest) = word(text);
    let rest = rest.trim();
    let is_hex = address.len() >= 4 && address.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex && rest.ends_with(')') && rest.contains('(')
}

/// `CPU:1 [LOST 123 EVENTS]`.
fn lost(text: &str) -> Option<u64> {
    let rest = text.strip_prefix("CPU")?;
    let (_, rest) = rest.split_once("[LOST ")?;
    digits(rest.split_once(" EVENTS]")?.0)
}

/// What stands behind the time, and the time.
fn behind_time(text: &str) -> Option<(u64, &str)> {
    // A task's name may hold anything, so the time is what stands behind the CPU.
    let (_, rest) = text.split_once(" [")?;
    let (cpu, mut rest) = rest.split_once(']')?;
    digits::<u32>(cpu)?;
    // Flags, and none or several words of them.
    for _ in 0..4 {
        let (first, after) = word(rest);
        if let Some(at_ns) = first.strip_suffix(':').and_then(|t| decimal(t, SECOND_NS)) {
            return Some((at_ns, after.trim_start()));
        }
        rest = after;
    }
    None
}

/// What a line says; `None` if it is none of ftrace's.
pub(crate) fn line(text: &str, place: Place, names: &mut Names) -> Result<Option<Item>, Wrong> {
    if let Some(n) = lost(text) {
        return Ok(Some(Item::Skip(Skip::Lost, n)));
    }
    let Some((at_ns, rest)) = behind_time(text) else { return Ok(None) };
    let (first, after) = word(rest);
    if let Some(device) = major_minor(first) {
        return blkparse::event(after, at_ns, device, place, names);
    }
    if rest == "<stack trace>" {
        return Ok(Some(Item::Skip(Skip::Stack, 1)));
    }
    let Some((event, says)) = rest.split_once(':') else { return Ok(None) };
    // perf has `block:block_rq_issue:`.
    let (event, says) = match says.split_once(':') {
        Some((name, says)) if event == "block" && name.starts_with("block_") => (name, says),
        _ => (event, says),
    };
    let step = match event {
        "block_bio_queue" => Step::Queue,
        "block_rq_issue" => Step::Issue,
        "block_rq_complete" | "block_bio_complete" => Step::Complete,
        "tracing_mark_write" | "print" => {
            return Ok(Some(Item::Mark { at_ns, text: says.trim().to_owned() }));
        }
        _ if event.starts_with("block_") => return Ok(Some(Item::Skip(Skip::Action, 1))),
        _ => return Ok(Some(Item::Skip(Skip::OtherEvent, 1))),
    };
    request(says, at_ns, step, place, names)
}

/// `7,0 WS 4096 () 266240 + 8 be,0,6 [wl]`.
fn request(
    says: &str,
    at_ns: u64,
    step: Step,
    place: Place,
    names: &mut Names,
) -> Result<Option<Item>, Wrong> {
    let (device, rest) = word(says);
    let (letters, rest) = word(rest);
    let Some(device) = major_minor(device) else { return Ok(None) };
    // Bytes, and the command of a driver in hexadecimal; neither of a bio.
    let (bytes, behind) = word(rest);
    let rest = if digits::<u64>(bytes).is_some() && behind.trim_start().starts_with('(') {
        behind
    } else {
        rest
    };
    let rest = rest.trim_start();
    let (command, rest) = match rest.strip_prefix('(') {
        Some(inside) => inside.split_once(')').unwrap_or((inside, "")),
        None => ("", rest),
    };
    if !command.trim().is_empty() {
        return Ok(Some(Item::Skip(Skip::DriverCommand, 1)));
    }
    let Some((at, sectors)) = blkparse::range(rest.trim_start()) else { return Ok(None) };
    blkparse::request(letters, Fields { at_ns, step, at, sectors, device }, place, names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Event;
    use wp_base::Sector;
    use wp_base::event::{Flags, Op};

    fn read(text: &str) -> Option<Item> {
        line(text.trim(), Place::Line(1), &mut Names::default()).expect("nothing is wrong")
    }

    fn event(text: &str) -> Event {
        match read(text) {
            Some(Item::Event(e)) => e,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn lines_of_several_kernels_and_tools() {
        // Linux 6.18, 5.10 and 3.8; trace-cmd; perf script; the blk tracer.
        let same = [
            "  jbd2/DEV-8-28255   [000] .....  1096.902077: block_rq_issue: 7,0 WSM 4096 () \
             1048576 + 8 be,0,3 [jbd2/DEV-8]",
            "  jbd2/DEV 8-28255   [000] d..1  1096.902077: block_rq_issue: 7,0 WSM 4096 () \
             1048576 + 8 [jbd2/DEV-8]",
            "  jbd2-28255   [000]  1096.902077: block_rq_issue: 7,0 WSM 0 () 1048576 + 8 \
             [jbd2/DEV-8]",
            "  jbd2-28255   [000] ..... 1096.902077000: block_rq_issue: 7,0 WSM 4096 () 1048576 + \
             8 be,0,3 [jbd2]",
            "jbd2/DEV-8 28255 [000]  1096.902077: block:block_rq_issue: 7,0 WSM 4096 () 1048576 + \
             8 [jbd2/DEV-8]",
            "  jbd2-28255   [000] .....  1096.902077:   7,0    D WSM 1048576 + 8 [jbd2/DEV-8]",
        ];
        let first = event(same[0]);
        assert_eq!((first.at_ns, first.step), (1_096_902_077_000, Step::Issue));
        assert_eq!((first.at, first.sectors, first.op), (Sector(1_048_576), 8, Op::Write));
        assert_eq!(first.flags, Flags::SYNC | Flags::META);
        for line in same {
            assert_eq!(event(line), first, "{line}");
        }
    }

    #[test]
    fn what_is_no_request() {
        let at = "a-1 [000] ..... 1.5: ";
        let skip = |text: &str| read(&format!("{at}{text}"));
        assert_eq!(
            skip("tracing_mark_write: WL mkfs"),
            Some(Item::Mark { at_ns: 1_500_000_000, text: "WL mkfs".to_owned() })
        );
        let one = |why| Some(Item::Skip(why, 1));
        assert_eq!(skip("block_plug: [a]"), one(Skip::Action));
        assert_eq!(skip("sched_switch: prev_comm=a:b"), one(Skip::OtherEvent));
        assert_eq!(
            skip("block_rq_issue: 8,0 N 36 (12 00 00 24) 0 + 0 [a]"),
            one(Skip::DriverCommand)
        );
        assert_eq!(read("CPU:1 [LOST 12 EVENTS]"), Some(Item::Skip(Skip::Lost, 12)));
        for none in ["", "a line", "a-1 [000] ..... x: b: c", "a-1 [000] 1.5:", "a-1 [x] 1.5: a: b"]
        {
            assert_eq!(read(none), None, "{none}");
        }
        let e = line(
            &format!("{at}block_bio_queue: 7,0 XX 0 + 8 [a]"),
            Place::Line(7),
            &mut Names::default(),
        );
        assert!(e.is_err_and(|e| e.place == Place::Line(7) && e.what.contains("XX")));
    }
}
