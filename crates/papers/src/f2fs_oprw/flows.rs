//! Figures 2.1 and 5.1 to 5.4: one fsync in each mode, recorded, with what the drive held
//! meanwhile.
//!
//! Picture:    a file is filled; writes of other sizes at other places, an fsync after each; the
//!             last of them is recorded, and with each event of the drive what its write pointers
//!             are, to the host and on the flash. All modes run the same program: the shortest
//!             after which a cut of posix mode leaves the node and not its data.
//! Cut:        what the drive holds at such a moment is recovered, with the check and without, and
//!             the file is read.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use wp_base::event::{Class, Event, Record};
use wp_base::{FsResult, Sector, Span, Time, Zone, ZoneKind};
use wp_block::{Admit, CrashView, DevRequest, DeviceModel, Effects, Limits};
use wp_f2fs::image::{RecoverOptions, Rules, recover, survey};
use wp_machine::classify::{Classifier, is_listed};
use wp_machine::{Machine, MachineError};
use wp_medium::{Medium, MediumView, Overlay, View, WithZones};
use wp_vfs::{OpenFlags, Vfs};
use wp_workload::program::contents;

use super::cuts::{self, Write};
use super::machine::{KERNEL, Mode, Setup};

/// Name of the file.
const FILE: &str = "pattern";
/// Bytes of a block.
const BLOCK: u64 = 4096;
/// How long the drive is recorded after the fsync: until what was being programmed has been
/// programmed.
const AFTER: Span = Span::millis(3);
/// Dirty blocks of a file up to which its data count as hot (`min_hot_blocks`).
const HOT_BLOCKS: u64 = 16;
/// Most writes that are tried until one can be cut as the paper has it.
const WRITES: usize = 64;

/// A mode that the paper draws.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drawn {
    /// The paper's figure.
    pub figure: &'static str,
    /// Mode.
    pub mode: Mode,
    /// With power-loss protection?
    pub plp: bool,
}

/// The fsyncs of figures 2.1 and 5.2, and strict as the kernel has it on zones.
pub const FLOWS: [Drawn; 6] = [
    Drawn { figure: "2.1a", mode: Mode::Posix, plp: false },
    Drawn { figure: "2.1a", mode: Mode::NoBarrier, plp: true },
    Drawn { figure: "2.1b", mode: Mode::StrictFixed, plp: false },
    Drawn { figure: "2.1b", mode: Mode::Strict, plp: false },
    Drawn { figure: "5.2a", mode: Mode::OprwPosix, plp: false },
    Drawn { figure: "5.2b", mode: Mode::OprwNoBarrier, plp: true },
];

/// A zone's write pointers, in blocks from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pointers {
    /// The zone.
    pub zone: u64,
    /// `wp-zns`: what the host sees.
    pub host: u64,
    /// `wp-nand`: what a power failure leaves.
    pub nand: u64,
}

/// What the drive held from a moment on.
pub struct Look {
    /// When, nanoseconds since the fsync.
    pub at_ns: u64,
    /// Zones that were written since the file system was made, in order.
    pub pointers: Vec<Pointers>,
    /// What a power failure leaves.
    pub medium: Medium,
    /// Its zones.
    pub zones: Vec<Zone>,
}

/// A recorded fsync.
pub struct Recorded {
    /// What is drawn.
    pub drawn: Drawn,
    /// Every event of it.
    pub records: Vec<Record>,
    /// Classes of blocks, by record.
    pub classes: BTreeMap<usize, String>,
    /// What the drive held, from one change to the next.
    pub looks: Vec<Look>,
    /// How long it took.
    pub took_ns: u64,
    /// The writes so far.
    writes: Vec<Write>,
    bytes: u64,
}

/// What recovery makes of a look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// Nodes of the chain.
    pub nodes: u32,
    /// Zones whose pointer was asked for, by the one report; 0 without the check.
    pub zones: usize,
    /// Addresses that were compared with a write pointer.
    pub addresses: u64,
    /// Nodes that were left out, in words.
    pub left_out: Vec<String>,
    /// First byte of the file that holds what was never written there.
    pub broken: Option<u64>,
}

/// The shortest program after whose last write a cut of posix mode breaks the file, and the number
/// of that look. Errors: as the machine's; no such program.
pub fn shortest(seed: u64) -> Result<(usize, usize), MachineError> {
    let all = run(FLOWS[0], seed, WRITES)?;
    for (n, looks) in all.looks.into_iter().enumerate() {
        let writes = all.writes[..=n].to_vec();
        let (records, classes) = (Vec::new(), BTreeMap::new());
        let (drawn, bytes) = (FLOWS[0], all.bytes);
        let one = Recorded { drawn, records, classes, looks, took_ns: 0, writes, bytes };
        // The first write is in no checkpoint, the first node behind one is not waited for, and
        // data of a few dirty blocks go to the log of directories.
        let is_plain = n > 1 && u64::from(one.writes[n].bytes) > HOT_BLOCKS * BLOCK;
        for look in (0..one.looks.len()).filter(|_| is_plain) {
            if one.is_split(look) && one.recovered(look, false)?.broken.is_some() {
                return Ok((n, look));
            }
        }
    }
    Err(MachineError::Config(format!("figure 5.1: no power failure splits one of {WRITES} writes")))
}

