//! Figures 2.1 and 5.1 to 5.4 of paper f2fs-oprw, from recorded runs.

use std::fmt::Write;

use serde_json::{Value, json};
use wp_machine::MachineError;
use wp_machine::registry;
use wp_papers::f2fs_oprw::{self, FLOWS, Look, Recorded, Recovered};
use wp_report::flow::{Flow, flow};
use wp_report::run::{Run, SYNCS, Seen};

/// A string takes what is written to it.
const LINE: &str = "a string takes it";

/// Everything that the figures show.
pub(super) struct Figures {
    flows: Vec<(Recorded, Flow)>,
    /// Figure 2.1a's run without power-loss protection, its look at which power fails, and what
    /// recovery makes of that: stock, and with the check.
    cut: (usize, Recovered, Recovered),
    writes: usize,
}

/// Runs what the figures need. Errors: as the machines'.
pub(super) fn figures(seed: u64) -> Result<Figures, MachineError> {
    let (writes, look) = f2fs_oprw::shortest(seed)?;
    let f2fs = registry::find("file system", registry::FILE_SYSTEMS, |f| f.name, "f2fs")
        .map_err(MachineError::Config)?;
    let mut flows = Vec::new();
    for drawn in FLOWS {
        let run = f2fs_oprw::record(drawn, seed, writes)?;
        let seen = Seen::new(Run {
            records: &run.records,
            classes: &run.classes,
            stages: f2fs.stages,
            survives: drawn.plp,
            zone_sectors: None,
        });
        let call = seen
            .call(SYNCS, 1)
            .map_err(|e| MachineError::Config(format!("figure {}: {e}", drawn.figure)))?;
        let found = flow(&seen, call);
        flows.push((run, found));
    }
    let cut = (look, flows[0].0.recovered(look, false)?, flows[0].0.recovered(look, true)?);
    Ok(Figures { flows, cut, writes })
}

/// Blocks of zones whose pointers on the flash are behind.
fn behind(look: &Look) -> String {
    let late = look.pointers.iter().filter(|p| p.nand < p.host);
    let all: Vec<String> =
        late.map(|p| format!("zone {} wp-zns {} wp-nand {}", p.zone, p.host, p.nand)).collect();
    if all.is_empty() { "wp-nand equals wp-zns in every zone".to_owned() } else { all.join(", ") }
}

fn us(ns: u64) -> String {
    format!("{}.{:03} us", ns / 1000, ns % 1000)
}

impl Figures {
    /// As text.
    pub fn text(&self) -> String {
        let mut t = String::new();
        writeln!(
            t,
            "Figures 2.1 and 5.2: one fsync in each mode, recorded (write {} over the file). \
             The\ntime axis is not to scale.\n",
            self.writes
        )
        .expect(LINE);
        for (run, found) in &self.flows {
            let plp = if run.drawn.plp { "with" } else { "without" };
            let (figure, mode) = (run.drawn.figure, run.drawn.mode.name());
            let took = us(found.total_ns);
            writeln!(t, "Figure {figure}: {mode}, {plp} power-loss protection, {took}")
                .expect(LINE);
            writeln!(t, "{}", found.text()).expect(LINE);
        }
        self.buffer(&mut t);
        self.recovery(&mut t);
        t
    }

    /// Figures 5.3 and 5.4.
    fn buffer(&self, t: &mut String) {
        let (run, found) = &self.flows[0];
        let (cut, stock, _) = &self.cut;
        writeln!(
            t,
            "Figures 5.3 and 5.4: the drive of figure 2.1a's run, at each of its events. \
             Blocks\nfrom a zone's start; power fails at the event marked *.\n"
        )
        .expect(LINE);
        let mut events: Vec<(u64, u8, String)> = vec![(0, 0, "fsync is called".to_owned())];
        for s in &found.sent {
            events.push((s.sent_ns, 1, format!("{} sent", s.name)));
            events.push((s.done_ns, 1, format!("{} complete", s.name)));
        }
        events.push((found.total_ns, 2, "fsync returns".to_owned()));
        for (n, look) in run.looks.iter().enumerate() {
            let mark = if n == *cut { "*" } else { " " };
            events.push((look.at_ns, 3, format!("{mark} {}", behind(look))));
        }
        events.sort();
        for (at, _, what) in events {
            writeln!(t, "{:>12}  {what}", us(at)).expect(LINE);
        }
        let restored: Vec<String> = run.looks[*cut]
            .pointers
            .iter()
            .filter(|p| p.nand < p.host)
            .map(|p| format!("zone {}: {} -> {}", p.zone, p.host, p.nand))
            .collect();
        writeln!(
            t,
            "\nPower fails at *. Each wp-zns returns to wp-nand ({}), and the\nblocks between \
             them are lost. Mount rolls {} nodes forward. The file then: {}.\n",
            restored.join(", "),
            stock.nodes,
            read(stock)
        )
        .expect(LINE);
    }

    /// Figure 5.1.
    fn recovery(&self, t: &mut String) {
        let (_, stock, checked) = &self.cut;
        writeln!(
            t,
            "Figure 5.1: recovery of that image with the check. One report of {} zones; {} nodes \
             of\nthe chain, {} addresses compared with write pointers.\n",
            checked.zones, checked.nodes, checked.addresses
        )
        .expect(LINE);
        for node in &checked.left_out {
            writeln!(t, "left out: {node}").expect(LINE);
        }
        writeln!(t, "\nThe file without the check: {}; with it: {}.\n", read(stock), read(checked))
            .expect(LINE);
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let flows: Vec<Value> = self
            .flows
            .iter()
            .map(|(run, found)| {
                let looks: Vec<Value> = run
                    .looks
                    .iter()
                    .map(|l| {
                        let of = |p: &f2fs_oprw::Pointers| json!([p.zone, p.host, p.nand]);
                        let all: Vec<Value> = l.pointers.iter().map(of).collect();
                        json!({ "at_ns": l.at_ns, "zone_wp_zns_wp_nand": all })
                    })
                    .collect();
                json!({ "figure": run.drawn.figure, "mode": run.drawn.mode.name(),
                    "plp": run.drawn.plp, "flow": found.json(), "pointers": looks })
            })
            .collect();
        let (look, stock, checked) = &self.cut;
        json!({ "writes": self.writes, "flows": flows, "cut_at_look": look,
            "stock": recovered(stock), "checked": recovered(checked) })
    }

    /// The recorded runs, by name.
    pub fn runs(&self) -> impl Iterator<Item = (String, &Recorded)> {
        self.flows.iter().map(|(run, _)| {
            let mode = run.drawn.mode.name().replace(' ', "-");
            (format!("figure-{}-{mode}", run.drawn.figure), run)
        })
    }
}

/// What a reader of the file finds.
fn read(r: &Recovered) -> String {
    match r.broken {
        Some(at) => format!("byte {at} holds data that was never written there"),
        None => "every byte is as written".to_owned(),
    }
}

fn recovered(r: &Recovered) -> Value {
    json!({ "nodes": r.nodes, "zones_reported": r.zones, "addresses": r.addresses,
        "left_out": r.left_out, "broken_at": r.broken })
}
