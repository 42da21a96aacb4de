//! Figures 2.1 and 5.1 to 5.4: an fsync of each mode, step by step, and what recovery makes of a
//! power failure in the first.

use serde::{Deserialize, Serialize};
use wp_machine::{MachineError, registry};
use wp_report::document::nullable;
use wp_report::flow::{Flow, flow};
use wp_report::run::{Run, SYNCS, Seen};

use super::flows::{FLOWS, Look, Recorded, Recovered, record, shortest};

/// What the figures are made from.
pub struct Recordings {
    /// The fsyncs of [`FLOWS`], in order.
    pub flows: Vec<(Recorded, Flow)>,
    /// The look of the first of them at which power fails.
    pub look: usize,
    /// What recovery makes of that look without the check.
    pub stock: Recovered,
    /// The same with the check.
    pub checked: Recovered,
    /// Writes of the program.
    pub writes: usize,
}

/// Runs what the figures need. Errors: as the machines'.
pub fn recordings(seed: u64) -> Result<Recordings, MachineError> {
    let (writes, look) = shortest(seed)?;
    let f2fs = registry::find("file system", registry::FILE_SYSTEMS, |f| f.name, "f2fs")
        .map_err(MachineError::Config)?;
    let mut flows = Vec::new();
    for drawn in FLOWS {
        let run = record(drawn, seed, writes)?;
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
    let first = &flows[0].0;
    let (stock, checked) = (first.recovered(look, false)?, first.recovered(look, true)?);
    Ok(Recordings { flows, look, stock, checked, writes })
}

/// The drive's write pointers from a moment on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// When, nanoseconds since the fsync.
    pub at_ns: u64,
    /// Each zone that was written: its number, `wp-zns` and `wp-nand`, in blocks from its start.
    pub zone_wp_zns_wp_nand: Vec<[u64; 3]>,
}

/// An fsync that a figure shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Picture {
    /// The paper's figure.
    pub figure: String,
    /// Mode.
    pub mode: String,
    /// With power-loss protection?
    pub plp: bool,
    /// Its steps.
    pub flow: Flow,
    /// What the drive held meanwhile.
    pub pointers: Vec<Moment>,
}

/// What recovery makes of the power failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AfterCut {
    /// Nodes of the chain.
    pub nodes: u32,
    /// Zones whose pointer was asked for; 0 without the check.
    pub zones_reported: usize,
    /// Addresses that were compared with a write pointer.
    pub addresses: u64,
    /// Nodes that were left out, in words.
    pub left_out: Vec<String>,
    /// First byte of the file that holds what was never written there.
    #[serde(deserialize_with = "nullable")]
    pub broken_at: Option<u64>,
}

/// The figures as results hold them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pictures {
    /// Writes of the program.
    pub writes: usize,
    /// The fsyncs.
    pub flows: Vec<Picture>,
    /// The look of the first of them at which power fails.
    pub cut_at_look: usize,
    /// What recovery makes of that without the check.
    pub stock: AfterCut,
    /// The same with the check.
    pub checked: AfterCut,
}

impl From<&Recovered> for AfterCut {
    fn from(r: &Recovered) -> AfterCut {
        AfterCut {
            nodes: r.nodes,
            zones_reported: r.zones,
            addresses: r.addresses,
            left_out: r.left_out.clone(),
            broken_at: r.broken,
        }
    }
}

impl From<&Look> for Moment {
    fn from(look: &Look) -> Moment {
        let pointers = look.pointers.iter().map(|p| [p.zone, p.host, p.nand]);
        Moment { at_ns: look.at_ns, zone_wp_zns_wp_nand: pointers.collect() }
    }
}

impl Recordings {
    /// As results hold them.
    pub fn pictures(&self) -> Pictures {
        let picture = |(run, flow): &(Recorded, Flow)| Picture {
            figure: run.drawn.figure.to_owned(),
            mode: run.drawn.mode.name().to_owned(),
            plp: run.drawn.plp,
            flow: flow.clone(),
            pointers: run.looks.iter().map(Moment::from).collect(),
        };
        Pictures {
            writes: self.writes,
            flows: self.flows.iter().map(picture).collect(),
            cut_at_look: self.look,
            stock: AfterCut::from(&self.stock),
            checked: AfterCut::from(&self.checked),
        }
    }
}
