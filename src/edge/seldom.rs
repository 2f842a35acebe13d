//! A future that is only polled after it was woken, not whenever other branches of a `select!` are polled. Waiting for rare events
//! then costs nothing; polling a cancellation token, for example, takes a lock that all streams share.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

struct Own {
    is_woken: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Own {
    fn wake(self: Arc<Own>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Own>) {
        self.is_woken.store(true, Ordering::Release);
        self.task.wake();
    }
}

pub fn seldom<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let own = Arc::new(Own {
        is_woken: AtomicBool::new(true),
        task: AtomicWaker::new(),
    });
    // Boxed because this future and each one around it would move it and keep twice its size.
    let mut future = Box::pin(future);
    poll_fn(move |context| {
        // Registered before the check, to lose no wake-up after it.
        own.task.register(context.waker());
        if !own.is_woken.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let waker = Waker::from(Arc::clone(&own));
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::pin::pin;

    #[test]
    fn a_seldom_future_is_polled_once_per_wake() {
        let polls = Cell::new(0);
        let waiting = Cell::new(None::<Waker>);
        let mut future = pin!(seldom(poll_fn(|context| {
            polls.set(polls.get() + 1);
            waiting.set(Some(context.waker().clone()));
            match polls.get() {
                2 => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..5 {
            assert!(future.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(polls.get(), 1);
        waiting.take().expect("it waits").wake();
        assert!(future.as_mut().poll(&mut context).is_ready());
        assert_eq!(polls.get(), 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_wakeup_is_lost_by_a_seldom_polled_future() {
        let (to, mut from) = tokio::sync::mpsc::channel(1);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            for nth in 0..50_000_u32 {
                to.send(nth).await.expect("the receiver is alive");
            }
        });
        let sum = seldom(async {
            let mut count = 0_u32;
            while from.recv().await.is_some() {
                count += 1;
            }
            count
        });
        assert_eq!(sum.await, 50_000);
    }
}
