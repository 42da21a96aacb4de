//! Epochs of ordered writes: what reaches the device in which order, where the barriers are, and
//! who is told of dispatches. The checks know what was submitted, and the device's own log; nothing
//! of how the queue keeps order.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::common::*;
use wp_base::event::{Flags, Op};
use wp_base::{Rng, Sector, Span};
use wp_block::{
    Bio, BlockQueue, DriverKind, ElevatorKind, Limits, PlugScan, QueueConfig, QueueCounters,
    Status, WaitUnplug,
};
use wp_medium::{Medium, Slice};
use wp_rt::{Outcome, Rt};

const ORDERED: Flags = Flags(Flags::ORDERED.0 | Flags::SYNC.0);
const BARRIER: Flags = Flags(Flags::ORDERED.0 | Flags::BARRIER.0 | Flags::SYNC.0);

/// An ordered write, as its submitter sees it.
#[derive(Clone, Debug)]
struct Sent {
    /// (task, number of its epoch).
    epoch: (u32, u32),
    at: u64,
    sectors: u64,
    /// When it began to be submitted.
    step: u64,
    dispatched: u32,
    ended: u32,
}

/// What the tasks did.
#[derive(Default)]
struct Story {
    sent: RefCell<Vec<Sent>>,
    /// Epoch -> when it had been closed.
    closed: RefCell<BTreeMap<(u32, u32), u64>>,
    clock: Cell<u64>,
    /// Places that nobody writes twice.
    places: RefCell<Vec<u64>>,
    orderless: Cell<u32>,
}

impl Story {
    fn new(rng: &mut Rng) -> Story {
        let mut places: Vec<u64> = (0..2_000).collect();
        // In runs of four, so that there is something to merge.
        for i in (1..500).rev() {
            let j = rng.below(i as u64 + 1) as usize;
            (0..4).for_each(|k| places.swap(i * 4 + k, j * 4 + k));
        }
        places.reverse();
        Story { places: RefCell::new(places), ..Story::default() }
    }
    fn tick(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }
    fn place(&self) -> u64 {
        self.places.borrow_mut().pop().expect("places enough") * 8
    }
}

/// Segments and lengths of what the device accepted, by first sector: (barriers before it, has it
/// a barrier, its number, its end).
fn stream(log: &Log) -> BTreeMap<u64, (u64, bool, usize, u64)> {
    let (mut barriers, mut all) = (0, BTreeMap::new());
    for (number, (op, flags, at, sectors)) in log.borrow().iter().enumerate() {
        if *op != Op::Write {
            continue;
        }
        let barrier = flags.has(Flags::BARRIER);
        assert!(!barrier || flags.has(Flags::ORDERED), "a barrier that is not ordered");
        all.insert(*at, (barriers, barrier, number, at + u64::from(*sectors)));
        barriers += u64::from(barrier);
    }
    all
}

/// Pairs of writes that the device may keep in an order that was not asked for.
fn inversions(story: &Story, log: &Log) -> usize {
    let stream = stream(log);
    let of = |s: &Sent| {
        let (_, cmd) = stream.range(..=s.at).next_back().expect("it was accepted");
        assert!(s.at + s.sectors <= cmd.3, "{s:?} is not in one command");
        *cmd
    };
    let (sent, closed) = (story.sent.borrow(), story.closed.borrow());
    let mut wrong = 0;
    for a in sent.iter() {
        let Some(closed) = closed.get(&a.epoch) else { continue };
        let after = sent.iter().filter(|b| b.step > *closed && b.epoch != a.epoch);
        wrong += after.filter(|b| of(a).0 >= of(b).0).count();
    }
    wrong
}

/// The barriers are those of the closed epochs, one each, on what was accepted last of it.
fn check_barriers(story: &Story, log: &Log, why: &str) {
    let stream = stream(log);
    let mut last: BTreeMap<(u32, u32), (usize, bool)> = BTreeMap::new();
    let mut by_command: BTreeMap<usize, (u32, u32)> = BTreeMap::new();
    for s in story.sent.borrow().iter() {
        let (_, cmd) = stream.range(..=s.at).next_back().expect("it was accepted");
        let epoch = *by_command.entry(cmd.2).or_insert(s.epoch);
        assert_eq!(epoch, s.epoch, "{why}: two epochs in a command");
        let l = last.entry(s.epoch).or_default();
        *l = (*l).max((cmd.2, cmd.1));
    }
    let marked = stream.values().filter(|c| c.1).count();
    let closed = story.closed.borrow();
    assert_eq!(marked, closed.len(), "{why}: a barrier for each closed epoch");
    for epoch in closed.keys() {
        assert!(last[epoch].1, "{why}: {epoch:?} has no barrier on what came last");
    }
}

