//! The order of events: timers, tasks, callbacks, random streams.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use wp_base::event::{Class, Event};
use wp_base::{Rng, Span, Time};
use wp_rt::{Lock, Outcome, Rt, Semaphore, SuspendHook, TimerSink, WaitQueue, timeout};

type Log = Rc<RefCell<Vec<String>>>;

/// A sink that notes its token.
struct Noting {
    rt: Rt,
    log: Log,
}

impl TimerSink for Noting {
    fn fire(self: Rc<Self>, now: Time, token: u64) {
        assert_eq!(self.rt.current(), None);
        self.log.borrow_mut().push(format!("{}:{token}@{}", self.rt.current_name(), now.0));
    }
}

fn sink(rt: &Rt, log: &Log) -> Rc<Noting> {
    Rc::new(Noting { rt: rt.clone(), log: log.clone() })
}

#[test]
fn timers_fire_by_time_and_then_in_the_order_in_which_they_were_set() {
    let rt = Rt::new(1);
    let log = Log::default();
    for (token, at) in [(0, 30), (1, 10), (2, 30), (3, 10), (4, 20)] {
        rt.timer(Time(at), sink(&rt, &log), token);
    }
    assert_eq!(rt.run_until(Time(25)), Outcome::Reached);
    assert_eq!(*log.borrow(), ["swapper:1@10", "swapper:3@10", "swapper:4@20"]);
    assert_eq!(rt.now(), Time(25));
    assert_eq!(rt.run_until(Time(30)), Outcome::Reached);
    assert_eq!(log.borrow()[3..], ["swapper:0@30", "swapper:2@30"]);
    rt.cut();
}

#[test]
fn a_soon_callback_runs_after_the_poll_and_before_any_other_task() {
    let rt = Rt::new(1);
    let log = Log::default();
    for name in ["a", "b"] {
        let (task, log, noting) = (rt.clone(), log.clone(), sink(&rt, &log));
        rt.spawn(name, async move {
            task.soon(noting.clone(), 1);
            task.soon(noting, 2);
            log.borrow_mut().push(task.current_name().to_string());
        });
    }
    assert_eq!(rt.run_until(Time(0)), Outcome::Reached);
    let want = ["a", "swapper:1@0", "swapper:2@0", "b", "swapper:1@0", "swapper:2@0"];
    assert_eq!(*log.borrow(), want);
}

#[test]
fn ready_tasks_run_in_the_order_of_their_wake_ups() {
    let rt = Rt::new(1);
    let log = Log::default();
    for (name, first) in [("a", 5), ("b", 5), ("c", 3)] {
        let (task, log) = (rt.clone(), log.clone());
        rt.spawn(name, async move {
            task.sleep(Span::nanos(first)).await;
            for _ in 0..2 {
                log.borrow_mut().push(format!("{name}{}", task.now().0));
                task.yield_now().await;
            }
        });
    }
    assert_eq!(rt.run(), Outcome::Idle);
    // `b` wakes at the same time as `a`, but by a later timer: `a`'s yield puts it behind.
    assert_eq!(*log.borrow(), ["c3", "c3", "a5", "a5", "b5", "b5"]);
}

#[test]
fn a_yield_lets_all_ready_tasks_run_first() {
    let rt = Rt::new(1);
    let log = Log::default();
    for name in ["a", "b", "c"] {
        let (task, log) = (rt.clone(), log.clone());
        rt.spawn(name, async move {
            for i in 0..2 {
                log.borrow_mut().push(format!("{name}{i}"));
                task.yield_now().await;
            }
        });
    }
    assert_eq!(rt.run(), Outcome::Idle);
    assert_eq!(*log.borrow(), ["a0", "b0", "c0", "a1", "b1", "c1"]);
    assert_eq!(rt.now(), Time::ZERO);
}

#[test]
fn a_cancelled_sleep_neither_fires_nor_moves_time() {
    let rt = Rt::new(1);
    let task = rt.clone();
    let result = rt.block_on("main", async move {
        for _ in 0..1_000 {
            let never = task.sleep(Span::secs(1_000));
            assert_eq!(timeout(&task, Span::nanos(1), never).await, None);
        }
        task.now()
    });
    assert_eq!(result, Ok(Time(1_000)));
    assert_eq!(rt.stats().timers_fired, 1_000);
    let task = rt.clone();
    rt.spawn("waits", async move { WaitQueue::new(&task, "nothing").wait().await });
    assert!(matches!(rt.run(), Outcome::Deadlock(_)));
    assert_eq!(rt.now(), Time(1_000));
    rt.cut();
}

