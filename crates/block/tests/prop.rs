//! Random bios by random tasks on random queues: nothing is lost, each ends once, the data are
//! those of a naive model, flushes mean what they say.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::*;
use wp_base::event::Flags;
use wp_base::live::{Kind, count};
use wp_base::{Rng, Sector, Span};
use wp_block::{
    Bio, BlockQueue, DriverKind, ElevatorKind, Limits, PlugScan, QueueConfig, QueueCounters,
    WaitUnplug,
};
use wp_medium::Slice;
use wp_rt::{Outcome, Rt};

/// Blocks of the device that are used.
const BLOCKS: u64 = 96;

/// What should be on the device, and which blocks somebody is using.
struct Model {
    /// Tag of each block's pattern; 0 = never written or discarded.
    tags: RefCell<Vec<u64>>,
    busy: RefCell<Vec<bool>>,
    /// How often each bio has ended.
    ends: RefCell<Vec<u32>>,
    durability: Rc<Durability>,
}

impl Model {
    /// A free run of up to `most` blocks, now busy: (first, length).
    fn claim(&self, rng: &mut Rng, most: u64) -> Option<(u64, u64)> {
        let mut busy = self.busy.borrow_mut();
        let first = rng.below(BLOCKS);
        let free = (first..BLOCKS.min(first + 1 + rng.below(most)))
            .take_while(|b| !busy[*b as usize])
            .count() as u64;
        (0..free).for_each(|i| busy[(first + i) as usize] = true);
        (free > 0).then_some((first, free))
    }
    fn release(&self, first: u64, blocks: u64) {
        (first..first + blocks).for_each(|b| self.busy.borrow_mut()[b as usize] = false);
    }
    fn expected(&self, first: u64, blocks: u64) -> Vec<u8> {
        let tags = self.tags.borrow();
        (first..first + blocks)
            .flat_map(|b| match tags[b as usize] {
                0 => vec![0; 4096],
                tag => Slice::pattern(tag, 0, 4096).to_vec(),
            })
            .collect()
    }
    fn bio_id(&self) -> usize {
        self.ends.borrow_mut().push(0);
        self.ends.borrow().len() - 1
    }
}

fn bytes(data: &[Slice]) -> Vec<u8> {
    Slice::concat(data)
}

/// A task: submits, waits, plugs, checks what it reads.
async fn work(rt: Rt, q: Rc<BlockQueue>, m: Rc<Model>, mut rng: Rng, ops: u32) {
    let mut plug = None;
    for op in 0..ops {
        let sync = if rng.below(2) == 0 { Flags::SYNC } else { Flags::NONE };
        match rng.below(14) {
            0..=4 => write(&q, &m, &mut rng, sync).await,
            12 | 13 => burst(&q, &m, &mut rng, sync),
            5 | 6 => read(&q, &m, &mut rng).await,
            7 => {
                if let Some((first, blocks)) = m.claim(&mut rng, 6) {
                    let (m2, id) = (m.clone(), m.bio_id());
                    q.submit(Bio::discard(Sector(first * 8), blocks as u32 * 8, sync).on_end(
                        move |end| {
                            assert_eq!(end.status, Ok(()));
                            (first..first + blocks)
                                .for_each(|b| m2.tags.borrow_mut()[b as usize] = 0);
                            m2.ends.borrow_mut()[id] += 1;
                            m2.release(first, blocks);
                        },
                    ));
                }
            }
            8 => plug = if plug.is_some() { None } else { Some(q.plug()) },
            9 => rt.sleep(Span(rng.below(400_000))).await,
            10 => {
                let needs = m.durability.completed.get();
                q.flush().await.expect("flushed");
                check_durable(&q, &m, needs);
            }
            _ if op % 3 == 0 => commit(&q, &m, &mut rng).await,
            _ => rt.yield_now().await,
        }
    }
    drop(plug);
    rt.sleep(Span::secs(20)).await;
}

fn check_durable(q: &BlockQueue, m: &Model, needs: u64) {
    if q.limits().volatile_cache {
        assert!(m.durability.durable.get() >= needs, "a flush ended before it was durable");
    }
}

