//! From interrupt context into a kernel thread.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::runtime::Rt;

/// Future of [`Rt::leave_interrupt`].
#[must_use = "goes on in the thread only when awaited"]
pub struct LeaveInterrupt {
    rt: Rt,
    asked: bool,
}

impl LeaveInterrupt {
    pub(crate) fn new(rt: Rt) -> LeaveInterrupt {
        LeaveInterrupt { rt, asked: false }
    }
}

impl Future for LeaveInterrupt {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<()> {
        if self.asked {
            return Poll::Ready(());
        }
        self.asked = true;
        let Some(id) = self.rt.0.polled.get() else { return Poll::Ready(()) };
        {
            let mut s = self.rt.0.state.borrow_mut();
            let Some(task) = s.tasks.get_mut(id).filter(|t| t.interrupt) else {
                return Poll::Ready(());
            };
            task.interrupt = false;
        }
        self.rt.wake_task(id);
        Poll::Pending
    }
}
