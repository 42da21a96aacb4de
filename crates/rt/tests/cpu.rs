//! Modelled CPUs.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;

use wp_base::event::{Class, Event};
use wp_base::{Span, Time};
use wp_rt::{
    CostProfile, CpuModel, CpuOp, Outcome, Rt, SuspendHook, TIME_SLICE, TimeMode, WaitQueue,
    join_all, race,
};

fn machine(cores: u32, costs: &[(CpuOp, u64)]) -> Rt {
    let mut profile = CostProfile::zero();
    for (op, ns) in costs {
        profile.set(*op, *ns);
    }
    Rt::with(TimeMode::Virtual, 1, CpuModel { cores, profile })
}

/// Runs `tasks` tasks that each compute ten syscalls; returns when each ended.
fn ends(rt: &Rt, tasks: u32) -> Vec<u64> {
    let joins: Vec<_> = (0..tasks)
        .map(|i| {
            let task = rt.clone();
            rt.spawn(format!("t{i}"), async move {
                task.cpu(CpuOp::Syscall, 10).await;
                task.now().0
            })
        })
        .collect();
    assert_eq!(rt.run(), Outcome::Idle);
    joins.iter().map(|j| j.try_take().expect("every task has ended")).collect()
}

#[test]
fn two_tasks_on_one_core_take_turns_and_on_two_cores_run_at_once() {
    let costs = [(CpuOp::Syscall, 100)];
    assert_eq!(ends(&machine(1, &costs), 2), [1_000, 2_000]);
    assert_eq!(ends(&machine(2, &costs), 2), [1_000, 1_000]);
    assert_eq!(ends(&machine(2, &costs), 5), [1_000, 1_000, 2_000, 2_000, 3_000]);
    let rt = machine(2, &costs);
    ends(&rt, 3);
    assert_eq!(rt.stats().core_busy, [Span::nanos(2_000), Span::nanos(1_000)]);
    assert_eq!(rt.stats().context_switches, 3);
}

#[test]
fn a_context_switch_costs_when_another_task_ran_or_the_task_had_waited() {
    let costs = [(CpuOp::Syscall, 100), (CpuOp::ContextSwitch, 7)];
    assert_eq!(ends(&machine(1, &costs), 2), [1_007, 2_014]);

    let rt = machine(1, &costs);
    let task = rt.clone();
    let result = rt.block_on("alone", async move {
        let started = task.now().0;
        task.cpu(CpuOp::Syscall, 1).await;
        task.cpu(CpuOp::Syscall, 1).await;
        let computed = task.now().0;
        task.yield_now().await;
        let yielded = task.now().0;
        task.sleep(Span::nanos(50)).await;
        (started, computed, yielded, task.now().0)
    });
    // Nobody else was ready, so the yield changed nothing; the sleep gave the core up.
    assert_eq!(result, Ok((7, 207, 207, 264)));
    assert_eq!(rt.stats().context_switches, 2);
}

#[test]
fn nothing_happens_at_all_when_nothing_costs_anything() {
    let rt = machine(1, &[]);
    assert_eq!(ends(&rt, 3), [0, 0, 0]);
    assert_eq!(rt.stats().timers_fired, 0);
    let mut profile = CostProfile::zero();
    profile.set(CpuOp::Syscall, 1_000_000_000);
    let rt = Rt::with(TimeMode::Real, 1, CpuModel { cores: 1, profile });
    assert!(ends(&rt, 1)[0] < 1_000_000_000, "real time charges nothing");
}

#[test]
fn an_operation_without_cost_takes_no_time_on_a_machine_with_costs() {
    let rt = machine(1, &[(CpuOp::Syscall, 5)]);
    let task = rt.clone();
    let result = rt.block_on("t", async move {
        task.cpu(CpuOp::PageWrite, 1_000).await;
        task.cpu(CpuOp::Syscall, 0).await;
        task.now()
    });
    assert_eq!(result, Ok(Time(0)));
}

#[test]
fn a_wake_up_during_a_burst_is_seen_when_the_burst_ends() {
    let rt = machine(1, &[(CpuOp::Syscall, 100)]);
    let queue = Rc::new(WaitQueue::new(&rt, "q"));
    struct Wakes(Rc<WaitQueue>);
    impl wp_rt::TimerSink for Wakes {
        fn fire(self: Rc<Self>, _now: Time, _token: u64) {
            self.0.wake_all();
        }
    }
    rt.timer(Time(30), Rc::new(Wakes(queue.clone())), 0);
    let task = rt.clone();
    let result = rt.block_on("t", async move {
        let first = race(queue.wait(), task.cpu(CpuOp::Syscall, 1)).await;
        (first, task.now().0)
    });
    assert_eq!(result, Ok((wp_rt::Either::Left(()), 100)));
}