async fn write(q: &Rc<BlockQueue>, m: &Rc<Model>, rng: &mut Rng, flags: Flags) {
    let Some((first, blocks)) = m.claim(rng, 5) else { return };
    let tag = 1 + rng.below(1 << 40);
    let segs: Vec<Slice> = (0..blocks)
        .flat_map(|i| match rng.below(3) {
            // In one slice, or in two that continue one another.
            0 => vec![Slice::pattern(tag + i, 0, 512), Slice::pattern(tag + i, 512, 3584)],
            _ => vec![Slice::pattern(tag + i, 0, 4096)],
        })
        .collect();
    let bio = Bio::write(Sector(first * 8), segs, flags);
    let landed = move |m: &Model| {
        (0..blocks).for_each(|i| m.tags.borrow_mut()[(first + i) as usize] = tag + i);
        m.release(first, blocks);
    };
    match rng.below(3) {
        0 => {
            q.submit_wait(bio).await.expect("written");
            landed(m);
        }
        how => {
            let (m2, id) = (m.clone(), m.bio_id());
            let bio = bio.on_end(move |end| {
                assert_eq!(end.status, Ok(()));
                landed(&m2);
                m2.ends.borrow_mut()[id] += 1;
            });
            if how == 1 { q.submit(bio) } else { q.submit_throttled(bio).await }
        }
    }
}

/// Neighbouring blocks, each a bio of its own, in some order: what merging is for.
fn burst(q: &Rc<BlockQueue>, m: &Rc<Model>, rng: &mut Rng, flags: Flags) {
    let Some((first, blocks)) = m.claim(rng, 12) else { return };
    let mut order: Vec<u64> = (first..first + blocks).collect();
    (1..order.len()).for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
    for b in order {
        let tag = 1 + rng.below(1 << 40);
        let (m2, id) = (m.clone(), m.bio_id());
        q.submit(block(b * 8, tag, flags).on_end(move |end| {
            assert_eq!(end.status, Ok(()));
            m2.tags.borrow_mut()[b as usize] = tag;
            m2.ends.borrow_mut()[id] += 1;
            m2.release(b, 1);
        }));
    }
}

async fn read(q: &Rc<BlockQueue>, m: &Rc<Model>, rng: &mut Rng) {
    let Some((first, blocks)) = m.claim(rng, 12) else { return };
    // Not only whole blocks.
    let (skip, cut) = (rng.below(8), rng.below(8));
    let sectors = blocks * 8 - skip - if blocks * 8 > skip + cut { cut } else { 0 };
    let bio = Bio::read(Sector(first * 8 + skip), sectors as u32, Flags::NONE);
    let expected =
        m.expected(first, blocks)[skip as usize * 512..][..sectors as usize * 512].to_vec();
    if rng.below(2) == 0 {
        let data = q.submit_wait(bio).await.expect("read");
        assert!(bytes(&data) == expected, "block {first}: not what was written");
        m.release(first, blocks);
    } else {
        let (m2, id) = (m.clone(), m.bio_id());
        q.submit(bio.on_end(move |end| {
            assert!(bytes(&end.data) == expected, "block {first}: not what was written");
            m2.ends.borrow_mut()[id] += 1;
            m2.release(first, blocks);
        }));
    }
}

/// A block with PREFLUSH, FUA or both.
async fn commit(q: &Rc<BlockQueue>, m: &Rc<Model>, rng: &mut Rng) {
    let Some((first, blocks)) = m.claim(rng, 1) else { return };
    let flags = [Flags::PREFLUSH, Flags::FUA, commit_flags()][rng.below(3) as usize];
    let tag = 1 + rng.below(1 << 40);
    let d = m.durability.clone();
    let needs = d.completed.get();
    let cache = q.limits().volatile_cache;
    if flags.has(Flags::PREFLUSH) && cache {
        d.needs.borrow_mut().insert(first * 8, needs);
    }
    q.submit_wait(block(first * 8, tag, flags)).await.expect("written");
    d.needs.borrow_mut().remove(&(first * 8));
    if flags.has(Flags::FUA) && cache && !q.limits().fua {
        let own = d.number.borrow()[&(first * 8)];
        assert!(d.durable.get() >= own, "a FUA write ended before it was durable");
    }
    m.tags.borrow_mut()[first as usize] = tag;
    m.release(first, blocks);
}

