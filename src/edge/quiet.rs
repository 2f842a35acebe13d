//! Polls a task again immediately if it wakes itself while it runs. The two ends of a hyper body wake each other for each piece and
//! are usually in the same task; the runtime would requeue the task and wake another processor for it, which costs more than the
//! piece.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use tokio::task::coop::has_budget_remaining;

/// Rounds in a row before other tasks get their turn.
const ROUNDS_MAX: u32 = 64;

/// No poll runs: a wake schedules the task.
const IDLE: u8 = 0;
const POLLING: u8 = 1;
/// Woken while it was polled.
const WOKEN: u8 = 2;

#[derive(Default)]
struct Own {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for Own {
    fn wake(self: Arc<Own>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Own>) {
        // AcqRel: the next poll sees everything written before the wake.
        if self.state.swap(WOKEN, Ordering::AcqRel) == IDLE {
            self.task.wake();
        }
    }
}

pub fn quiet<F: Future>(future: F) -> impl Future<Output = F::Output> {
    // Boxed because this future and each one around it would move it and keep twice its size.
    let mut future = Box::pin(future);
    let own = Arc::new(Own::default());
    let waker = Waker::from(Arc::clone(&own));
    poll_fn(move |context| {
        own.task.register(context.waker());
        for _ in 0..ROUNDS_MAX {
            own.state.swap(POLLING, Ordering::AcqRel);
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            if polled.is_ready() {
                return polled;
            }
            let rests =
                own.state
                    .compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire);
            if rests.is_ok() {
                return Poll::Pending;
            }
            // The budget is used up, so sockets would only return `Pending`.
            if !has_budget_remaining() {
                break;
            }
        }
        own.state.swap(IDLE, Ordering::AcqRel);
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::atomic::AtomicU32;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Count>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_again_without_waking_its_task() {
        let task = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&task));
        let mut rounds = 0;
        let mut future = pin!(quiet(poll_fn(|context| {
            rounds += 1;
            context.waker().wake_by_ref();
            match rounds {
                10 => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })));
        assert!(
            future
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_ready()
        );
        assert_eq!(task.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_future_that_always_wakes_itself_yields_to_other_tasks() {
        let task = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&task));
        let mut future = pin!(quiet(poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        })));
        assert!(
            future
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_external_wake_is_lost() {
        let (to, mut from) = tokio::sync::mpsc::channel(1);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            for nth in 0..50_000_u32 {
                to.send(nth).await.unwrap();
            }
        });
        let sum = quiet(async {
            let mut count = 0_u32;
            while from.recv().await.is_some() {
                count += 1;
            }
            count
        });
        assert_eq!(sum.await, 50_000);
    }
}
