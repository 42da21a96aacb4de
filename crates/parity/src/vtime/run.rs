//! Running a program on our own machine, with the set-up of the recorded runs.
//!
//! The machine: null_blk of 512 MiB (with zones 1 GiB) with one latency for all requests, a CPU
//! that costs nothing, a kernel of 100 ticks a second. What it takes from the guest is where on the
//! clock the file system was mounted: its timers round to ticks, and to multiples of 8 or 64 of
//! them.

use std::rc::Rc;

use wp_base::event::{BlockAction, Class, Event, Flags, Op, Record};
use wp_base::{FsError, FsResult, LINUX_ERRNOS, Span, Time};
use wp_block::BlockQueue;
use wp_device::preset;
use wp_machine::profile::PROFILES;
use wp_machine::{Machine, MachineError, MachineSpec};
use wp_medium::MediumView;
use wp_vfs::{Options, Vfs};
use wp_workload::program::{By, Call, Label, NO_THREADS, Player, Program, Step};

use super::config::Config;

/// Bytes of the device (`guest.sh`: `size=512`).
const DEVICE_BYTES: u64 = 512 << 20;
/// With zones (`size=1024 zone_size=16 zone_nr_conv=16`): bytes, of a zone, conventional zones.
const ZONED: (u64, u64, u64) = (1 << 30, 16 << 20, 16);
/// `BLK_SAFE_MAX_SECTORS`: null_blk leaves its queue's limit at the default.
const REQUEST_SECTORS: u64 = 255;
/// A tick of the guest's kernel (HZ=100), nanoseconds.
pub const TICK_NS: u64 = 10_000_000;
/// How late a sleep ends: `timer_slack_ns` of an ordinary task, whose timer may wait so long for
/// company and, with nothing else to wake for, does.
const SLACK: Span = Span(50_000);
/// Blocks of 4 KiB that mkfs.btrfs writes: zeroes, and the trees (1071 of them with small ones).
const MKFS_BLOCKS: u64 = 1246;
/// What a look at the clock costs the guest, whose CPU is infinitely fast otherwise.
const LOOK_NS: u64 = 256;
/// Kernel whose rules apply.
const ERA: &str = "6.12.117";

/// A timed call or stretch.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Timed {
    /// Case.
    pub case: String,
    /// Name.
    pub op: String,
    /// Which of that name.
    pub index: u32,
    /// Nanoseconds since power-on.
    pub start_ns: u64,
    /// Nanoseconds that it took.
    pub ns: u64,
    /// Did it succeed? (Stretches always.)
    pub ok: bool,
    /// What the device was sent meanwhile; `None`: not counted.
    #[serde(default)]
    pub sent: Option<Sent>,
    /// The negative number of the error, where a seek found what it looked for, or the checkpoint
    /// of `mkcp`; `None`: not told.
    #[serde(default)]
    pub answer: Option<i64>,
}

/// What the device was sent, as `/sys/block/DEVICE/stat` counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sent {
    /// Reads, writes and discards in flight or ended; a flush, too, while it is in flight.
    pub requests: i64,
    /// Flushes that ended.
    pub flushes: u64,
}

impl std::fmt::Display for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.requests, self.flushes)
    }
}

impl Sent {
    fn add(&mut self, event: &Event) {
        let Event::Block { action, op, flags, sectors, .. } = event else { return };
        match (action, op) {
            (BlockAction::Issue, _) if *op != Op::Flush && *sectors > 0 => self.requests += 1,
            // The device's flush, and the request that asked for it and for nothing else.
            (BlockAction::Issue, Op::Flush) => self.requests += 1,
            (BlockAction::Complete, Op::Flush) if flags.has(Flags::PREFLUSH) => {
                self.requests -= 1;
                self.flushes += 1;
            }
            (BlockAction::Complete, Op::Flush) => self.requests += 1,
            _ => {}
        }
    }
}

impl Timed {
    /// What the call answered, beside how long it took: an error, or what a seek found.
    pub fn answered(&self) -> Option<String> {
        let known = |n: i64| LINUX_ERRNOS.iter().find(|(_, number)| i64::from(*number) == -n);
        match (self.ok, self.answer) {
            (true, None | Some(0)) => None,
            (true, Some(found)) => Some(format!("at {found}")),
            (false, Some(n)) => {
                let name = known(n).map_or_else(|| format!("error {}", -n), |e| e.0.to_owned());
                Some(format!("failed: {name}"))
            }
            (false, None) => Some("failed".to_owned()),
        }
    }

    /// Device waits in its chain.
    pub fn waits(&self, latency_ns: u64) -> u64 {
        self.ns / latency_ns.max(1)
    }

    /// The same where one wait is much longer than the guest's clock steps: a call that waits for
    /// what an earlier one had sent began those few steps later, and is no wait shorter for it.
    /// `before`: calls since the last that waited, each with two looks at the clock.
    pub fn waits_about(&self, latency_ns: u64, before: u64) -> u64 {
        let late = (latency_ns / 20).max(2 * LOOK_NS * (before + 1));
        (self.ns + late.min(latency_ns / 2)) / latency_ns.max(1)
    }

