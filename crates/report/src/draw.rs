//! Flows as pictures for a paper: a Mermaid sequence diagram, and an SVG like the text's bars.

use std::fmt::Write;

use crate::explain::{micros, signed};
use crate::flow::Flow;

/// A string takes what is written to it.
const LINE: &str = "a string takes it";
/// Pixels of a row, and of the letters in it.
const ROW: usize = 20;
const LETTER: usize = 7;
/// Pixels between two moments.
const COLUMN: usize = 56;

/// A message of a sequence diagram: from whom to whom, or a note of the first alone.
struct Message {
    at_ns: i64,
    from: String,
    to: Option<String>,
    is_answer: bool,
    text: String,
}

/// What a flow's parts tell each other, in order of time.
fn messages(flow: &Flow) -> Vec<Message> {
    let mut out = Vec::new();
    let mut put = |at_ns: i64, from: &str, to: Option<&str>, is_answer: bool, text: String| {
        let (from, to) = (from.to_owned(), to.map(str::to_owned));
        out.push(Message { at_ns, from, to, is_answer, text });
    };
    put(0, &flow.task, None, false, format!("{} {}", flow.call, flow.target));
    for n in &flow.notes {
        put(n.at_ns, &n.who, n.to.as_deref(), false, n.what.clone());
    }
    for s in &flow.sent {
        let size = if s.sectors > 0 { format!(" +{}", s.sectors) } else { String::new() };
        let name = format!("{} {}{size}", s.name, s.rwbs);
        put(s.sent_ns as i64, &s.by, Some("device"), false, name);
        if let Some((_, to)) = s.programmed_ns.filter(|p| p.1 <= flow.total_ns) {
            put(to as i64, "device", Some("flash"), false, format!("{} programmed", s.name));
        }
        put(s.done_ns as i64, "device", Some(&s.by), true, format!("{} complete", s.name));
    }
    put(flow.total_ns as i64, &flow.task, None, false, format!("{} returns", flow.call));
    // Stable: what is told in one nanosecond stays in its order.
    out.sort_by_key(|m| m.at_ns);
    out
}

/// Text that Mermaid takes as it is: `;` ends a line there, `#` begins an entity.
fn mermaid_text(text: &str) -> String {
    text.replace('#', "#35;").replace(';', "#59;")
}

/// A flow as a Mermaid sequence diagram.
pub fn mermaid(flow: &Flow) -> String {
    let messages = messages(flow);
    let mut who: Vec<&str> = vec![&flow.task];
    for m in &messages {
        for name in [Some(m.from.as_str()), m.to.as_deref()].into_iter().flatten() {
            if !who.contains(&name) && !["device", "flash"].contains(&name) {
                who.push(name);
            }
        }
    }
    who.push("device");
    if messages.iter().any(|m| m.to.as_deref() == Some("flash")) {
        who.push("flash");
    }
    let number = |name: &str| who.iter().position(|w| *w == name).unwrap_or(0);
    let mut out = String::from("sequenceDiagram\n");
    for (n, name) in who.iter().enumerate() {
        writeln!(out, "    participant p{n} as {}", mermaid_text(name)).expect(LINE);
    }
    for m in &messages {
        let text = format!("{} us: {}", signed(m.at_ns), mermaid_text(&m.text));
        let from = number(&m.from);
        match &m.to {
            None => writeln!(out, "    Note over p{from}: {text}").expect(LINE),
            Some(to) => {
                let arrow = if m.is_answer { "-->>" } else { "->>" };
                writeln!(out, "    p{from}{arrow}p{}: {text}", number(to)).expect(LINE);
            }
        }
    }
    out
}

fn svg_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A flow as an SVG: bars of host, device and flash, whose columns are the moments at which
/// something begins or ends, not to scale.
pub fn svg(flow: &Flow) -> String {
    let lanes = flow.bars();
    let all = || lanes.iter().flat_map(|(_, bars)| bars);
    let mut moments: Vec<u64> = all().flat_map(|b| [b.1, b.2]).collect();
    moments.sort_unstable();
    moments.dedup();
    let label = all().map(|b| b.0.chars().count()).max().unwrap_or(0) * LETTER + 80;
    let x = |at: u64| label + moments.partition_point(|m| *m < at) * COLUMN;
    let rows = all().count();
    let (width, height) = (label + moments.len() * COLUMN, (rows + 4) * ROW);
    let mut out = String::new();
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">"
    )
    .expect(LINE);
    let title = format!("{} {}: {} us", flow.call, flow.target, micros(flow.total_ns));
    writeln!(out, "<text x=\"4\" y=\"{}\">{}</text>", ROW - 5, svg_text(&title)).expect(LINE);
    let mut y = 2 * ROW;
    for (lane, bars) in &lanes {
        let fill = match *lane {
            "host" => "#4477aa",
            "device" => "#ee9944",
            _ => "#228833",
        };
        for (n, (name, from, to)) in bars.iter().enumerate() {
            if n == 0 {
                writeln!(out, "<text x=\"4\" y=\"{}\" font-weight=\"bold\">{lane}</text>", y + 14)
                    .expect(LINE);
            }
            writeln!(out, "<text x=\"64\" y=\"{}\">{}</text>", y + 14, svg_text(name)).expect(LINE);
            let wide = (x(*to) - x(*from)).max(2);
            writeln!(
                out,
                "<rect x=\"{}\" y=\"{}\" width=\"{wide}\" height=\"{}\" fill=\"{fill}\">\
                 <title>{} to {} us</title></rect>",
                x(*from),
                y + 3,
                ROW - 6,
                micros(*from),
                micros(*to)
            )
            .expect(LINE);
            y += ROW;
        }
    }
    for (n, at) in moments.iter().enumerate() {
        let (x, y) = (x(*at), y + if n % 2 == 0 { 14 } else { 14 + ROW });
        writeln!(
            out,
            "<line x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{}\" stroke=\"#cccccc\"/>",
            2 * ROW,
            y - 12
        )
        .expect(LINE);
        let time = format!("{}.{}", at / 1000, at % 1000 / 100);
        writeln!(out, "<text x=\"{x}\" y=\"{y}\" font-size=\"10\">{time}</text>").expect(LINE);
    }
    let foot = height - 6;
    writeln!(
        out,
        "<text x=\"4\" y=\"{foot}\" font-size=\"10\">times in us, not to scale</text>\n</svg>"
    )
    .expect(LINE);
    out
}
