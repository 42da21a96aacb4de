//! How runs end: idle, stopped, deadlock, livelock, power cut; and that a cut world leaves nothing.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wp_base::live;
use wp_base::{Span, Time};
use wp_rt::{
    Completion, CostProfile, CpuModel, CpuOp, HUNG_AFTER, Lock, Outcome, POLLS_WITHOUT_TIME_MAX,
    Rt, Semaphore, SuspendHook, TimeMode, TimerSink, WaitQueue,
};

#[test]
fn a_run_ends_when_the_last_foreground_task_does_and_daemons_keep_their_state() {
    let rt = Rt::new(1);
    let ticks = Rc::new(RefCell::new(Vec::new()));
    let (task, log) = (rt.clone(), ticks.clone());
    rt.spawn_daemon("ticker", async move {
        loop {
            task.sleep(Span::nanos(10)).await;
            log.borrow_mut().push(task.now().0);
        }
    });
    let task = rt.clone();
    rt.spawn("main", async move { task.sleep(Span::nanos(25)).await });
    assert_eq!(rt.run(), Outcome::Idle);
    assert_eq!((rt.now(), ticks.borrow().len()), (Time(25), 2));
    assert_eq!(rt.run(), Outcome::Idle);
    assert_eq!(rt.now(), Time(25));
    assert_eq!(rt.run_until(Time(40)), Outcome::Reached);
    assert_eq!(*ticks.borrow(), [10, 20, 30, 40]);
    rt.cut();
}

#[test]
fn block_on_leaves_other_foreground_tasks_where_they_are() {
    let rt = Rt::new(1);
    let task = rt.clone();
    let slow = rt.spawn("slow", async move { task.sleep(Span::secs(1)).await });
    let task = rt.clone();
    let quick = async move {
        task.sleep(Span::nanos(1)).await;
        7
    };
    assert_eq!(rt.block_on("quick", quick), Ok(7));
    assert_eq!(rt.now(), Time(1));
    assert!(!slow.is_done());
    assert_eq!(rt.run(), Outcome::Idle);
    assert!(slow.is_done());
}

#[test]
fn stop_ends_the_run_after_the_current_poll() {
    let rt = Rt::new(1);
    let task = rt.clone();
    rt.spawn("stops", async move {
        task.stop();
        task.sleep(Span::nanos(1)).await;
    });
    assert_eq!(rt.run(), Outcome::Stopped);
    assert_eq!(rt.now(), Time(0));
    assert_eq!(rt.run(), Outcome::Idle);
    rt.stop();
    assert_eq!(rt.block_on("late", async {}), Err(Outcome::Stopped));
}

#[test]
fn a_deadlock_report_says_what_each_task_waits_for_and_who_has_it() {
    let rt = Rt::new(1);
    let (a, b) = (Rc::new(Lock::new(&rt, "alpha", ())), Rc::new(Lock::new(&rt, "beta", ())));
    let (task, a1, b1) = (rt.clone(), a.clone(), b.clone());
    let first = rt.spawn("first", async move {
        let _a = a1.lock().await;
        task.sleep(Span::nanos(5)).await;
        let _b = b1.lock().await;
    });
    rt.spawn("second", async move {
        let _b = b.lock().await;
        let _a = a.lock().await;
    });
    let task = rt.clone();
    rt.spawn("third", async move {
        let _permit = Semaphore::new(&task, "slots", 1).acquire(2).await;
    });
    let task = rt.clone();
    rt.spawn("fourth", async move { Completion::new(&task, "io").wait().await });
    rt.spawn("fifth", first);
    rt.spawn("sixth", std::future::pending::<()>());
    let task = rt.clone();
    rt.spawn_daemon("flusher", async move { WaitQueue::new(&task, "work").wait().await });
    let outcome = rt.run();
    assert_eq!(
        outcome.to_string(),
        "deadlock:\n  \
         task `first` waits since 0.000000005 for lock `beta`, held by `second`\n  \
         task `second` waits since 0.000000000 for lock `alpha`, held by `first`\n  \
         task `third` waits since 0.000000000 for semaphore `slots`\n  \
         task `fourth` waits since 0.000000000 for completion `io`\n  \
         task `fifth` waits since 0.000000000 for end of task `first`\n  \
         task `sixth` waits since 0.000000000 for a waker unknown to the runtime\n  \
         daemon `flusher` waits since 0.000000000 for wait queue `work`"
    );
    assert_eq!(outcome, Outcome::Deadlock(rt.tasks()));
    rt.cut();
    assert!(rt.tasks().is_empty());
}

