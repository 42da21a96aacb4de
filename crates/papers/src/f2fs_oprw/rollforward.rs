//! Table 6.3: how long roll-forward takes after a cut in varmail, without and with the check.
//!
//! Picture:    varmail -> what the drive holds when the wanted number of nodes has been fsynced ->
//!             recovery, which counts its work -> costs -> time.
//! Input:      what each piece of work costs ([`Costs`]): the drive's reads by its preset, the
//!             CPU's assumed (no source for them is known to us), each varied by half.
//! Predicted:  how much work there is: how long the list of inodes grows, which makes the time grow
//!             with the square of the nodes, and how many addresses the check looks at.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use wp_base::Zone;
use wp_f2fs::image::{RecoverOptions, Recovery, Rules, recover};
use wp_machine::MachineError;
use wp_medium::{Medium, MediumView, Overlay, View, Watched, WithZones};
use wp_workload::filebench::{self, RunLength, Watch};

use super::machine::{KERNEL, Mode, Setup};
use crate::vary::{self, Variation};

/// Nodes scanned in the paper's three runs.
pub const NODES: [u64; 3] = [40_791, 50_962, 57_500];

/// What a piece of work costs, nanoseconds. All but the drive's are assumed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Costs {
    /// A block of the chain from the drive: read ahead, so its share of the link.
    pub chain_read: f64,
    /// A block that is waited for: a random read of the drive.
    pub random_read: f64,
    /// A node: page look-up, its marks, locks, the file's node beside it.
    pub node: f64,
    /// An entry of the list passed: one load that the last one's must come for, and one beside it.
    pub entry: f64,
    /// An address compared with the one before.
    pub address: f64,
    /// A name: an older file of the name is deleted, a new one entered.
    pub name: f64,
    /// A place for an address in the check: a load, a division by the zone's length, a load, a
    /// comparison.
    pub check: f64,
}

impl Costs {
    /// The assumed CPU costs, and the reads of the paper's drive by its preset.
    pub fn paper() -> Costs {
        let device = wp_device::find("zn540-4tb").expect("a preset of our own list");
        let param = |name: &str| {
            let found = device.params.iter().find(|p| p.name == name);
            found.map_or(0.0, |p| p.value as f64)
        };
        let link = |bytes: f64| bytes * 1e3 / param("link_read_mb_s");
        let bus = 4096.0 * 1e3 / param("bus_mb_s");
        Costs {
            chain_read: link(4096.0),
            random_read: param("command_ns")
                + param("read_ns")
                + bus
                + link(4096.0)
                + param("read_cpu_ns")
                + param("read_overhead_ns"),
            node: 5_000.0,
            entry: 8.0,
            address: 2.0,
            name: 25_000.0,
            check: 5.0,
        }
    }

    /// Both variations of each assumed one.
    pub fn variations() -> Vec<Variation> {
        ["node_ns", "entry_ns", "address_ns", "name_ns", "check_ns"]
            .into_iter()
            .flat_map(|key| Variation::of_own(key, vary::BY_HALF))
            .collect()
    }

    /// Are they other than [`Costs::paper`]'s?
    pub fn is_varied(&self) -> bool {
        *self != Costs::paper()
    }

    /// Changed as a variation says.
    #[must_use]
    pub fn varied(self, v: &Variation) -> Costs {
        Costs {
            node: v.own("node_ns", self.node),
            entry: v.own("entry_ns", self.entry),
            address: v.own("address_ns", self.address),
            name: v.own("name_ns", self.name),
            check: v.own("check_ns", self.check),
            ..self
        }
    }
}

/// What a recovery did, and read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Nodes scanned.
    pub nodes: u64,
    /// Nodes examined, entries passed, addresses compared, names entered, inodes read.
    pub looks: u64,
    /// See `looks`.
    pub entries: u64,
    /// See `looks`.
    pub addresses: u64,
    /// See `looks`.
    pub names: u64,
    /// See `looks`.
    pub inodes_read: u64,
    /// Places that the check examined.
    pub slots: u64,
    /// Nodes that it left out.
    pub left_out: u64,
    /// Blocks of the drive that were read.
    pub blocks_read: u64,
}