    /// [`Timed::waits_about`] of each call of a program.
    pub fn all_waits(calls: &[Timed], latency_ns: u64) -> Vec<u64> {
        let mut before = 0;
        let waits = calls.iter().map(|t| {
            let waits = t.waits_about(latency_ns, before);
            before = if waits > 0 { 0 } else { before + 1 };
            waits
        });
        waits.collect()
    }
}

/// What a program did.
pub struct Outcome {
    /// Timed calls, in order.
    pub timed: Vec<Timed>,
    /// Block and journal events since the mount.
    pub records: Vec<Record>,
    /// The device at the end.
    pub view: MediumView,
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Latency of every request, nanoseconds.
    pub latency_ns: u64,
    /// When the file system is mounted, nanoseconds since power-on.
    pub mount_ns: u64,
    /// Seconds of rest between `sync` after the mount and the program.
    pub settle_s: u64,
}

/// Why a program did not run.
#[derive(Debug)]
pub enum RunError {
    /// This build cannot do what the program or the configuration asks for.
    NotModelled(String),
    /// The machine failed.
    Machine(MachineError),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::NotModelled(why) => write!(f, "not modelled: {why}"),
            RunError::Machine(e) => e.fmt(f),
        }
    }
}

/// Runs `program` on a new file system. Errors: what this build cannot do, and machines that stop.
pub fn run(config: &Config, program: &Program, setup: &Setup) -> Result<Outcome, RunError> {
    if !config.not_modelled.is_empty() {
        return Err(RunError::NotModelled(config.not_modelled.to_owned()));
    }
    let machine = machine(config, setup)?;
    let rt = machine.rt.clone();
    let mount = Time(setup.mount_ns);
    if mount > rt.now() {
        machine
            .block_on("init", async move { rt.sleep_until(mount).await })
            .map_err(RunError::Machine)?;
    }
    machine.record(Class(Class::BLOCK.0 | Class::JBD2.0));
    let vfs = machine.mount().map_err(|e| match e {
        MachineError::Fs { error: FsError::Unsupported(why), .. } => RunError::NotModelled(why),
        e => RunError::Machine(e),
    })?;
    let (steps, settle, queue) = (program.0.clone(), setup.settle_s, machine.queue.clone());
    let task = async move {
        vfs.sync().await?;
        vfs.rt().sleep(Span::secs(settle) + SLACK).await;
        let mut player = Interpreter::new(vfs, queue);
        player.run(&steps).await?;
        player.count();
        Ok((player.timed, player.records))
    };
    let (timed, records) =
        machine.block_on("tl", task).map_err(RunError::Machine)?.map_err(|error| match error {
            FsError::Unsupported(why) => RunError::NotModelled(why),
            error => RunError::Machine(MachineError::Fs { during: "a program", error }),
        })?;
    Ok(Outcome { timed, records, view: machine.view() })
}

fn machine(config: &Config, setup: &Setup) -> Result<Machine, RunError> {
    let entry = wp_machine::registry::FILE_SYSTEMS.iter().find(|f| f.name == config.fs);
    let fs = *entry.ok_or_else(|| RunError::NotModelled(config.fs.to_owned()))?;
    // `guest.sh`: `mkfs.ext4 -U … -E hash_seed=…`; mkfs.f2fs without options.
    let uuid = "11111111-2222-3333-4444-555555555555";
    let identity = match config.fs {
        "ext4" => format!("uuid={uuid},hash_seed={uuid},"),
        _ => String::new(),
    };
    // User-Mode Linux of Debian is built without SMP.
    let smp = if config.fs == "ext4" { "nosmp," } else { "" };
    let hz = if fs.options.iter().any(|o| o.key == "hz") { "hz=100," } else { "" };
    // btrfs is another device to the flusher than the one that mkfs has just written through.
    let others = match fs.options.iter().any(|o| o.key == "others_wrote") {
        true => format!("others_wrote={MKFS_BLOCKS},"),
        false => String::new(),
    };
    let text = format!("era={ERA},{smp}{hz}{others}{identity}{}", config.ours);
    let fs_options = Options::parse(&text, fs.options)
        .map_err(|e| RunError::NotModelled(format!("option {}={}", e.key, e.value)))?;
    let cache = if config.cache { 64 << 20 } else { 0 };
    let (capacity, zone_bytes, conventional) =
        if config.zoned { ZONED } else { (DEVICE_BYTES, 0, 0) };
    let params = [
        ("capacity_bytes", capacity),
        ("zone_bytes", zone_bytes),
        ("conventional_zones", conventional),
        ("latency_ns", setup.latency_ns),
        ("cache_bytes", cache),
        ("fua", u64::from(config.fua)),
        ("discard", 0),
        ("max_request_sectors", REQUEST_SECTORS),
        ("physical_block_bytes", config.device_block()),
    ];
    let device = preset::find("fixed").map_or("", |d| d.name);
    let spec = MachineSpec {
        seed: 1,
        cpu: PROFILES[0].model(),
        device: device.to_owned(),
        device_params: params.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
        more: Vec::new(),
        elevator: "noop".to_owned(),
        start: wp_base::Sector(0),
        sectors: None,
        fs,
        fs_options,
        disk: "z0".to_owned(),
        device_number: (253, 1),
        kernel: (6, 12),
    };
    Machine::new(spec, None).map_err(|e| match e {
        MachineError::Fs { error: FsError::Unsupported(why), .. } => RunError::NotModelled(why),
        e => RunError::Machine(e),
    })
}