#[test]
fn daemons_that_wait_are_no_deadlock() {
    let rt = Rt::new(1);
    let task = rt.clone();
    rt.spawn_daemon("flusher", async move { WaitQueue::new(&task, "work").wait().await });
    assert_eq!(rt.run(), Outcome::Idle);
    assert_eq!(rt.run_until(Time(5)), Outcome::Reached);
    rt.cut();
}

#[test]
fn a_deadlock_is_found_although_a_daemon_ticks_for_ever() {
    let rt = Rt::new(1);
    let task = rt.clone();
    rt.spawn_daemon("flusher", async move {
        loop {
            task.sleep(Span::secs(5)).await;
        }
    });
    let task = rt.clone();
    // A long sleep of its own is no deadlock, however long.
    let sleeper = async move { task.sleep(HUNG_AFTER.times(10)).await };
    assert_eq!(rt.block_on("sleeper", sleeper), Ok(()));
    let before = rt.now();
    let task = rt.clone();
    rt.spawn("hangs", async move { WaitQueue::new(&task, "never").wait().await });
    assert!(matches!(rt.run(), Outcome::Deadlock(_)));
    assert!(rt.now().since(before) <= HUNG_AFTER + Span::secs(5));
    rt.cut();
}

#[test]
fn a_livelock_is_found_and_names_the_task() {
    let rt = Rt::new(1);
    let task = rt.clone();
    rt.spawn("spins", async move {
        task.sleep(Span::nanos(3)).await;
        loop {
            task.yield_now().await;
        }
    });
    let Outcome::Livelock(tasks) = rt.run() else { panic!("no livelock") };
    assert_eq!((&*tasks[0].name, tasks[0].waits_for.as_str()), ("spins", "its turn"));
    assert_eq!(rt.now(), Time(3));
    assert!(rt.stats().polls >= POLLS_WITHOUT_TIME_MAX);
    rt.cut();
}

