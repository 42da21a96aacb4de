//! Who waits for a call's device: the caller, or nobody.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

use wp_rt::Rt;

/// How a direct call is made (`struct kiocb`): in its caller's task until the end, or until its
/// bios are on their way, from where on it goes on in interrupt context.
pub struct Kiocb {
    /// `None`: the caller waits.
    rt: Option<Rt>,
    queued: Cell<bool>,
    untorn: bool,
}

impl Kiocb {
    /// A system call that returns when it is done (`is_sync_kiocb`).
    pub const fn blocking() -> Kiocb {
        Kiocb { rt: None, queued: Cell::new(false), untorn: false }
    }

    /// The same of an untorn write (`IOCB_ATOMIC`).
    pub(crate) const fn untorn() -> Kiocb {
        Kiocb { rt: None, queued: Cell::new(false), untorn: true }
    }

    /// One that may return before.
    pub(crate) fn asynchronous(rt: &Rt, untorn: bool) -> Kiocb {
        Kiocb { rt: Some(rt.clone()), queued: Cell::new(false), untorn }
    }

    /// Must its data be there whole or not at all after a power failure (`IOCB_ATOMIC`)?
    pub fn is_untorn(&self) -> bool {
        self.untorn
    }

    /// May it return before it is done?
    pub fn is_async(&self) -> bool {
        self.rt.is_some()
    }

    /// Has it returned (`-EIOCBQUEUED`)?
    pub(crate) fn is_queued(&self) -> bool {
        self.queued.get()
    }

    /// A worker goes on with it in the caller's place, and may wait.
    pub(crate) fn hand_on(&self) {
        self.queued.set(true);
    }

    /// All bios are on their way: here the caller of an asynchronous call goes on with something
    /// else, and what follows is in interrupt context, where only the device may be waited for. A
    /// file system that does not come here waits in the caller's task. A blocking call goes on.
    pub async fn queued(&self) {
        if self.rt.is_none() {
            return;
        }
        poll_fn(|_| match self.queued.replace(true) {
            false => Poll::Pending,
            true => Poll::Ready(()),
        })
        .await;
    }

    /// What follows needs a task, which an asynchronous call that was queued has no more: a kernel
    /// thread goes on (`s_dio_done_wq`).
    pub async fn in_thread(&self) {
        if let Some(rt) = &self.rt
            && self.queued.get()
        {
            rt.leave_interrupt().await;
        }
    }
}