/// One bio of an epoch, with everything counted.
fn ordered(story: &Rc<Story>, epoch: (u32, u32), flags: Flags, blocks: u64) -> Bio {
    let at = story.place();
    // The places that follow, as long as they do.
    let mut n = 1;
    while n < blocks && story.places.borrow().last() == Some(&(at / 8 + n)) {
        story.place();
        n += 1;
    }
    let id = story.sent.borrow().len();
    story.sent.borrow_mut().push(Sent {
        epoch,
        at,
        sectors: n * 8,
        step: story.tick(),
        dispatched: 0,
        ended: 0,
    });
    let segs = (0..n).map(|i| Slice::pattern(at + i, 0, 4096)).collect();
    let (s, e) = (story.clone(), story.clone());
    Bio::write(Sector(at), segs, flags)
        .on_dispatch(move || {
            let sent = &mut s.sent.borrow_mut()[id];
            assert_eq!((sent.dispatched, sent.ended), (0, 0), "told once, before the end");
            sent.dispatched = 1;
        })
        .on_end(move |end| {
            assert_eq!(end.status, Ok(()));
            let sent = &mut e.sent.borrow_mut()[id];
            assert_eq!((sent.dispatched, sent.ended), (1, 0), "one end, after the dispatch");
            sent.ended = 1;
        })
}

async fn work(rt: Rt, q: Rc<BlockQueue>, story: Rc<Story>, mut rng: Rng, task: u32) {
    let mut epoch = 0;
    let mut plug = None;
    let flags = if rng.below(4) == 0 { Flags::NONE } else { Flags::SYNC };
    for _ in 0..30 {
        match rng.below(12) {
            0..=4 => {
                let bio = ordered(&story, (task, epoch), flags | Flags::ORDERED, 1 + rng.below(6));
                if rng.below(3) == 0 { q.submit_throttled(bio).await } else { q.submit(bio) }
            }
            5 | 6 => {
                let cache = Flags([0, 0, Flags::PREFLUSH.0, Flags::FUA.0][rng.below(4) as usize]);
                let flags = flags | cache | Flags::ORDERED | Flags::BARRIER;
                let bio = ordered(&story, (task, epoch), flags, 1 + rng.below(3));
                if rng.below(3) == 0 {
                    q.submit_throttled(bio).await
                } else {
                    q.submit(bio)
                }
                story.closed.borrow_mut().insert((task, epoch), story.tick());
                epoch += 1;
            }
            7 => {
                if q.close_epoch() {
                    story.closed.borrow_mut().insert((task, epoch), story.tick());
                }
                epoch += 1;
            }
            8 => plug = if plug.is_some() { None } else { Some(q.plug()) },
            9 => rt.sleep(Span(rng.below(500_000))).await,
            10 => {
                // Orderless: anywhere, but not in an ordered command.
                story.orderless.set(story.orderless.get() + 1);
                q.submit(block(story.place(), 7, Flags::NONE));
            }
            _ => rt.yield_now().await,
        }
    }
    drop(plug);
    rt.sleep(Span::secs(20)).await;
}

