//! Real-time mode: the wall clock, and work from other threads.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use wp_base::Span;
use wp_rt::{Completion, CpuModel, Inbox, Outcome, Rt, TimeMode};

fn real() -> Rt {
    Rt::with(TimeMode::Real, 1, CpuModel::free())
}

#[expect(clippy::disallowed_methods, reason = "these tests are about other threads")]
fn thread(inbox: Inbox, f: impl FnOnce(Inbox) + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || f(inbox))
}

#[test]
fn a_sleep_takes_as_long_as_it_says() {
    let rt = real();
    let task = rt.clone();
    let before = rt.now();
    assert_eq!(
        rt.block_on("sleeps", async move {
            task.sleep(Span::millis(20)).await;
            task.yield_now().await;
        }),
        Ok(())
    );
    assert!(rt.now().since(before) >= Span::millis(20));
    let at = rt.now() + Span::millis(5);
    assert_eq!(rt.run_until(at), Outcome::Reached);
    assert!(rt.now() >= at);
}

#[test]
fn other_threads_hand_in_work_while_the_runtime_sleeps() {
    let rt = real();
    let seen = Arc::new(AtomicU32::new(0));
    let (end, done) = rt.mailbox("shutdown");
    let other = thread(rt.inbox(), {
        let seen = seen.clone();
        move |inbox| {
            for i in 0..100u32 {
                if i % 10 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let seen = seen.clone();
                assert!(inbox.push(move |rt| {
                    assert_eq!(rt.current(), None);
                    assert_eq!(
                        seen.fetch_add(1, Ordering::SeqCst),
                        i,
                        "in the order of the pushes"
                    );
                }));
            }
            end.send(()).expect("the server still waits");
        }
    });
    let received = rt.block_on("server", async move { done.receive().await });
    assert_eq!(received, Ok(Some(())));
    assert_eq!(seen.load(Ordering::SeqCst), 100);
    other.join().expect("the other thread ends well");
}

#[test]
fn a_server_task_answers_requests_of_threads_until_the_last_one_has_gone() {
    let rt = real();
    let (requests, mailbox) = rt.mailbox::<(u64, mpsc::Sender<u64>)>("requests");
    let threads: Vec<_> = (0..3u64)
        .map(|t| {
            let requests = requests.clone();
            thread(rt.inbox(), move |inbox| {
                drop(inbox);
                for i in 0..50 {
                    let (reply, replies) = mpsc::channel();
                    requests.send((t * 100 + i, reply)).expect("the server waits for us");
                    assert_eq!(replies.recv(), Ok((t * 100 + i) * 2));
                }
            })
        })
        .collect();
    drop(requests);
    let task = rt.clone();
    let served = rt.block_on("server", async move {
        // State that no other thread could hold.
        let served = Rc::new(Cell::new(0u32));
        while let Some((request, reply)) = mailbox.receive().await {
            let (rt, served) = (task.clone(), served.clone());
            task.spawn("request", async move {
                rt.sleep(Span::micros(50)).await;
                served.set(served.get() + 1);
                reply.send(request * 2).expect("its thread waits");
            });
        }
        served.get()
    });
    assert_eq!(served, Ok(150));
    threads.into_iter().for_each(|t| t.join().expect("the thread ends well"));
    let (late, mailbox) = rt.mailbox("late");
    drop(mailbox);
    assert_eq!(late.send(5), Err(5));
}

#[test]
fn a_waker_may_be_used_on_another_thread() {
    let rt = real();
    let inbox = rt.inbox();
    let woken = Cell::new(false);
    let result = rt.block_on(
        "waits",
        std::future::poll_fn(move |cx| {
            if woken.replace(true) {
                return std::task::Poll::Ready(42);
            }
            let waker = cx.waker().clone();
            thread(inbox.clone(), move |_inbox| {
                std::thread::sleep(Duration::from_millis(5));
                waker.wake();
            });
            std::task::Poll::Pending
        }),
    );
    assert_eq!(result, Ok(42));
}

#[test]
fn without_inbox_and_timers_a_waiting_task_is_a_deadlock_also_in_real_time() {
    let rt = real();
    let task = rt.clone();
    rt.spawn("waits", async move { Completion::new(&task, "never").wait().await });
    let other = thread(rt.inbox(), |inbox| {
        std::thread::sleep(Duration::from_millis(5));
        drop(inbox);
    });
    assert!(matches!(rt.run(), Outcome::Deadlock(_)));
    other.join().expect("the other thread ends well");
    let other = thread(rt.inbox(), |inbox| {
        inbox.push(|rt| rt.cut());
    });
    assert_eq!(rt.run(), Outcome::PowerCut);
    other.join().expect("the other thread ends well");
}

#[test]
fn the_inbox_also_works_in_virtual_time() {
    let rt = Rt::new(1);
    let inbox = rt.inbox();
    inbox.push(|rt| {
        let task = rt.clone();
        rt.spawn("late", async move { task.sleep(Span::nanos(5)).await });
    });
    assert_eq!(rt.run(), Outcome::Idle);
    assert_eq!(rt.now().0, 5);
    drop(rt);
    assert!(!inbox.push(|_| ()));
}
