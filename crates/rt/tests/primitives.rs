//! Locks, semaphores, wait queues and joins: order, and what a dropped future leaves behind.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use wp_base::{Span, Time};
use wp_rt::{
    Completion, Either, Lock, Outcome, Rt, Semaphore, WaitQueue, join_all, race, timeout,
    wait_timeout,
};

type Log = Rc<RefCell<Vec<u64>>>;

#[test]
fn a_lock_is_handed_on_in_the_order_of_asking() {
    let rt = Rt::new(1);
    let lock = Rc::new(Lock::new(&rt, "l", Vec::new()));
    for i in 0..50u64 {
        let (task, lock) = (rt.clone(), lock.clone());
        rt.spawn("asks", async move {
            // Asks in another order than that of spawning.
            task.sleep(Span::nanos(i * 7 % 50)).await;
            let mut order = lock.lock().await;
            task.sleep(Span::nanos(100)).await;
            order.push(i * 7 % 50);
        });
    }
    assert_eq!(rt.run(), Outcome::Idle);
    assert_eq!(*lock.try_lock().unwrap(), (0..50).collect::<Vec<u64>>());
}

#[test]
fn try_lock_does_not_overtake_and_sees_a_lock_that_is_being_handed_over() {
    let rt = Rt::new(1);
    let lock = Rc::new(Lock::new(&rt, "l", 0));
    let (task, mine) = (rt.clone(), lock.clone());
    rt.spawn("first", async move {
        let guard = mine.lock().await;
        assert!(mine.try_lock().is_none());
        task.sleep(Span::nanos(5)).await;
        drop(guard);
        // `second` has it now, although it has not run yet.
        assert!(mine.try_lock().is_none());
    });
    let mine = lock.clone();
    rt.spawn("second", async move { *mine.lock().await = 2 });
    assert_eq!(rt.run(), Outcome::Idle);
    assert_eq!(*lock.try_lock().unwrap(), 2);
}

#[test]
fn an_owned_guard_keeps_the_lock_until_it_is_dropped() {
    let rt = Rt::new(1);
    let lock = Rc::new(Lock::new(&rt, "l", 1));
    let mine = lock.clone();
    let guard = rt.block_on("a", async move { mine.lock_owned().await }).unwrap();
    assert!(lock.is_locked());
    assert_eq!(guard.with(|v| std::mem::replace(v, 5)), 1);
    drop(guard);
    assert_eq!(*lock.try_lock().unwrap(), 5);
}