fn random(rng: &mut Rng, elevator: ElevatorKind) -> (QueueConfig, Limits) {
    let base = if rng.below(2) == 0 { QueueConfig::linux(6, 1) } else { QueueConfig::linux(5, 10) };
    let mut c = match elevator {
        ElevatorKind::None | ElevatorKind::MqDeadline => base.with_elevator(elevator),
        _ => QueueConfig::linux(4, 6).with_elevator(elevator),
    };
    c.nr_requests = 2 + rng.below(12) as u32;
    c.driver =
        if rng.below(3) == 0 { DriverKind::OneSegmentPerDma } else { DriverKind::ScatterGather };
    c.plug.requests_max = 1 + rng.below(8) as u32;
    c.plug.sort = rng.below(2) == 0;
    c.plug.scan = if rng.below(2) == 0 { PlugScan::All } else { PlugScan::Newest };
    c.plug.on_wait = if rng.below(2) == 0 { WaitUnplug::Kblockd } else { WaitUnplug::Task };
    c.habits.issue_ahead = rng.below(2) == 0;
    c.rotational = rng.below(2) == 0;
    let l = Limits {
        queue_depth: [1, 2, 4, 31][rng.below(4) as usize],
        volatile_cache: rng.below(4) != 0,
        fua: rng.below(2) == 0,
        flush_beside_others: rng.below(2) == 0,
        ..limits()
    };
    (c, l)
}

/// One world: what it did, and how often the order came out wrong.
fn run(seed: u64, elevator: ElevatorKind, gate: bool) -> (QueueCounters, usize) {
    let mut rng = Rng::stream(seed, "epochs");
    let (mut config, mut limits) = random(&mut rng, elevator);
    config.epoch_gate = gate;
    // Sometimes nothing fits: bios are split, but then they are not in one command.
    let splits = rng.below(4) == 0;
    limits.max_sectors = if splits { 16 } else { 256 };
    let one_command = !splits && config.driver == DriverKind::ScatterGather;
    let mut device = TestDevice::new(limits);
    device.latency =
        Latency::Random(rng.clone(), [0, 50_000, 2_000_000, 20_000_000][rng.below(4) as usize]);
    device.refuse = rng.below(4) as u32;
    let story = Rc::new(Story::new(&mut rng));
    let w = world(config, device);
    w.rt.set_chaos(seed.is_multiple_of(3).then_some(seed));
    for i in 0..2 + rng.below(4) as u32 {
        let rng = Rng::stream(seed, &format!("task {i}"));
        let task = work(w.rt.clone(), w.queue.clone(), story.clone(), rng, i);
        w.rt.spawn(format!("t{i}"), task);
    }
    let outcome = w.rt.run();
    let why = format!("seed {seed}, {}", elevator.name());
    assert_eq!(outcome, Outcome::Idle, "{why}: {outcome}");
    assert_eq!((w.queue.pending(), w.queue.in_flight(), w.queue.plugged()), (0, 0, 0), "{why}");
    for s in story.sent.borrow().iter() {
        assert_eq!((s.dispatched, s.ended), (1, 1), "{why}: {s:?}");
    }
    let counters = w.queue.counters();
    assert_eq!(counters.epochs as usize, story.closed.borrow().len(), "{why}");
    if !one_command {
        whole(&story, &w.log);
    }
    if gate {
        check_barriers(&story, &w.log, &why);
    }
    let wrong = inversions(&story, &w.log);
    w.rt.cut();
    (counters, wrong)
}

/// Puts bios that went in several commands into pieces that did not.
fn whole(story: &Story, log: &Log) {
    let ends = stream(log);
    let mut pieces = Vec::new();
    for s in story.sent.borrow().iter() {
        let end = s.at + s.sectors;
        let mut at = s.at;
        while at < end {
            let (_, cmd) = ends.range(..=at).next_back().expect("it was accepted");
            let next = cmd.3.min(end);
            assert!(next > at, "{s:?} was accepted as a whole");
            pieces.push(Sent { at, sectors: next - at, ..s.clone() });
            at = next;
        }
    }
    *story.sent.borrow_mut() = pieces;
}

const ALL: [ElevatorKind; 5] = [
    ElevatorKind::Noop,
    ElevatorKind::Deadline,
    ElevatorKind::Cfq,
    ElevatorKind::None,
    ElevatorKind::MqDeadline,
];

#[test]
fn no_elevator_inverts_epochs_and_each_closed_one_has_its_barrier_last() {
    for elevator in ALL {
        let mut all = QueueCounters::default();
        for seed in 0..120 {
            let (c, wrong) = run(seed, elevator, true);
            assert_eq!(wrong, 0, "seed {seed}, {}", elevator.name());
            all.epochs += c.epochs;
            all.barriers += c.barriers;
            all.gated += c.gated;
            all.back_merges += c.back_merges;
            all.busy += c.busy;
        }
        assert_eq!(all.epochs, all.barriers, "{}: {all:?}", elevator.name());
        // The gate had something to do, and did not keep requests apart that belong together.
        assert!(all.gated > 1_000 && all.back_merges > 200 && all.busy > 50, "{all:?}");
    }
}