impl Done {
    fn of(r: &Recovery, blocks_read: u64) -> Done {
        let oprw = r.oprw.as_ref();
        Done {
            nodes: r.nodes_seen.into(),
            looks: r.work.nodes,
            entries: r.work.entries_searched,
            addresses: r.work.addresses,
            names: r.work.names,
            inodes_read: r.work.inodes_read,
            slots: oprw.map_or(0, |o| o.slots_seen),
            left_out: oprw.map_or(0, |o| u64::from(o.unwritten) + u64::from(o.later)),
            blocks_read,
        }
    }

    /// Milliseconds without the check.
    pub fn ms(&self, c: &Costs) -> f64 {
        let ns = self.nodes as f64 * c.chain_read
            + self.inodes_read as f64 * c.random_read
            + self.looks as f64 * c.node
            + self.entries as f64 * c.entry
            + self.addresses as f64 * c.address
            + self.names as f64 * c.name;
        ns / 1e6
    }

    /// Milliseconds of the check.
    pub fn check_ms(&self, c: &Costs) -> f64 {
        self.slots as f64 * c.check / 1e6
    }
}

/// A row of table 6.3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What recovery without the check did.
    pub plain: Done,
    /// The same with it.
    pub oprw: Done,
    /// Blocks that only the recovery with the check read.
    pub extra_blocks: u64,
    /// Whether both recoveries leave the same image.
    pub same: bool,
}

impl Row {
    /// Extra time of OPRW over F2FS, as a share.
    pub fn extra(&self, c: &Costs) -> f64 {
        self.oprw.check_ms(c) / self.plain.ms(c)
    }
}

/// What the drive held at a moment.
struct Snapshot {
    medium: Medium,
    zones: Vec<Zone>,
}

/// A drive after a cut in varmail, for whoever measures its recovery.
pub struct Chain {
    snapshot: Snapshot,
    bytes: u64,
}

/// Runs varmail until `nodes` nodes have been fsynced. Errors: as the machine's.
pub fn chain(seed: u64, nodes: u64) -> Result<Chain, MachineError> {
    let (mut found, bytes) = snapshots(seed, &[nodes])?;
    let found = found.pop();
    let why = || MachineError::Config(format!("varmail ended before {nodes} nodes"));
    Ok(Chain { snapshot: found.ok_or_else(why)?, bytes })
}

impl Chain {
    /// Rolls it forward in memory, with the check or without; the nodes of the chain. Errors:
    /// recoveries that fail.
    pub fn recover(&self, oprw: bool) -> Result<u32, MachineError> {
        let (medium, start) = (self.snapshot.medium.clone(), wp_base::Sector(0));
        let below = MediumView { medium, start, bytes: self.bytes };
        let zones = Zone::within(&self.snapshot.zones, start, self.bytes / wp_base::SECTOR_BYTES);
        let view = WithZones::new(&below, zones);
        let rules = Rules::linux(KERNEL.0, KERNEL.1);
        let options = RecoverOptions { rules, oprw, ..RecoverOptions::default() };
        let done = recover(&Overlay::new(&view), &options)
            .map_err(|error| MachineError::Fs { during: "recovery", error })?;
        match done.failed {
            Some(error) => Err(MachineError::Fs { during: "roll-forward", error }),
            None => Ok(done.nodes_seen),
        }
    }
}

/// Runs varmail and recovers what the drive held at each number of fsynced nodes in `nodes`
/// (rising).
///
/// Errors: as the machine's; recoveries that fail.
pub fn rows(seed: u64, nodes: &[u64]) -> Result<Vec<Row>, MachineError> {
    let (found, bytes) = snapshots(seed, nodes)?;
    found.into_iter().map(|s| row(s, bytes)).collect()
}