#[test]
fn random_streams_are_named_and_independent() {
    let rt = Rt::new(7);
    assert_eq!(rt.rng("device").next_u64(), Rng::stream(7, "device").next_u64());
    assert_ne!(rt.rng("device").next_u64(), rt.rng("workload").next_u64());
    assert_ne!(rt.rng("device").next_u64(), Rt::new(8).rng("device").next_u64());
}

#[test]
fn events_carry_the_time_and_the_task_that_ran() {
    let rt = Rt::new(1);
    rt.probe().set_mask(Class::MARK);
    let mark = |rt: &Rt| rt.emit(Class::MARK, || Event::Mark { text: "here".into() });
    struct Marks(Rt);
    impl TimerSink for Marks {
        fn fire(self: Rc<Self>, _now: Time, _token: u64) {
            self.0.emit(Class::MARK, || Event::Mark { text: "here".into() });
        }
    }
    rt.timer(Time(5), Rc::new(Marks(rt.clone())), 0);
    let task = rt.clone();
    rt.spawn("writer", async move {
        task.sleep(Span::nanos(9)).await;
        mark(&task);
        task.emit(Class::CPU, || unreachable!("the class is off"));
    });
    assert_eq!(rt.run(), Outcome::Idle);
    let seen: Vec<(u64, String)> =
        rt.probe().take().iter().map(|r| (r.at.0, r.task.to_string())).collect();
    assert_eq!(seen, [(5, "swapper".to_string()), (9, "writer".to_string())]);
}

struct Counting(Rt, Cell<u32>);
impl SuspendHook for Counting {
    fn suspended(self: Rc<Self>) {
        assert_eq!(&*self.0.current_name(), "plugged");
        self.1.set(self.1.get() + 1);
    }
}

#[test]
fn the_suspend_hook_is_called_for_sleeps_and_locks_but_not_for_a_yield() {
    let rt = Rt::new(1);
    let hook = Rc::new(Counting(rt.clone(), Cell::new(0)));
    assert!(rt.set_suspend_hook(Some(hook.clone())).is_none());
    let (task, set) = (rt.clone(), hook.clone());
    let result = rt.block_on("plugged", async move {
        let calls = || set.1.get();
        assert!(task.set_suspend_hook(Some(set.clone())).is_none());
        task.sleep(Span::nanos(10)).await;
        assert_eq!(calls(), 1);
        task.yield_now().await;
        assert_eq!(calls(), 1);
        let queue = WaitQueue::new(&task, "q");
        assert!(timeout(&task, Span::nanos(1), queue.wait()).await.is_none());
        assert_eq!(calls(), 2);
        assert!(task.set_suspend_hook(None).is_some());
        task.sleep(Span::nanos(10)).await;
        calls()
    });
    assert_eq!(result, Ok(2));
}

/// A small world with locks, timeouts and random spans; returns its whole history.
fn history(seed: u64, chaos: Option<u64>) -> Vec<String> {
    let rt = Rt::new(seed);
    rt.set_chaos(chaos);
    let log = Log::default();
    let lock = Rc::new(Lock::new(&rt, "shared", 0u64));
    let permits = Semaphore::new(&rt, "slots", 3);
    for i in 0..20u64 {
        let (task, log, lock, permits) = (rt.clone(), log.clone(), lock.clone(), permits.clone());
        rt.spawn(format!("worker-{i}"), async move {
            let mut rng = task.rng(&format!("worker-{i}"));
            for round in 0..20 {
                task.sleep(Span::nanos(rng.below(20))).await;
                let patience = Span::nanos(rng.below(30));
                let Some(permit) = timeout(&task, patience, permits.acquire(1 + i % 3)).await
                else {
                    log.borrow_mut().push(format!("{} {i} {round} gives up", task.now().0));
                    continue;
                };
                let mut value = lock.lock().await;
                task.sleep(Span::nanos(rng.below(5))).await;
                *value += 1;
                log.borrow_mut().push(format!("{} {i} {round} {}", task.now().0, *value));
                drop(value);
                task.yield_now().await;
                drop(permit);
            }
        });
    }
    assert_eq!(rt.run(), Outcome::Idle);
    assert_eq!(permits.available(), 3);
    assert_eq!(permits.waiters(), 0);
    assert!(!lock.is_locked());
    let log = log.borrow().clone();
    assert_eq!(log.len(), 400);
    log
}

#[test]
fn same_seed_same_history_and_chaos_changes_only_the_order() {
    for seed in 0..20 {
        assert_eq!(history(seed, None), history(seed, None));
        assert_eq!(history(seed, Some(seed)), history(seed, Some(seed)));
    }
    assert_ne!(history(1, None), history(2, None));
    assert_ne!(history(1, None), history(1, Some(1)));
    assert_ne!(history(1, Some(1)), history(1, Some(2)));
}