#[test]
fn without_the_gate_epochs_are_inverted_as_in_the_published_kernel() {
    for elevator in [ElevatorKind::Deadline, ElevatorKind::Cfq, ElevatorKind::MqDeadline] {
        let mut wrong = 0;
        for seed in 0..120 {
            let (c, n) = run(seed, elevator, false);
            assert_eq!(c.gated, 0);
            assert!(c.barriers >= c.epochs, "the first barrier stays beside the reassigned one");
            wrong += n;
        }
        assert!(wrong > 100, "{}: {wrong} inversions", elevator.name());
    }
}

/// A device's stream, cut: whole segments between barriers, and a part of the next (or, if it knows
/// no barriers, any part of all).
fn cut(rng: &mut Rng, stream: &[(u64, Vec<Slice>, bool)], honours: bool) -> Medium {
    let mut medium = Medium::new();
    let segments = stream.iter().filter(|c| c.2).count() as u64 + 1;
    let (last, mut segment) = (rng.below(segments), 0);
    for (at, data, barrier) in stream {
        let keeps = if honours {
            segment < last || (segment == last && rng.below(2) == 0)
        } else {
            rng.below(8) > 0
        };
        let mut at = Sector(*at);
        for slice in data {
            if keeps {
                medium.write(at, slice);
            }
            at = at.advance(u64::from(slice.len()) / 512);
        }
        segment += u64::from(*barrier);
    }
    medium
}

/// The same tasks again, judged by what is on a medium: the log of what was submitted against cuts
/// of what a device received.
#[test]
fn the_log_of_epochs_accepts_cuts_of_an_ordered_device_and_no_others() {
    for (gate, honours, wrong_expected) in
        [(true, true, false), (true, false, true), (false, true, true)]
    {
        let mut wrong = 0;
        for seed in 0..60 {
            let mut rng = Rng::stream(seed, "epoch log");
            let kind = if gate { ALL[seed as usize % 5] } else { ElevatorKind::Deadline };
            let (mut config, limits) = random(&mut rng, kind);
            config.epoch_gate = gate;
            let mut device = TestDevice::new(limits);
            device.latency = Latency::Random(rng.clone(), 2_000_000);
            let received = device.received.clone();
            let story = Rc::new(Story::new(&mut rng));
            let w = world(config, device);
            let log = w.queue.record_epochs();
            for i in 0..4 {
                let rng = Rng::stream(seed, &format!("task {i}"));
                w.rt.spawn("t", work(w.rt.clone(), w.queue.clone(), story.clone(), rng, i));
            }
            assert_eq!(w.rt.run(), Outcome::Idle);
            let log = log.borrow();
            assert!(log.writes() >= story.sent.borrow().len());
            let index = log.index(&Medium::new());
            for _ in 0..40 {
                let medium = cut(&mut rng, &received.borrow(), honours);
                if let Err(inversion) = index.check(&medium) {
                    assert!(wrong_expected, "seed {seed}, {}: {inversion}", kind.name());
                    wrong += 1;
                }
            }
            w.rt.cut();
        }
        assert_eq!(wrong > 300, wrong_expected, "gate {gate}, honours {honours}: {wrong}");
    }
}

/// A world with the task's bios sent by `f`; the log of the device.
fn log_of(
    config: QueueConfig,
    limits: Limits,
    f: impl AsyncFnOnce(Rt, Rc<BlockQueue>) + 'static,
) -> Vec<(Flags, u64, u32)> {
    let w = world(config, TestDevice::new(limits));
    let (rt, q) = (w.rt.clone(), w.queue.clone());
    w.rt.spawn("t", async move {
        f(rt.clone(), q).await;
        rt.sleep(Span::secs(1)).await;
    });
    assert_eq!(w.rt.run(), Outcome::Idle);
    assert_eq!(w.queue.pending(), 0);
    let log = w.log.borrow().iter().map(|(_, f, at, n)| (*f, *at, *n)).collect();
    w.rt.cut();
    log
}