/// What the drive held at each of these moments, and the bytes of its file system.
fn snapshots(seed: u64, nodes: &[u64]) -> Result<(Vec<Snapshot>, u64), MachineError> {
    let setup = Setup::paper(Mode::NoBarrier, true, seed);
    let machine = setup.machine()?;
    let vfs = machine.mount()?;
    let found: Rc<RefCell<Vec<Snapshot>>> = Rc::default();
    let (snapshots, queue, wanted) = (found.clone(), machine.queue.clone(), nodes.to_vec());
    // Each fsync writes one node, the file's inode: the chain has `syncs` nodes.
    let look = move |syncs: u64| {
        if wanted.contains(&syncs) {
            let (medium, zones) = queue.with_device(|d| (d.medium(), d.zones()));
            snapshots.borrow_mut().push(Snapshot { medium, zones });
        }
    };
    let loops = nodes.last().map_or(0, |n| n.div_ceil(2));
    let v = vfs.clone();
    machine
        .block_on("filebench", async move {
            let personality = filebench::varmail(1);
            let length = RunLength::Loops(loops);
            let watch = Watch { at_fsync: Rc::new(look), ..Watch::default() };
            filebench::run_watched(&v, &personality, length, seed, watch).await
        })?
        .map_err(|error| MachineError::Fs { during: "varmail", error })?;
    let bytes = machine.part.sectors() * wp_base::SECTOR_BYTES;
    Ok((found.take(), bytes))
}

fn row(snapshot: Snapshot, bytes: u64) -> Result<Row, MachineError> {
    let start = wp_base::Sector(0);
    let zones = Zone::within(&snapshot.zones, start, bytes / wp_base::SECTOR_BYTES);
    let below = MediumView { medium: snapshot.medium, start, bytes };
    let view = WithZones::new(&below, zones);
    let one = |oprw: bool| -> Result<_, MachineError> {
        let blocks: RefCell<BTreeSet<u64>> = RefCell::default();
        let seen = |at: u64, read: &[u8]| {
            let last = (at + read.len().max(1) as u64 - 1) / 4096;
            blocks.borrow_mut().extend(at / 4096..=last);
        };
        let watched = Watched::new(&view, &seen);
        let overlay = Overlay::new(&watched);
        let rules = Rules::linux(KERNEL.0, KERNEL.1);
        let options = RecoverOptions { rules, oprw, ..RecoverOptions::default() };
        let recovery = recover(&overlay, &options)
            .map_err(|error| MachineError::Fs { during: "recovery", error })?;
        if let Some(error) = recovery.failed.clone() {
            return Err(MachineError::Fs { during: "roll-forward", error });
        }
        let pages: Vec<(u64, u128)> =
            overlay.pages().into_iter().map(|(n, page)| (n, page.id())).collect();
        let blocks = blocks.into_inner();
        Ok((Done::of(&recovery, blocks.len() as u64), blocks, pages))
    };
    let (plain, read, left) = one(false)?;
    let (oprw, read_with, left_with) = one(true)?;
    let extra_blocks = read_with.difference(&read).count() as u64;
    debug_assert!(view.len_bytes() == bytes);
    Ok(Row { plain, oprw, extra_blocks, same: left == left_with })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_work_times_costs() {
        let done = Done {
            nodes: 1000,
            looks: 2000,
            entries: 1_000_000,
            addresses: 500_000,
            names: 100,
            inodes_read: 10,
            slots: 923_000,
            left_out: 0,
            blocks_read: 0,
        };
        let c = Costs { chain_read: 1000.0, random_read: 70_000.0, ..Costs::paper() };
        // 1 + 0.7 + 10 + 8 + 1 + 2.5
        assert!((done.ms(&c) - 23.2).abs() < 1e-9, "{}", done.ms(&c));
        assert!((done.check_ms(&c) - 4.615).abs() < 1e-9);
        let half = Costs::variations().into_iter().find(|v| v.name == "check_ns x1/2");
        let half = c.varied(&half.expect("there"));
        assert!((done.check_ms(&half) - 4.615 / 2.0).abs() < 1e-9);
        assert_eq!(Costs::variations().len(), 10);
        let drive = Costs::paper();
        assert!((60_000.0..90_000.0).contains(&drive.random_read), "{}", drive.random_read);
    }
}