/// Everything that can hold on to something: tasks in every kind of waiting, hooks, sinks,
/// messages.
fn busy_world(seed: u64) -> Rt {
    let mut profile = CostProfile::zero();
    profile.set(CpuOp::Syscall, 100);
    let rt = Rt::with(TimeMode::Virtual, seed, CpuModel { cores: 2, profile });
    struct Hook(#[expect(dead_code, reason = "held so that it must be let go")] Rt);
    impl SuspendHook for Hook {
        fn suspended(self: Rc<Self>) {}
    }
    struct Sink(Rt);
    impl TimerSink for Sink {
        fn fire(self: Rc<Self>, now: Time, token: u64) {
            self.0.clone().timer(now + Span::nanos(70), self, token);
        }
    }
    let lock = Rc::new(Lock::new(&rt, "l", 0));
    let sem = Semaphore::new(&rt, "s", 2);
    let queue = Rc::new(WaitQueue::new(&rt, "q"));
    rt.timer(Time(1), Rc::new(Sink(rt.clone())), 0);
    rt.timer(Time(1 << 40), Rc::new(Sink(rt.clone())), 0);
    for i in 0..10u64 {
        let (task, lock, sem, queue) = (rt.clone(), lock.clone(), sem.clone(), queue.clone());
        rt.spawn(format!("worker-{i}"), async move {
            task.set_suspend_hook(Some(Rc::new(Hook(task.clone()))));
            let mut rng = task.rng(&format!("worker-{i}"));
            loop {
                match rng.below(5) {
                    0 => task.sleep(Span::nanos(rng.below(100))).await,
                    1 => *lock.lock().await += 1,
                    2 => {
                        let _permit = sem.acquire(1 + rng.below(2)).await;
                        let _guard = lock.clone().lock_owned().await;
                        task.cpu(CpuOp::Syscall, 1).await;
                    }
                    3 => drop(wp_rt::wait_timeout(&queue, Span::nanos(rng.below(100))).await),
                    _ => {
                        queue.wake_one();
                        let rt = task.clone();
                        let child = async move { rt.cpu(CpuOp::Syscall, 1).await };
                        task.spawn("child", child).await;
                    }
                }
            }
        });
    }
    rt
}

#[test]
fn a_cut_drops_everything_wherever_it_comes() {
    let before = live::census();
    for at in 0..200u64 {
        let rt = busy_world(at);
        let held_outside = rt.sleep(Span::secs(1));
        assert_eq!(rt.run_until(Time(at * 13)), Outcome::Reached);
        let inbox = rt.inbox();
        let own = rt.clone();
        rt.soon(Rc::new(Never(own)), 0);
        rt.cut();
        assert!(!inbox.push(|_| unreachable!("the machine is off")));
        assert_eq!(live::count(live::Kind::Task), 0);
        assert_eq!(rt.run(), Outcome::PowerCut);
        assert_eq!(rt.block_on("late", async {}), Err(Outcome::PowerCut));
        drop((rt, held_outside));
        assert_eq!(live::census(), before, "cut at {at}");
    }
    struct Never(#[expect(dead_code, reason = "held so that it must be let go")] Rt);
    impl TimerSink for Never {
        fn fire(self: Rc<Self>, _now: Time, _token: u64) {
            unreachable!("the machine is off");
        }
    }
}

#[test]
fn a_cut_from_inside_a_task_or_a_callback_ends_the_run_after_it() {
    let before = live::census();
    struct Cuts(Rt);
    impl TimerSink for Cuts {
        fn fire(self: Rc<Self>, _now: Time, _token: u64) {
            self.0.cut();
        }
    }
    let rt = busy_world(1);
    rt.timer(Time(500), Rc::new(Cuts(rt.clone())), 0);
    assert_eq!(rt.run(), Outcome::PowerCut);
    assert_eq!(rt.now(), Time(500));
    drop(rt);

    let rt = busy_world(2);
    let task = rt.clone();
    let reached = rt.block_on("cuts", async move {
        task.sleep(Span::nanos(500)).await;
        task.cut();
        let late = task.spawn("late", async { unreachable!("the machine is off") });
        task.spawn_daemon("late", async { unreachable!("the machine is off") });
        late.await
    });
    assert_eq!(reached, Err::<(), _>(Outcome::PowerCut));
    drop(rt);
    assert_eq!(live::census(), before);
}

#[test]
fn tasks_are_dropped_in_the_order_in_which_they_were_spawned() {
    struct Says(Rc<RefCell<Vec<u32>>>, u32, Rc<WaitQueue>);
    impl Drop for Says {
        fn drop(&mut self) {
            self.0.borrow_mut().push(self.1);
            self.2.wake_all();
        }
    }
    let rt = Rt::new(1);
    let log = Rc::new(RefCell::new(Vec::new()));
    let queue = Rc::new(WaitQueue::new(&rt, "q"));
    for i in 0..10u32 {
        let (task, says) = (rt.clone(), Says(log.clone(), i, queue.clone()));
        rt.spawn("t", async move {
            // Even ones end early, so that later tasks take their slots.
            if i % 2 == 1 {
                says.2.wait_until(|| false).await;
            }
            task.yield_now().await;
        });
    }
    rt.run_until(Time(1));
    for i in 10..15u32 {
        let says = Says(log.clone(), i, queue.clone());
        rt.spawn("t", async move { says.2.wait().await });
    }
    rt.run_until(Time(2));
    assert_eq!(*log.borrow(), [0, 2, 4, 6, 8]);
    rt.cut();
    assert_eq!(log.borrow()[5..], [1, 3, 5, 7, 9, 10, 11, 12, 13, 14]);
}

#[test]
fn ended_tasks_leave_nothing_and_their_slots_are_used_again() {
    let before = live::census();
    let rt = Rt::new(1);
    for _ in 0..1_000 {
        let id = rt.spawn("t", async {}).id();
        assert_eq!(rt.name_of(id).as_deref(), Some("t"));
        assert_eq!(rt.run(), Outcome::Idle);
        assert_eq!(rt.name_of(id), None);
        assert_eq!(live::count(live::Kind::Task), 0);
    }
    assert_eq!(rt.stats().tasks_spawned, 1_000);
    drop(rt);
    assert_eq!(live::census(), before);
}

#[test]
fn a_flag_of_another_thread_ends_every_run() {
    let rt = Rt::new(1);
    let flag = Arc::new(AtomicBool::new(false));
    rt.halt_on(flag.clone());
    let (clock, setter) = (rt.clone(), flag.clone());
    let ended = rt.block_on("ever", async move {
        for n in 0u64.. {
            setter.store(n == 100, Ordering::Relaxed);
            clock.sleep(Span::secs(1)).await;
        }
    });
    assert_eq!(ended, Err(Outcome::Stopped));
    assert_eq!(rt.now(), Time(100_000_000_000));
    // Nothing more is run until it is taken back.
    assert_eq!(rt.run_until(Time(200_000_000_000)), Outcome::Stopped);
    flag.store(false, Ordering::Relaxed);
    assert_eq!(rt.run_until(Time(150_000_000_000)), Outcome::Reached);
}
