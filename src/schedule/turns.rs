//! Runs events one at a time, without piling up. A cleanup that is due during a cleanup is skipped. Other events wait; of several
//! waiting events the newest wins, because it defines the final state of the pool.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::evening::EveningEvent;

/// The running event and the next one.
#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<TurnState>,
}

#[derive(Debug, Default)]
struct TurnState {
    running: Option<EveningEvent>,
    next: Vec<EveningEvent>,
}

impl Turns {
    /// Carries out these events in order, or leaves them to a caller that is already running events.
    pub(super) async fn take<F: Future<Output = ()>>(
        &self,
        events: Vec<EveningEvent>,
        act: impl Fn(EveningEvent) -> F,
    ) {
        let Some(mut turn) = self.queue(events) else {
            return;
        };
        while let Some(event) = turn.next() {
            act(event).await;
        }
    }

    fn queue(&self, mut events: Vec<EveningEvent>) -> Option<Turn<'_>> {
        let mut state = self.lock();
        let free = state.running.is_none() && state.next.is_empty();
        if state.running == Some(EveningEvent::Cleanup) && events.first() == state.running.as_ref()
        {
            tracing::warn!(
                "the evening cleanup is due again while the last one still runs; skipped"
            );
            events.remove(0);
        }
        for replaced in std::mem::replace(&mut state.next, events) {
            tracing::warn!(
                event = replaced.name(),
                "skipped: it waited for its turn and something newer is due"
            );
        }
        // Not `then_some`: constructing a `Turn` also drops it.
        (free && !state.next.is_empty()).then(|| Turn { turns: self })
    }

    fn lock(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to run events. If its holder is dropped midway, others can continue.
struct Turn<'a> {
    turns: &'a Turns,
}

impl Turn<'_> {
    fn next(&mut self) -> Option<EveningEvent> {
        let mut state = self.turns.lock();
        state.running = if state.next.is_empty() {
            None
        } else {
            Some(state.next.remove(0))
        };
        state.running
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        if state.running.take().is_some() {
            for lost in std::mem::take(&mut state.next) {
                tracing::error!(event = lost.name(), "lost: the event before it failed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::{Semaphore, mpsc};

    use super::EveningEvent::{Cleanup, Reopen};
    use super::*;

    /// Lets a test observe each start and decide each end.
    struct Stage {
        turns: Arc<Turns>,
        ends: Arc<Semaphore>,
        start: mpsc::UnboundedSender<EveningEvent>,
        started: mpsc::UnboundedReceiver<EveningEvent>,
    }

    impl Stage {
        fn new() -> Stage {
            let (start, started) = mpsc::unbounded_channel();
            Stage {
                turns: Arc::default(),
                ends: Arc::new(Semaphore::new(0)),
                start,
                started,
            }
        }

        fn take(&self, events: &[EveningEvent]) -> impl Future<Output = ()> + Send + use<> {
            let (turns, ends, start) = (
                Arc::clone(&self.turns),
                Arc::clone(&self.ends),
                self.start.clone(),
            );
            let events = events.to_vec();
            async move {
                turns
                    .take(events, |event| {
                        let (ends, start) = (Arc::clone(&ends), start.clone());
                        async move {
                            start.send(event).unwrap();
                            ends.acquire().await.unwrap().forget();
                        }
                    })
                    .await;
            }
        }
    }

    #[tokio::test]
    async fn a_cleanup_during_a_cleanup_is_skipped_and_a_reopening_waits_for_its_end() {
        let mut stage = Stage::new();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(stage.take(&[Cleanup]));
        assert_eq!(stage.started.recv().await, Some(Cleanup));
        stage.take(&[Cleanup]).await;
        stage.take(&[Reopen]).await;
        assert!(
            stage.started.try_recv().is_err(),
            "nothing starts while the cleanup runs"
        );
        stage.ends.add_permits(2);
        tasks.join_next().await.unwrap().unwrap();
        assert_eq!(
            (stage.started.try_recv(), stage.started.try_recv().is_err()),
            (Ok(Reopen), true)
        );
    }

    #[tokio::test]
    async fn the_newest_waiting_occurrence_wins() {
        let mut stage = Stage::new();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(stage.take(&[Cleanup]));
        assert_eq!(stage.started.recv().await, Some(Cleanup));
        stage.take(&[Reopen]).await;
        stage.take(&[Cleanup]).await;
        stage.ends.add_permits(1);
        tasks.join_next().await.unwrap().unwrap();
        assert!(
            stage.started.try_recv().is_err(),
            "closed is how the pool is to be, and closed it is"
        );

        stage.ends.add_permits(2);
        stage.take(&[Cleanup, Reopen]).await;
        assert_eq!(
            (stage.started.try_recv(), stage.started.try_recv()),
            (Ok(Cleanup), Ok(Reopen))
        );
    }

    #[tokio::test]
    async fn an_aborted_occurrence_does_not_block_later_ones() {
        let mut stage = Stage::new();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(stage.take(&[Cleanup]));
        assert_eq!(stage.started.recv().await, Some(Cleanup));
        tasks.shutdown().await;
        stage.ends.add_permits(1);
        stage.take(&[Cleanup]).await;
        assert_eq!(stage.started.try_recv(), Ok(Cleanup));
    }
}