#[test]
fn a_task_that_waits_leaves_its_core_to_others() {
    let rt = machine(1, &[(CpuOp::Syscall, 100)]);
    let log = Rc::new(RefCell::new(Vec::new()));
    for (name, first) in [("a", 1), ("b", 3)] {
        let (task, log) = (rt.clone(), log.clone());
        rt.spawn(name, async move {
            task.cpu(CpuOp::Syscall, first).await;
            task.sleep(Span::nanos(50)).await;
            task.cpu(CpuOp::Syscall, 1).await;
            log.borrow_mut().push((name, task.now().0));
        });
    }
    assert_eq!(rt.run(), Outcome::Idle);
    // `a` computes 0..100, `b` 100..400; `a` is ready at 150 and gets the core at 400; `b` at 500.
    assert_eq!(*log.borrow(), [("a", 500), ("b", 600)]);
}

#[test]
fn a_task_that_only_computes_does_not_starve_the_others() {
    let rt = machine(1, &[(CpuOp::PageWrite, 1_000)]);
    let hog = rt.clone();
    rt.spawn("hog", async move {
        for _ in 0..10_000 {
            hog.cpu(CpuOp::PageWrite, 1).await;
        }
    });
    let task = rt.clone();
    let other = rt.spawn("other", async move {
        task.cpu(CpuOp::PageWrite, 1).await;
        task.now()
    });
    assert_eq!(rt.run(), Outcome::Idle);
    assert_eq!(other.try_take(), Some(Time::ZERO + TIME_SLICE + Span::micros(1)));
    assert_eq!(rt.now(), Time(10_001_000));
}

#[test]
fn computing_loses_no_wake_up_of_another_future_of_the_task() {
    let rt = machine(1, &[(CpuOp::Syscall, 100)]);
    let (queue, is_set) = (Rc::new(WaitQueue::new(&rt, "first")), Rc::new(Cell::new(false)));
    let task = rt.clone();
    let ended = rt.spawn("two", async move {
        let first: Pin<Box<dyn Future<Output = u64>>> = Box::pin({
            let (task, queue, is_set) = (task.clone(), queue.clone(), is_set.clone());
            async move {
                queue.wait_until(|| is_set.get()).await;
                task.now().0
            }
        });
        let second: Pin<Box<dyn Future<Output = u64>>> = Box::pin(async move {
            is_set.set(true);
            queue.wake_all();
            task.cpu(CpuOp::Syscall, 1).await;
            task.sleep(Span::secs(1)).await;
            task.now().0
        });
        join_all([first, second]).await
    });
    assert_eq!(rt.run(), Outcome::Idle);
    assert_eq!(ended.try_take(), Some(vec![100, 1_000_000_100]));
}

#[test]
fn the_suspend_hook_is_not_called_for_cpu_time_but_for_a_sleep() {
    struct Counts(Cell<u32>);
    impl SuspendHook for Counts {
        fn suspended(self: Rc<Self>) {
            self.0.set(self.0.get() + 1);
        }
    }
    let rt = machine(1, &[(CpuOp::Syscall, 100), (CpuOp::ContextSwitch, 10)]);
    let task = rt.clone();
    let result = rt.block_on("t", async move {
        let hook = Rc::new(Counts(Cell::new(0)));
        task.set_suspend_hook(Some(hook.clone()));
        task.cpu(CpuOp::Syscall, 3).await;
        let after_cpu = hook.0.get();
        task.sleep(Span::nanos(5)).await;
        (after_cpu, hook.0.get())
    });
    assert_eq!(result, Ok((0, 1)));
}

#[test]
fn charges_are_recorded_with_the_task_and_the_operation() {
    let rt = machine(1, &[(CpuOp::Syscall, 100), (CpuOp::ContextSwitch, 10)]);
    rt.probe().set_mask(Class::CPU);
    ends(&rt, 1);
    let seen: Vec<_> =
        rt.probe().take().into_iter().map(|r| (r.at.0, r.task.to_string(), r.event)).collect();
    let cpu = |what, ns| Event::Cpu { what, span: Span::nanos(ns) };
    let want = [(0, "context_switch", 10), (10, "syscall", 1_000)];
    assert_eq!(seen, want.map(|(at, what, ns)| (at, "t0".to_string(), cpu(what, ns))));
}