struct Interpreter {
    vfs: Vfs,
    queue: Rc<BlockQueue>,
    case: String,
    player: Player,
    timed: Vec<Timed>,
    /// Events so far, and what of them the device was sent.
    records: Vec<Record>,
    sent: Sent,
}

impl Interpreter {
    fn new(vfs: Vfs, queue: Rc<BlockQueue>) -> Interpreter {
        let player = Player::new(vfs.clone());
        let (case, timed, records) = (String::new(), Vec::new(), Vec::new());
        Interpreter { vfs, queue, case, player, timed, records, sent: Sent::default() }
    }

    /// What the device was sent up to now.
    fn count(&mut self) -> Sent {
        let new = self.vfs.rt().probe().take();
        new.iter().for_each(|r| self.sent.add(&r.event));
        self.records.extend(new);
        self.sent
    }

    async fn run(&mut self, steps: &[Step]) -> FsResult<()> {
        let rt = self.vfs.rt().clone();
        let mut stretch: Option<(Label, Time, Sent)> = None;
        for step in steps {
            match step {
                Step::Case(name) => self.case.clone_from(name),
                Step::Task(_) | Step::Think(_) => {}
                Step::Align => {
                    let next = (rt.now().0 / TICK_NS + 1) * TICK_NS + TICK_NS / 10;
                    rt.sleep_until(Time(next) + SLACK).await;
                }
                Step::Nap(us) => rt.sleep(Span(us * 1000) + SLACK).await,
                Step::Begin(label) => {
                    stretch = Some((label.clone(), rt.now(), self.count()));
                }
                Step::End => {
                    if let Some((label, start, sent)) = stretch.take() {
                        self.note(&label, (start, sent), &Ok(0));
                    }
                }
                Step::Exit => self.player.exit().await?,
                Step::Fail(_) | Step::Slow(_) | Step::Tear(_) | Step::Heal => {
                    return Err(FsError::Unsupported("a device that fails, here".to_owned()));
                }
                Step::PowerFailure => {
                    return Err(FsError::Unsupported("a power failure, here".to_owned()));
                }
                Step::Join | Step::InOrder => {
                    return Err(FsError::Unsupported(NO_THREADS.to_owned()));
                }
                Step::Call(by, _) if by.thread > 0 => {
                    return Err(FsError::Unsupported(NO_THREADS.to_owned()));
                }
                Step::Expect(_) => {
                    return Err(FsError::Unsupported("`expect`, which the guest lacks".to_owned()));
                }
                Step::Call(By { label, .. }, call) => {
                    let start = (rt.now(), self.count());
                    let out = match call {
                        Call::Seek(..) => self.player.seek(call).await,
                        Call::Mkcp(_) => self.player.mkcp(call).await,
                        call => self.player.call(call).await.map(|()| 0),
                    };
                    // The guest has one CPU: on the way back to the program kblockd has its turn
                    // first (WQ_HIGHPRI).
                    if self.queue.requeued() > 0 {
                        rt.yield_now().await;
                    }
                    if let Err(e @ (FsError::Unsupported(_) | FsError::Corrupt(_))) = out {
                        return Err(e);
                    }
                    match label {
                        Some(label) => self.note(label, start, &out),
                        None => drop(out?),
                    }
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, label: &Label, (start, sent): (Time, Sent), out: &FsResult<u64>) {
        let now = self.count();
        self.timed.push(Timed {
            case: self.case.clone(),
            op: label.op.clone(),
            index: label.index,
            start_ns: start.0,
            ns: self.vfs.rt().now().since(start).0,
            ok: out.is_ok(),
            answer: Some(match out {
                Ok(found) => found.cast_signed(),
                Err(e) => -i64::from(e.number()),
            }),
            sent: Some(Sent {
                requests: now.requests - sent.requests,
                flushes: now.flushes - sent.flushes,
            }),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_makes_the_next_wait_two_looks_at_the_clock_shorter() {
        let call = |ns| Timed {
            case: String::new(),
            op: "fsync".to_owned(),
            index: 0,
            start_ns: 0,
            ns,
            ok: true,
            sent: None,
            answer: None,
        };
        let mut calls = vec![call(100_000)];
        calls.extend((0..10).map(|_| call(256)));
        calls.push(call(94_976));
        assert_eq!(Timed::all_waits(&calls, 100_000).last(), Some(&1));
        // Behind one call only it is none.
        let few = [call(100_000), call(256), call(94_976)];
        assert_eq!(Timed::all_waits(&few, 100_000), [1, 0, 0]);
    }
}