/// Records the fsync of the last of `writes` writes over the file. Errors: as the machine's.
pub fn record(drawn: Drawn, seed: u64, writes: usize) -> Result<Recorded, MachineError> {
    let mut run = run(drawn, seed, writes)?;
    let (records, classes, took_ns) = (run.records, run.classes, run.took_ns);
    let looks = run.looks.pop().unwrap_or_default();
    Ok(Recorded { drawn, records, classes, looks, took_ns, writes: run.writes, bytes: run.bytes })
}

/// A run of the program.
struct Run {
    records: Vec<Record>,
    classes: BTreeMap<usize, String>,
    /// Of each fsync.
    looks: Vec<Vec<Look>>,
    took_ns: u64,
    writes: Vec<Write>,
    bytes: u64,
}

fn run(drawn: Drawn, seed: u64, writes: usize) -> Result<Run, MachineError> {
    let setup = Setup::paper(drawn.mode, drawn.plp, seed);
    let watch = Watch::default();
    let around = |_: usize, inner: Box<dyn DeviceModel>| -> Box<dyn DeviceModel> {
        Box::new(Watched { inner, watch: watch.clone() })
    };
    let machine = Machine::with_device(setup.spec()?, None, around)?;
    let vfs = machine.mount()?;
    let plan = cuts::writes(seed, writes as u32);
    let (v, all, w) = (vfs.clone(), plan.clone(), watch.clone());
    let (looks, took_ns) = machine
        .block_on("writer", async move { play(&v, &all, &w).await })?
        .map_err(|error| MachineError::Fs { during: "figure 2.1", error })?;
    let records = machine.rt.probe().take();
    machine.record(Class(0));
    machine.unmount(&vfs)?;
    let classes = classes(&machine, &records)?;
    let bytes = machine.part.sectors() * wp_base::SECTOR_BYTES;
    Ok(Run { records, classes, looks, took_ns, writes: plan, bytes })
}

async fn play(vfs: &Vfs, all: &[Write], watch: &Watch) -> FsResult<(Vec<Vec<Look>>, u64)> {
    let rt = vfs.rt();
    let fd = vfs.open(FILE, OpenFlags::CREATE, 0o644).await?;
    let mut looks = Vec::new();
    let mut took = 0;
    for (n, w) in all.iter().enumerate() {
        vfs.pwrite(fd, w.at, &[contents(w.seed, w.at, w.bytes)]).await?;
        let is_last = n + 1 == all.len();
        if is_last {
            rt.probe().set_mask(Class::ALL);
        }
        let start = rt.now();
        watch.begin(start);
        vfs.fsync(fd).await?;
        took = rt.now().since(start).0;
        if is_last {
            rt.sleep(AFTER).await;
        }
        looks.push(watch.end());
        if n == 0 {
            vfs.sync().await?;
        }
    }
    Ok((looks, took))
}

/// What is seen of the drive while somebody looks: since when, and what. Clones share it.
#[derive(Clone, Default)]
struct Watch(Rc<RefCell<(Option<Time>, Vec<Look>)>>);

impl Watch {
    fn begin(&self, start: Time) {
        *self.0.borrow_mut() = (Some(start), Vec::new());
    }

    fn end(&self) -> Vec<Look> {
        std::mem::take(&mut *self.0.borrow_mut()).1
    }

    fn look(&self, device: &dyn DeviceModel, now: Time) {
        if let (Some(start), looks) = &mut *self.0.borrow_mut() {
            look(device, now, *start, looks);
        }
    }
}

/// A drive that is observed before and after each of its events.
struct Watched {
    inner: Box<dyn DeviceModel>,
    watch: Watch,
}

impl DeviceModel for Watched {
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }
    fn submit(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
        self.watch.look(&*self.inner, now);
        let admit = self.inner.submit(now, rq, fx);
        self.watch.look(&*self.inner, now);
        admit
    }
    fn timer(&mut self, now: Time, token: u64, fx: &mut Effects) {
        self.inner.timer(now, token, fx);
        self.watch.look(&*self.inner, now);
    }
    fn crash_view(&self, now: Time) -> CrashView {
        self.inner.crash_view(now)
    }
    fn fork(&self) -> Box<dyn DeviceModel> {
        self.inner.fork()
    }
    fn medium(&self) -> Medium {
        self.inner.medium()
    }
    fn zones(&self) -> Vec<Zone> {
        self.inner.zones()
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }
}