fn deadline() -> QueueConfig {
    QueueConfig::linux(4, 6).with_elevator(ElevatorKind::Deadline)
}

#[test]
fn the_barrier_goes_to_whatever_of_the_epoch_is_dispatched_last() {
    // One command at a time, so that the elevator has something to sort.
    let l = Limits { queue_depth: 1, ..limits() };
    let log = log_of(deadline(), l, async |_, q| {
        let plug = q.plug();
        q.submit(block(800, 1, ORDERED));
        q.submit(block(100, 2, BARRIER));
        q.submit(block(0, 3, BARRIER));
        q.submit(block(400, 4, Flags::SYNC));
        drop(plug);
    });
    // The orderless one is sorted among the first epoch; sector 0 is the second one.
    let expected = [(ORDERED, 100, 8), (Flags::SYNC, 400, 8), (BARRIER, 800, 8), (BARRIER, 0, 8)];
    assert_eq!(log, expected);
    // What the published kernel does: two barriers for the first epoch, and the second before it.
    let log = log_of(QueueConfig { epoch_gate: false, ..deadline() }, l, async |_, q| {
        let plug = q.plug();
        q.submit(block(800, 1, ORDERED));
        q.submit(block(100, 2, BARRIER));
        q.submit(block(0, 3, BARRIER));
        drop(plug);
    });
    assert_eq!(log, [(BARRIER, 0, 8), (BARRIER, 100, 8), (BARRIER, 800, 8)]);
}

#[test]
fn an_epoch_merges_with_itself_only() {
    let log = log_of(deadline(), limits(), async |_, q| {
        let plug = q.plug();
        q.submit(block(16, 1, ORDERED));
        q.submit(block(8, 2, BARRIER));
        // Touches the epoch before at both sides.
        q.submit(block(24, 3, ORDERED));
        q.submit(block(0, 4, BARRIER));
        q.submit(block(32, 5, Flags::SYNC));
        q.submit(block(40, 6, Flags::SYNC));
        drop(plug);
    });
    let expected = [(BARRIER, 8, 16), (Flags::SYNC, 32, 16), (ORDERED, 0, 8), (BARRIER, 24, 8)];
    assert_eq!(log, expected);
}

#[test]
fn an_epoch_can_be_closed_without_a_write() {
    let log = log_of(deadline(), limits(), async |rt, q| {
        assert!(!q.close_epoch(), "there is none");
        let plug = q.plug();
        q.submit(block(0, 1, ORDERED));
        assert!(q.close_epoch());
        assert!(!q.close_epoch(), "it is closed");
        q.submit(block(80, 2, ORDERED));
        drop(plug);
        rt.sleep(Span::secs(1)).await;
        assert!(!q.close_epoch(), "all of it was dispatched: nothing can carry the barrier");
    });
    assert_eq!(log, [(BARRIER, 0, 8), (ORDERED, 80, 8)]);
}

#[test]
fn a_split_write_has_its_barrier_on_the_last_part() {
    let tells = Rc::new(Cell::new(0));
    let t = tells.clone();
    let l = Limits { max_sectors: 8, ..limits() };
    let log = log_of(deadline(), l, async move |_, q| {
        let segs = (0..3).map(|i| Slice::pattern(i, 0, 4096)).collect();
        let bio = Bio::write(Sector(0), segs, BARRIER).on_dispatch(move || t.set(t.get() + 1));
        q.submit_wait(bio).await.expect("written");
    });
    assert_eq!(log, [(ORDERED, 0, 8), (ORDERED, 8, 8), (BARRIER, 16, 8)]);
    assert_eq!(tells.get(), 1, "a split bio is dispatched once, as a whole");
    // The same where the driver makes the pieces.
    let c = QueueConfig { driver: DriverKind::OneSegmentPerDma, ..deadline() };
    let log = log_of(c, limits(), async |_, q| {
        let segs = (0..3).map(|i| Slice::pattern(i, 0, 4096)).collect();
        q.submit_wait(Bio::write(Sector(0), segs, BARRIER)).await.expect("written");
    });
    assert_eq!(log, [(ORDERED, 0, 8), (ORDERED, 8, 8), (BARRIER, 16, 8)]);
}

