//! The recording in the README: its commands run in a new folder, what they print drawn as an
//! animated SVG. `WRITEPATH_BLESS=1 cargo test -p writepath --test all docs::recording` writes it.
//!
//! Picture:    scenes ([`SCENES`]) -> one shell -> a screen each -> docs/img/first-run.svg.
//! Invariants: the same program gives the same bytes: nothing of the host is shown.

use std::fmt::Write as _;
use std::path::Path;

use super::play;

/// What is typed, one screen each; the next begins with the files of those before.
const SCENES: [&str; 5] = [
    "writepath run --fs ext4,era=3.4 --workload fsync-last,n=10,case=extend",
    "writepath explain results/latest | head -38",
    "cat log.txt",
    "writepath crash log.txt --fs ext4,nobarrier | grep -A 2 broken",
    "writepath crash show 'open 0 a rw,creat; fsync 0' 3:7 --fs ext4,nobarrier",
];

/// The program of the README's third command.
const LOG: &str = "open 0 log rw,creat\npwrite 0 4096 0 1\nfsync 0\n";

/// Where the recording is.
const FILE: &str = "docs/img/first-run.svg";

/// Columns and lines of the screen; a line that is longer is cut, a screen that is longer fails.
const COLUMNS: usize = 100;
const LINES: usize = 40;

/// Pixels of a character and of a line.
const CHARACTER: f64 = 7.8;
const LINE: f64 = 17.0;
const MARGIN: f64 = 14.0;

/// Seconds that a screen stays: so long, and as long again for each line.
const STAY: f64 = 2.5;
const STAY_A_LINE: f64 = 0.18;

const TEXT: &str = "a string takes it";

/// What each scene prints.
fn screens() -> Vec<Vec<String>> {
    let scratch = tempfile::tempdir().expect("a folder");
    let (folder, told) = (scratch.path().join("page"), scratch.path().join("told"));
    for dir in [&folder, &told] {
        std::fs::create_dir(dir).expect("made");
    }
    std::fs::write(folder.join("log.txt"), LOG).expect("written");
    let mut script = String::new();
    for (n, scene) in SCENES.iter().enumerate() {
        writeln!(script, "{{ {scene}\n}} >\"$TOLD/{n}\" 2>&1").expect(TEXT);
    }
    play::shell(&script, &folder, &told);
    (0..SCENES.len())
        .map(|n| {
            let text = std::fs::read_to_string(told.join(n.to_string())).expect("it printed");
            assert!(!text.trim().is_empty(), "`{}` printed nothing", SCENES[n]);
            let lines: Vec<String> = text.lines().map(steady).collect();
            assert!(lines.len() < LINES, "`{}` prints {} lines", SCENES[n], lines.len());
            lines
        })
        .collect()
}

/// A line without the key of a result, which each version of the program has its own of.
fn steady(line: &str) -> String {
    let line = match (line.starts_with("result "), line.rsplit_once('/')) {
        (true, Some((head, _))) => format!("{head}/…"),
        _ => line.to_owned(),
    };
    match line.chars().count() > COLUMNS {
        true => line.chars().take(COLUMNS - 1).chain(['…']).collect(),
        false => line,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace(' ', "\u{a0}")
}

/// The screens as one animation that begins again when it ends.
fn drawn(screens: &[Vec<String>]) -> String {
    let stay = |lines: &Vec<String>| STAY + STAY_A_LINE * lines.len() as f64;
    let total: f64 = screens.iter().map(stay).sum();
    let width = CHARACTER * COLUMNS as f64 + 2.0 * MARGIN;
    let height = LINE * LINES as f64 + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>Writepath: run, explain, crash</title>\n<style>\n\
         text {{ font: 13px ui-monospace, Consolas, monospace; fill: #d8dee9; }}\n\
         .typed {{ fill: #a3e08f; }}\n\
         .screen {{ opacity: 0; }}\n"
    );
    let mut from = 0.0;
    for (n, lines) in screens.iter().enumerate() {
        let to = from + stay(lines);
        let (a, b) = (100.0 * from / total, 100.0 * to / total);
        // Hidden before and after, with no time in between.
        let before = if n == 0 { String::new() } else { format!("0%, {a:.2}% {{ opacity: 0; }} ") };
        let shown =
            format!("{:.2}%, {b:.2}% {{ opacity: 1; }} ", if n == 0 { 0.0 } else { a + 0.01 });
        let last = n + 1 == screens.len();
        let after = match last {
            true => String::new(),
            false => format!("{:.2}%, 100% {{ opacity: 0; }} ", b + 0.01),
        };
        writeln!(svg, "@keyframes s{n} {{ {before}{shown}{after}}}").expect(TEXT);
        writeln!(svg, ".s{n} {{ animation: s{n} {total:.1}s linear infinite; }}").expect(TEXT);
        from = to;
    }
    // Who wants nothing to move sees the second screen: where the time goes.
    svg += "@media (prefers-reduced-motion: reduce) { .screen { animation: none; } .s1 { opacity: 1; } }\n";
    writeln!(
        svg,
        "</style>\n<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#1e222a\"/>"
    )
    .expect(TEXT);
    for (n, lines) in screens.iter().enumerate() {
        writeln!(svg, "<g class=\"screen s{n}\">").expect(TEXT);
        let typed = format!("$ {}", SCENES[n]);
        for (row, line) in std::iter::once(&typed).chain(lines).enumerate() {
            let y = MARGIN + LINE * (row as f64 + 0.8);
            let class = if row == 0 { " class=\"typed\"" } else { "" };
            writeln!(svg, "<text x=\"{MARGIN}\" y=\"{y:.1}\"{class}>{}</text>", escaped(line))
                .expect(TEXT);
        }
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

#[test]
fn the_recording_shows_what_the_commands_print() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(FILE);
    let drawn = drawn(&screens());
    if std::env::var_os("WRITEPATH_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(&path, &drawn).expect("written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == drawn, "{FILE} is not what the commands print; WRITEPATH_BLESS=1 writes it");
}