/// Notes what the drive holds if that is new.
fn look(device: &dyn DeviceModel, now: Time, start: Time, looks: &mut Vec<Look>) {
    let (host, view) = (device.zones(), device.crash_view(now));
    let Some(cut) = view.zones else { return };
    let blocks = |z: &Zone| (z.wp.0 - z.start.0) * wp_base::SECTOR_BYTES / BLOCK;
    let pointers: Vec<Pointers> = (0..)
        .zip(host.iter().zip(cut.table.iter()))
        .filter(|(_, (h, _))| h.kind == ZoneKind::Sequential && h.wp > h.start)
        .map(|(zone, (h, n))| Pointers { zone, host: blocks(h), nand: blocks(n) })
        .collect();
    let at_ns = now.since(start).0;
    // What is over within one instant is nothing that a cut could leave.
    if looks.last().is_some_and(|l| l.at_ns == at_ns) {
        looks.pop();
    }
    if looks.last().is_none_or(|l| l.pointers != pointers) {
        looks.push(Look { at_ns, pointers, medium: view.medium, zones: cut.table.to_vec() });
    }
}

fn classes(machine: &Machine, records: &[Record]) -> Result<BTreeMap<usize, String>, MachineError> {
    let (spec, view) = (machine.spec(), machine.view());
    // Unmounted, it needs no recovery, whose check would need the zones.
    let plain = super::machine::fs_options(Mode::Posix);
    let options = wp_vfs::Options::parse(&plain, spec.fs.options)
        .map_err(|e| MachineError::Config(e.to_string()))?;
    let named = Classifier::new(spec.fs, &options, &view, spec.start)
        .map_err(|error| MachineError::Fs { during: "classes of blocks", error })?;
    let class = |(i, r): (usize, &Record)| match r.event {
        Event::Block { at, sectors, .. } if is_listed(r) && sectors > 0 => {
            Some((i, named.range(at, sectors)))
        }
        _ => None,
    };
    Ok(records.iter().enumerate().filter_map(class).collect())
}

impl Recorded {
    /// Of the zones that the fsync writes, is one as far on the flash as the host sees it, and
    /// another one not?
    fn is_split(&self, look: usize) -> bool {
        let (first, now) = (&self.looks[0].pointers, &self.looks[look].pointers);
        let written = |p: &&Pointers| {
            first.iter().find(|f| f.zone == p.zone).is_none_or(|f| f.host != p.host)
        };
        let late: Vec<bool> = now.iter().filter(written).map(|p| p.nand < p.host).collect();
        late.contains(&true) && late.contains(&false)
    }

    /// Recovers what a cut at a look leaves, with the paper's check or without, and reads the file.
    /// Errors: recoveries that fail. Panics if there is no such look.
    pub fn recovered(&self, look: usize, oprw: bool) -> Result<Recovered, MachineError> {
        let fs = |error| MachineError::Fs { during: "recovery", error };
        let look = &self.looks[look];
        let (start, sectors) = (Sector(0), self.bytes / wp_base::SECTOR_BYTES);
        let zones = Zone::within(&look.zones, start, sectors);
        let below = MediumView { medium: look.medium.clone(), start, bytes: self.bytes };
        let rules = Rules::linux(KERNEL.0, KERNEL.1);
        let options = RecoverOptions { rules, oprw, ..RecoverOptions::default() };
        let reported = zones.len();
        let view = WithZones::new(&below, zones);
        let done = recover(&Overlay::new(&view), &options).map_err(fs)?;
        if let Some(error) = done.failed.clone() {
            return Err(fs(error));
        }
        let checked = done.oprw.clone().unwrap_or_default();
        Ok(Recovered {
            nodes: done.nodes_seen,
            zones: if oprw { reported } else { 0 },
            addresses: checked.addresses_seen,
            left_out: checked.nodes.iter().map(ToString::to_string).collect(),
            broken: self.broken(&view, &options).map_err(fs)?,
        })
    }

    /// First byte of the recovered file that holds what was never written there.
    fn broken(&self, view: &dyn View, options: &RecoverOptions) -> FsResult<Option<u64>> {
        let overlay = Overlay::new(view);
        let found = survey(&overlay, options)?;
        let mut known: BTreeMap<u64, BTreeSet<Vec<u8>>> = BTreeMap::new();
        for w in &self.writes {
            let data = contents(w.seed, w.at, w.bytes);
            for i in 0..u64::from(w.bytes) / BLOCK {
                let block = data.sub((i * BLOCK) as u32, BLOCK as u32).to_vec();
                known.entry(w.at + i * BLOCK).or_default().insert(block);
            }
        }
        let Some(file) = found.files.iter().find(|f| f.path == FILE) else { return Ok(Some(0)) };
        for run in &file.map {
            for i in 0..run.bytes / BLOCK {
                let mut bytes = vec![0u8; BLOCK as usize];
                overlay.read_at(run.place + i * BLOCK, &mut bytes)?;
                if !known.get(&(run.at + i * BLOCK)).is_some_and(|all| all.contains(&bytes)) {
                    return Ok(Some(run.at + i * BLOCK));
                }
            }
        }
        Ok(None)
    }
}
