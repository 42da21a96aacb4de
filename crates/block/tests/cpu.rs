//! What the block layer's own work costs, and whom.

use crate::common::{TestDevice, block, limits};
use wp_base::event::{Class, Flags};
use wp_base::{Span, Time};
use wp_block::{BlockQueue, Limits, QueueConfig};
use wp_rt::{CostProfile, CpuModel, CpuOp, Rt, TimeMode};

const DISPATCH: u64 = 1_000;
const COMPLETION: u64 = 2_000;

fn machine(costs: &[(CpuOp, u64)], cores: u32) -> Rt {
    let mut profile = CostProfile::zero();
    costs.iter().for_each(|(op, ns)| profile.set(*op, *ns));
    Rt::with(TimeMode::Virtual, 1, CpuModel { cores, profile })
}

/// When a block is written and waited for; the device takes 100 us.
fn written(costs: &[(CpuOp, u64)], cores: u32, config: QueueConfig) -> (Time, Span) {
    let rt = machine(costs, cores);
    let queue = BlockQueue::new(&rt, config, Box::new(TestDevice::new(limits())));
    rt.spawn("a", async move {
        queue.submit_wait(block(80, 1, Flags::SYNC)).await.expect("written");
    });
    rt.run();
    (rt.now(), rt.stats().core_busy.into_iter().fold(Span::ZERO, |a, b| a + b))
}

#[test]
fn a_completion_takes_effect_when_its_interrupt_has_been_served() {
    let costs = [(CpuOp::RequestDispatch, DISPATCH), (CpuOp::Completion, COMPLETION)];
    for cores in [1, 4] {
        let (end, busy) = written(&costs, cores, QueueConfig::linux(4, 6));
        // The command is in the device when the task has begun to issue it.
        assert_eq!(end, Time(100_000 + COMPLETION), "{cores} cores");
        assert_eq!(busy, Span(DISPATCH + COMPLETION));
    }
}

#[test]
fn a_completion_delays_whoever_computes_on_core_0() {
    let end = |cost: u64, cores: u32| {
        let rt = machine(&[(CpuOp::Completion, cost), (CpuOp::PageWrite, 1_000)], cores);
        let device = TestDevice::new(limits());
        let queue = BlockQueue::new(&rt, QueueConfig::linux(4, 6), Box::new(device));
        queue.submit(block(80, 1, Flags::NONE));
        queue.submit(block(8_000, 1, Flags::NONE));
        let own = rt.clone();
        let task = rt.spawn("computes", async move {
            own.cpu(CpuOp::PageWrite, 150).await;
            own.now()
        });
        rt.run();
        task.try_take().expect("it has ended")
    };
    assert_eq!(end(0, 1), Time(150_000));
    assert_eq!(end(COMPLETION, 1), Time(150_000 + 2 * COMPLETION));
    // It has the first core, which takes the interrupts, however many there are.
    assert_eq!(end(COMPLETION, 2), Time(150_000 + 2 * COMPLETION));
}

#[test]
fn a_machine_without_costs_has_no_cpu_events() {
    let rt = machine(&[], 2);
    rt.probe().set_mask(Class(Class::CPU.0 | Class::BLOCK.0));
    let device = TestDevice::new(Limits { queue_depth: 2, ..limits() });
    let queue = BlockQueue::new(&rt, QueueConfig::linux(6, 1), Box::new(device));
    rt.spawn("a", async move {
        for i in 0..20 {
            queue.submit(block(80 * i, 1, Flags::NONE));
        }
        queue.flush().await.expect("flushed");
    });
    rt.run();
    let records = rt.probe().take();
    assert!(records.len() > 40);
    assert!(records.iter().all(|r| matches!(r.event, wp_base::event::Event::Block { .. })));
    assert!(rt.stats().core_busy.iter().all(|busy| *busy == Span::ZERO));
}