#[test]
fn who_woke_whom_and_who_had_a_core_is_recorded() {
    let rt = machine(1, &[(CpuOp::Syscall, 100)]);
    rt.probe().set_mask(Class::SCHED);
    let queue = Rc::new(WaitQueue::new(&rt, "queue"));
    let (task, waits) = (rt.clone(), queue.clone());
    rt.spawn("sleeper", async move {
        waits.wait().await;
        task.cpu(CpuOp::Syscall, 1).await;
    });
    let task = rt.clone();
    let woke = rt.block_on("waker", async move {
        task.sleep(Span::nanos(50)).await;
        queue.wake_all();
        task.cpu(CpuOp::Syscall, 1).await;
    });
    assert_eq!((woke, rt.run()), (Ok(()), Outcome::Idle));
    let seen: Vec<_> =
        rt.probe().take().into_iter().map(|r| (r.at.0, r.task.to_string(), r.event)).collect();
    let woken = |task: &str, timer, on| Event::Wakeup { task: task.into(), timer, on };
    let (on, off) = (Event::SwitchIn { core: 0 }, Event::SwitchOut { ready: false });
    let want = [
        (0, "swapper", woken("sleeper", false, "")),
        (0, "swapper", woken("waker", false, "")),
        (0, "sleeper", on.clone()),
        (0, "sleeper", off.clone()),
        (0, "waker", on.clone()),
        (0, "waker", off.clone()),
        (50, "swapper", woken("waker", true, "")),
        (50, "waker", on.clone()),
        (50, "waker", woken("sleeper", false, "queue")),
        // There is one core, and its task goes on.
        (150, "waker", off.clone()),
        (150, "sleeper", on),
        (250, "sleeper", off),
    ];
    assert_eq!(seen, want.map(|(at, task, event)| (at, task.to_string(), event)));
}

#[test]
fn operations_have_unique_names() {
    for (i, op) in CpuOp::ALL.iter().enumerate() {
        assert_eq!(*op as usize, i);
        assert_eq!(CpuOp::by_name(op.name()), Some(*op));
    }
    assert_eq!(CpuOp::by_name("nap"), None);
}

#[test]
fn interrupt_context_needs_no_core_and_a_thread_does() {
    let rt = machine(1, &[(CpuOp::Syscall, 100), (CpuOp::ContextSwitch, 7)]);
    let log = Rc::new(RefCell::new(Vec::new()));
    let done = Rc::new(WaitQueue::new(&rt, "device"));
    // Keeps the only core for a microsecond.
    let busy = rt.clone();
    let told = log.clone();
    let _busy = rt.spawn("busy", async move {
        busy.cpu(CpuOp::Syscall, 10).await;
        told.borrow_mut().push(("busy", busy.now().0, busy.current().is_some()));
    });
    let (task, told, ended) = (rt.clone(), log.clone(), done.clone());
    rt.spawn_interrupt("completion", async move {
        told.borrow_mut().push(("begun", task.now().0, task.current().is_some()));
        ended.wait().await;
        // Nobody is charged.
        task.cpu(CpuOp::Syscall, 5).await;
        told.borrow_mut().push(("interrupt", task.now().0, task.current().is_some()));
        task.leave_interrupt().await;
        told.borrow_mut().push(("thread", task.now().0, task.current().is_some()));
        task.cpu(CpuOp::Syscall, 1).await;
        task.leave_interrupt().await;
        told.borrow_mut().push(("end", task.now().0, task.current().is_some()));
    });
    struct Device(Rc<WaitQueue>);
    impl wp_rt::TimerSink for Device {
        fn fire(self: Rc<Self>, _now: Time, _token: u64) {
            self.0.wake_all();
        }
    }
    rt.timer(Time(300), Rc::new(Device(done)), 0);
    assert_eq!(rt.run_until(Time(5_000)), Outcome::Reached);
    let want = [
        ("begun", 0, false),
        ("interrupt", 300, false),
        ("busy", 1_007, true),
        ("thread", 1_014, true),
        ("end", 1_114, true),
    ];
    assert_eq!(*log.borrow(), want);
}

#[test]
fn a_cut_drops_what_is_in_interrupt_context() {
    let rt = Rt::new(1);
    let alive = Rc::new(());
    let (held, task) = (alive.clone(), rt.clone());
    rt.spawn_interrupt("completion", async move {
        task.sleep(Span::secs(1)).await;
        drop(held);
    });
    assert_eq!(rt.run_until(Time(10)), Outcome::Reached);
    rt.cut();
    assert_eq!(Rc::strong_count(&alive), 1);
}