#[test]
fn a_commit_reaches_the_device_behind_data_of_another_task_without_a_wait_for_transfers() {
    // fsync's caller writes its data in an epoch that stays open; the commit thread waits until
    // they are dispatched, then sends its log and its record, and nobody waits for a transfer.
    let mut device = TestDevice::new(limits());
    device.latency = Latency::Fixed(Span::millis(5));
    let w = world(deadline(), device);
    let (rt, q) = (w.rt.clone(), w.queue.clone());
    let data = Rc::new(wp_rt::Completion::new(&rt, "dispatch of data"));
    let (told, waits) = (data.clone(), data);
    let (rt1, q1) = (rt.clone(), q.clone());
    rt.spawn("fsync", async move {
        q1.submit(block(9_000, 1, ORDERED).on_dispatch(move || told.done()));
        rt1.sleep(Span::secs(1)).await;
    });
    let rt2 = rt.clone();
    rt.spawn("jbd2", async move {
        waits.wait().await;
        assert_eq!(rt2.now().0, 0, "a dispatch is not a transfer");
        let plug = q.plug();
        q.submit(block(100, 2, ORDERED));
        q.submit(block(108, 3, BARRIER));
        q.submit(block(116, 4, BARRIER));
        drop(plug);
        rt2.sleep(Span::millis(1)).await;
        assert_eq!(q.in_flight(), 3, "all are in the device at one time");
    });
    assert_eq!(rt.run(), Outcome::Idle);
    let log: Vec<(Flags, u64, u32)> =
        w.log.borrow().iter().map(|(_, f, at, n)| (*f, *at, *n)).collect();
    assert_eq!(log, [(ORDERED, 9_000, 8), (BARRIER, 100, 16), (BARRIER, 116, 8)]);
    // The trace prints what the real kernel's does: nothing but `WS`.
    let lines = w.shape("D");
    assert_eq!(lines, "D WS 9000 8 fsync\nD WS 100 16 jbd2\nD WS 116 8 jbd2\n");
    w.rt.cut();
}

#[test]
fn whatever_never_reaches_the_device_is_told_of_just_before_its_end() {
    let l = Limits { volatile_cache: true, ..limits() };
    let w = world(deadline(), TestDevice::new(l));
    let (rt, q, story) = (w.rt.clone(), w.queue.clone(), Rc::new(RefCell::new(Vec::new())));
    let s = story.clone();
    w.rt.spawn("t", async move {
        let part = q.partition(Sector(0), 64);
        let tell = |bio: Bio, name: &'static str| {
            let (a, b) = (s.clone(), s.clone());
            bio.on_dispatch(move || a.borrow_mut().push((name, None)))
                .on_end(move |end| b.borrow_mut().push((name, Some(end.status))))
        };
        part.submit(tell(block(64, 1, BARRIER), "beyond the end"));
        assert!(!part.close_epoch(), "a refused bio is in no epoch");
        part.submit(tell(Bio::flush(), "flush"));
        rt.sleep(Span::secs(1)).await;
    });
    assert_eq!(w.rt.run(), Outcome::Idle);
    let expected = [
        ("beyond the end", None),
        ("beyond the end", Some(Err(Status::Io))),
        ("flush", None),
        ("flush", Some(Ok(()))),
    ];
    assert_eq!(*story.borrow(), expected);
    w.rt.cut();
}

#[test]
fn a_power_cut_tells_nobody_and_forgets_epochs() {
    let l = Limits { queue_depth: 1, ..limits() };
    let w = world(deadline(), TestDevice::new(l));
    let (rt, q) = (w.rt.clone(), w.queue.clone());
    let told = Rc::new(Cell::new(0));
    let t = told.clone();
    rt.spawn("t", async move {
        for i in 0..4 {
            let t = t.clone();
            q.submit(block(i * 80, i, BARRIER).on_dispatch(move || t.set(t.get() + 1)));
        }
        std::future::pending::<()>().await;
    });
    rt.run_until(wp_base::Time(150_000));
    rt.cut();
    assert_eq!(told.get(), 2, "the first, and the second behind it");
    assert_eq!((w.queue.pending(), w.queue.counters().epochs), (0, 4));
}