/// Polls once with a waker of our own: the future is then waiting for a foreign waker.
fn poll_once<F: Future>(fut: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    fut.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_lock_future_dropped_after_it_was_handed_the_lock_hands_it_on() {
    let rt = Rt::new(1);
    let lock = Lock::new(&rt, "l", 0);
    let guard = lock.try_lock().unwrap();
    let mut third = pin!(lock.lock());
    {
        let mut first = pin!(lock.lock());
        let mut second = pin!(lock.lock());
        assert!(poll_once(first.as_mut()).is_pending());
        assert!(poll_once(second.as_mut()).is_pending());
        assert!(poll_once(third.as_mut()).is_pending());
        drop(guard);
        // `second` goes first while still in line, then `first`, which owns the lock.
        assert!(poll_once(third.as_mut()).is_pending());
    }
    assert!(poll_once(third.as_mut()).is_ready());
    assert!(!lock.is_locked());
}

#[test]
fn a_semaphore_serves_strictly_in_order_whatever_is_asked() {
    let rt = Rt::new(1);
    let sem = Semaphore::new(&rt, "s", 4);
    let log = Log::default();
    for (i, n) in [4, 3, 1, 1, 4, 1].into_iter().enumerate() {
        let (task, sem, log) = (rt.clone(), sem.clone(), log.clone());
        rt.spawn("asks", async move {
            let permit = sem.acquire(n).await;
            log.borrow_mut().push(task.now().0 * 10 + i as u64);
            task.sleep(Span::nanos(10)).await;
            assert_eq!(permit.count(), n);
        });
    }
    assert_eq!(rt.run(), Outcome::Idle);
    // 0 alone; then 1 and 2 fill it; 3 waits behind them, and 4 keeps 5 from passing.
    assert_eq!(*log.borrow(), [0, 101, 102, 203, 304, 405]);
    assert_eq!(sem.available(), 4);
}

#[test]
fn a_semaphore_future_that_leaves_lets_those_behind_it_pass() {
    let rt = Rt::new(1);
    let sem = Semaphore::new(&rt, "s", 2);
    let held = sem.try_acquire(1).unwrap();
    let mut small = pin!(sem.acquire(1));
    {
        let mut big = pin!(sem.acquire(2));
        assert!(poll_once(big.as_mut()).is_pending());
        assert!(sem.try_acquire(1).is_none(), "nobody overtakes");
        assert!(poll_once(small.as_mut()).is_pending());
    }
    assert!(poll_once(small.as_mut()).is_ready());
    drop(held);
    assert_eq!((sem.available(), sem.waiters()), (2, 0));
}

#[test]
fn a_semaphore_future_that_was_granted_and_is_dropped_gives_the_permits_back() {
    let rt = Rt::new(1);
    let sem = Semaphore::new(&rt, "s", 0);
    let mut second = pin!(sem.acquire(2));
    {
        let mut first = pin!(sem.acquire(2));
        assert!(poll_once(first.as_mut()).is_pending());
        assert!(poll_once(second.as_mut()).is_pending());
        sem.add_permits(2);
        assert_eq!(sem.available(), 0);
    }
    let Poll::Ready(mut permit) = poll_once(second.as_mut()) else { panic!("not granted") };
    permit.release(1);
    assert_eq!(sem.available(), 1);
    permit.forget();
    assert_eq!(sem.available(), 1);
}

#[test]
fn wake_one_wakes_the_longest_waiter_and_wake_all_only_those_that_wait_now() {
    let rt = Rt::new(1);
    let queue = Rc::new(WaitQueue::new(&rt, "q"));
    let log = Log::default();
    for i in 0..4u64 {
        let (queue, log) = (queue.clone(), log.clone());
        rt.spawn("waits", async move {
            queue.wait().await;
            log.borrow_mut().push(i);
            queue.wait().await;
            log.borrow_mut().push(10 + i);
        });
    }
    assert!(!queue.wake_one(), "nobody waits yet");
    rt.run_until(Time(1));
    assert!(queue.wake_one());
    rt.run_until(Time(2));
    assert_eq!(*log.borrow(), [0]);
    // In line now: 1, 2, 3, and 0 again.
    queue.wake_all();
    rt.run_until(Time(3));
    assert_eq!(*log.borrow(), [0, 1, 2, 3, 10]);
    assert_eq!(queue.waiters(), 3);
    rt.cut();
    assert_eq!(queue.waiters(), 0);
}

#[test]
fn a_wake_up_between_asking_and_awaiting_is_not_lost() {
    let rt = Rt::new(1);
    let queue = WaitQueue::new(&rt, "q");
    let mut wait = pin!(queue.wait());
    queue.wake_all();
    assert!(poll_once(wait.as_mut()).is_ready());
}

#[test]
fn a_dropped_waiter_hands_on_a_single_wake_up_but_not_a_wake_up_of_all() {
    let rt = Rt::new(1);
    let queue = WaitQueue::new(&rt, "q");
    let mut later = pin!(queue.wait());
    {
        // Replaced, so that `later` is behind it in line.
        let mut first = pin!(queue.wait());
        assert!(poll_once(first.as_mut()).is_pending());
        later.set(queue.wait());
        assert!(poll_once(later.as_mut()).is_pending());
        queue.wake_one();
    }
    assert!(poll_once(later.as_mut()).is_ready());

    let mut after = {
        let mut woken = pin!(queue.wait());
        assert!(poll_once(woken.as_mut()).is_pending());
        queue.wake_all();
        queue.wait()
    };
    assert!(poll_once(pin!(&mut after)).is_pending(), "the wake-up of all was before its time");
    assert_eq!(queue.waiters(), 1);
}

#[test]
fn wait_until_looks_first_and_again_after_each_wake_up() {
    let rt = Rt::new(1);
    let (queue, level) = (Rc::new(WaitQueue::new(&rt, "level")), Rc::new(Cell::new(0)));
    let (task, q, l) = (rt.clone(), queue.clone(), level.clone());
    let waiter = rt.spawn("waiter", async move {
        q.wait_until(|| l.get() >= 3).await;
        task.now()
    });
    let (task, q, l) = (rt.clone(), queue, level);
    rt.spawn("raiser", async move {
        for _ in 0..5 {
            task.sleep(Span::nanos(10)).await;
            l.set(l.get() + 1);
            q.wake_all();
        }
        q.wait_until(|| true).await;
    });
    assert_eq!(rt.run(), Outcome::Idle);
    assert_eq!(waiter.try_take(), Some(Time(30)));
    assert_eq!(waiter.try_take(), None);
    assert!(waiter.is_done());
}

#[test]
fn wait_timeout_tells_a_wake_up_from_the_end_of_the_span() {
    let rt = Rt::new(1);
    let queue = Rc::new(WaitQueue::new(&rt, "q"));
    let (task, mine) = (rt.clone(), queue.clone());
    let waiter = rt.spawn("waiter", async move {
        let first = wait_timeout(&mine, Span::nanos(10)).await;
        let at = task.now();
        (first, at, wait_timeout(&mine, Span::nanos(10)).await, task.now())
    });
    let task = rt.clone();
    rt.spawn("waker", async move {
        task.sleep(Span::nanos(14)).await;
        queue.wake_one();
        assert_eq!(queue.waiters(), 0);
    });
    assert_eq!(rt.run(), Outcome::Idle);
    assert_eq!(waiter.try_take(), Some((false, Time(10), true, Time(14))));
}

#[test]
fn a_completion_stays_done_until_it_is_reset() {
    let rt = Rt::new(1);
    let done = Rc::new(Completion::new(&rt, "c"));
    for _ in 0..3 {
        let mine = done.clone();
        rt.spawn("waits", async move { mine.wait().await });
    }
    rt.run_until(Time(5));
    done.done();
    done.done();
    assert_eq!(rt.run(), Outcome::Idle);
    let mine = done.clone();
    assert_eq!(rt.block_on("late", async move { mine.wait().await }), Ok(()));
    done.reset();
    assert!(!done.is_done());
}

#[test]
fn join_race_timeout_and_join_all_work_together() {
    let rt = Rt::new(1);
    let task = rt.clone();
    let result = rt.block_on("main", async move {
        let child = |span: u64| {
            let rt = task.clone();
            task.spawn(format!("child-{span}"), async move {
                rt.sleep(Span::nanos(span)).await;
                span
            })
        };
        assert_eq!(child(3).await, 3);
        assert_eq!(race(child(10), child(5)).await, Either::Right(5));
        assert_eq!(race(task.sleep(Span::ZERO), child(5)).await, Either::Left(()));
        assert_eq!(timeout(&task, Span::nanos(9), child(20)).await, None);
        // At the same instant the span's end comes first: its timer was set first.
        assert_eq!(timeout(&task, Span::nanos(20), child(20)).await, None);
        assert_eq!(timeout(&task, Span::nanos(21), child(20)).await, Some(20));
        let before = task.now();
        assert_eq!(join_all([child(7), child(2), child(7)]).await, [7, 2, 7]);
        task.now().since(before)
    });
    assert_eq!(result, Ok(Span::nanos(7)));
}

#[test]
fn futures_polled_with_a_combinators_own_waker_still_wake_their_task() {
    /// Passes on wake-ups of the task through a waker that the runtime does not know.
    struct Relay(Waker);
    impl std::task::Wake for Relay {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.wake_by_ref();
        }
    }
    async fn relayed<F: Future>(fut: F) -> F::Output {
        let mut fut = pin!(fut);
        std::future::poll_fn(|cx| {
            let waker = Waker::from(std::sync::Arc::new(Relay(cx.waker().clone())));
            fut.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }
    let rt = Rt::new(1);
    let lock = Rc::new(Lock::new(&rt, "l", ()));
    let (task, mine) = (rt.clone(), lock.clone());
    rt.spawn("holds", async move {
        let _guard = mine.lock().await;
        task.sleep(Span::nanos(50)).await;
    });
    let task = rt.clone();
    let result = rt.block_on("relayed", async move {
        relayed(task.sleep(Span::nanos(5))).await;
        relayed(task.yield_now()).await;
        drop(relayed(lock.lock()).await);
        task.now()
    });
    assert_eq!(result, Ok(Time(50)));
}