fn random_config(rng: &mut Rng) -> (QueueConfig, Limits) {
    let mut c = match rng.below(7) {
        0 => QueueConfig::linux(4, 6).with_elevator(ElevatorKind::Noop),
        1 => QueueConfig::linux(4, 6).with_elevator(ElevatorKind::Deadline),
        2 => QueueConfig::linux(5, 10),
        3 => QueueConfig::linux(6, 1),
        4 => QueueConfig::linux(6, 1).with_elevator(ElevatorKind::None),
        _ => QueueConfig::linux(4, 6),
    };
    c.nr_requests = 4 + rng.below(40) as u32;
    c.driver =
        if rng.below(3) == 0 { DriverKind::OneSegmentPerDma } else { DriverKind::ScatterGather };
    c.plug.requests_max = 1 + rng.below(8) as u32;
    c.plug.sort = rng.below(2) == 0;
    c.plug.scan = if rng.below(2) == 0 { PlugScan::All } else { PlugScan::Newest };
    c.plug.on_wait = if rng.below(2) == 0 { WaitUnplug::Kblockd } else { WaitUnplug::Task };
    c.habits.issue_ahead = rng.below(2) == 0;
    let beside = rng.below(2) == 0;
    c.rotational = rng.below(2) == 0;
    let l = Limits {
        queue_depth: [1, 2, 4, 31][rng.below(4) as usize],
        max_sectors: [8, 16, 64, 256][rng.below(4) as usize],
        max_segments: [2, 3, 168][rng.below(3) as usize],
        volatile_cache: rng.below(4) != 0,
        fua: rng.below(2) == 0,
        flush_beside_others: beside,
        ..limits()
    };
    (c, l)
}

/// One world; what it did, and the hash of its trace.
fn run(seed: u64) -> (QueueCounters, u64) {
    let mut rng = Rng::stream(seed, "prop");
    let (config, limits) = random_config(&mut rng);
    let mut device = TestDevice::new(limits);
    device.latency =
        Latency::Random(rng.clone(), [0, 50_000, 2_000_000, 30_000_000][rng.below(4) as usize]);
    device.refuse = rng.below(4) as u32;
    let m = Rc::new(Model {
        tags: RefCell::new(vec![0; BLOCKS as usize]),
        busy: RefCell::new(vec![false; BLOCKS as usize]),
        ends: RefCell::default(),
        durability: device.durability.clone(),
    });
    let w = world(config, device);
    w.rt.set_chaos(seed.is_multiple_of(3).then_some(seed));
    for i in 0..1 + rng.below(6) {
        let task = work(
            w.rt.clone(),
            w.queue.clone(),
            m.clone(),
            Rng::stream(seed, &format!("task {i}")),
            80,
        );
        w.rt.spawn(format!("t{i}"), task);
    }
    let outcome = w.rt.run();
    assert_eq!(outcome, Outcome::Idle, "seed {seed}: {outcome}");
    assert_eq!(
        (w.queue.pending(), w.queue.in_flight(), w.queue.plugged()),
        (0, 0, 0),
        "seed {seed}"
    );
    assert!(m.ends.borrow().iter().all(|n| *n == 1), "seed {seed}: each bio ends once");
    let (all, end) = (w.queue.clone(), m.clone());
    w.rt.block_on("check", async move {
        let data = all.submit_wait(Bio::read(Sector(0), BLOCKS as u32 * 8, Flags::NONE)).await;
        assert!(bytes(&data.expect("read")) == end.expected(0, BLOCKS), "the device as a whole");
    })
    .expect("it ends");
    let text = w.shape("");
    w.rt.cut();
    let hash = text
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01B3));
    (w.queue.counters(), hash)
}

#[test]
fn nothing_is_lost_and_the_data_are_those_of_a_naive_model() {
    let mut all = QueueCounters::default();
    for seed in 0..300 {
        let (c, _) = run(seed);
        all.back_merges += c.back_merges;
        all.front_merges += c.front_merges;
        all.request_merges += c.request_merges;
        all.busy += c.busy;
        all.flushes += c.flushes;
        all.flush_steps += c.flush_steps;
    }
    // The rare ways were taken, too.
    assert!(
        all.back_merges > 2_000 && all.front_merges > 2_000 && all.request_merges > 1_000,
        "{all:?}"
    );
    assert!(all.busy > 100 && all.flush_steps > all.flushes + 100, "{all:?}");
    assert_eq!(
        (count(Kind::Bio), count(Kind::Task), count(Kind::World)),
        (0, 0, 0),
        "no world leaves anything"
    );
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 5, 9, 33] {
        assert_eq!(run(seed), run(seed));
    }
}
