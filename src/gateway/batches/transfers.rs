//! Transfers between this machine and buckets, each under a key: in the background, a limited number at a time, and repeated with
//! growing pauses until they succeed.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::task::JoinSet;

use crate::open_batches::ObjectError;
use pool::{Span, Time};

/// Transfers at the same time.
const RUNNING_MAX: usize = 16;
/// Of one holder.
const RUNNING_PER_HOLDER: usize = 2;
const FIRST_PAUSE: Span = Span(1_000);
const PAUSE_MAX: Span = Span(60_000);

/// The transfers of one kind.
pub(super) struct Transfers<T> {
    /// The failure of a transfer, for the log.
    failure: &'static str,
    /// An error that another attempt cannot mend ends a transfer.
    may_end: bool,
    transfers: BTreeMap<String, Transfer<T>>,
    tasks: JoinSet<(String, Result<T, ObjectError>)>,
}

struct Transfer<T> {
    holder: String,
    failures: u32,
    state: State<T>,
}

enum State<T> {
    Waiting { until: Time },
    Running,
    Done(T),
    Failed,
}

/// The present state of a transfer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TransferState<T> {
    /// It runs or runs again.
    Pending,
    Done(T),
    /// Another attempt cannot succeed.
    Failed,
}

/// The pause after this many failures in a row.
pub(super) fn pause(failures: u32) -> Span {
    let doubled = FIRST_PAUSE.0 << failures.saturating_sub(1).min(16);
    Span(doubled.min(PAUSE_MAX.0))
}

impl<T: Clone + Send + 'static> Transfers<T> {
    pub fn new(failure: &'static str, may_end: bool) -> Transfers<T> {
        Transfers {
            failure,
            may_end,
            transfers: BTreeMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// The state of the transfer with this key. Begins it if it is new or its pause is over, and the limits allow it.
    pub fn poll<F>(
        &mut self,
        key: &str,
        holder: &str,
        now: Time,
        begin: impl FnOnce() -> F,
    ) -> TransferState<T>
    where
        F: Future<Output = Result<T, ObjectError>> + Send + 'static,
    {
        self.take_ended(now);
        let has_room = self.has_room(holder);
        let transfer = self.transfers.entry(key.to_owned());
        let transfer = transfer.or_insert_with(|| Transfer {
            holder: holder.to_owned(),
            failures: 0,
            state: State::Waiting { until: now },
        });
        match &transfer.state {
            State::Waiting { until } if *until <= now && has_room => {
                transfer.state = State::Running;
                let (key, work) = (key.to_owned(), begin());
                self.tasks.spawn(async move {
                    let ended = AssertUnwindSafe(work).catch_unwind().await;
                    let panicked = |_| {
                        let error = std::io::Error::other("internal error");
                        Err(ObjectError::Disk(error))
                    };
                    (key, ended.unwrap_or_else(panicked))
                });
                TransferState::Pending
            }
            State::Waiting { .. } | State::Running => TransferState::Pending,
            State::Done(value) => TransferState::Done(value.clone()),
            State::Failed => TransferState::Failed,
        }
    }

    /// Failures in a row of the transfer with this key.
    pub fn failures(&self, key: &str) -> u32 {
        let transfer = self.transfers.get(key);
        transfer.map_or(0, |transfer| transfer.failures)
    }

    /// Returns true if the transfer with this key has not been forgotten.
    pub fn contains(&self, key: &str) -> bool {
        self.transfers.contains_key(key)
    }

    pub fn len(&self) -> usize {
        self.transfers.len()
    }

    /// Forgets a transfer. If it runs, its outcome is ignored.
    pub fn forget(&mut self, key: &str) {
        self.transfers.remove(key);
    }

    fn take_ended(&mut self, now: Time) {
        while let Some(ended) = self.tasks.try_join_next() {
            // Tasks are cancelled only with the runner.
            let Ok((key, ended)) = ended else { continue };
            let Some(transfer) = self.transfers.get_mut(&key) else {
                continue;
            };
            match ended {
                Ok(value) => {
                    transfer.failures = 0;
                    transfer.state = State::Done(value);
                }
                Err(error) => {
                    transfer.failures += 1;
                    let failures = transfer.failures;
                    tracing::warn!(file = key, %error, failures, "{}", self.failure);
                    transfer.state = if self.may_end && error.is_final() {
                        State::Failed
                    } else {
                        let until = now + pause(failures);
                        State::Waiting { until }
                    };
                }
            }
        }
    }

    fn has_room(&self, holder: &str) -> bool {
        let running = self.transfers.values();
        let running = running.filter(|transfer| matches!(transfer.state, State::Running));
        let of_holder = running.filter(|transfer| transfer.holder == holder).count();
        self.tasks.len() < RUNNING_MAX && of_holder < RUNNING_PER_HOLDER
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use source::FileBucketError;

    fn missing() -> ObjectError {
        let (uri, name) = ("s3://lab".to_owned(), "file-1".to_owned());
        ObjectError::Bucket(FileBucketError::Missing { uri, name })
    }

    fn away() -> ObjectError {
        ObjectError::Read("connection refused".to_owned())
    }

    /// Begins a transfer with this outcome, and waits until it has ended.
    async fn attempt(
        transfers: &mut Transfers<u32>,
        now: u64,
        outcome: Result<u32, ObjectError>,
    ) -> TransferState<u32> {
        let now = Time(now);
        transfers.poll("a", "key:1", now, || std::future::ready(outcome));
        while !transfers.tasks.is_empty() {
            tokio::task::yield_now().await;
            transfers.take_ended(now);
        }
        transfers.poll("a", "key:1", now, || std::future::ready(Err(away())))
    }

    #[tokio::test]
    async fn a_transfer_is_repeated_with_growing_pauses_until_it_succeeds() {
        let mut transfers = Transfers::new("the transfer failed", false);
        assert_eq!(
            attempt(&mut transfers, 0, Err(missing())).await,
            TransferState::Pending
        );
        assert_eq!(transfers.failures("a"), 1);
        // The pause is not over.
        assert_eq!(
            attempt(&mut transfers, 999, Ok(7)).await,
            TransferState::Pending
        );
        assert_eq!(
            attempt(&mut transfers, 1_000, Err(away())).await,
            TransferState::Pending
        );
        assert_eq!(transfers.failures("a"), 2);
        assert_eq!(
            attempt(&mut transfers, 2_999, Ok(7)).await,
            TransferState::Pending
        );
        assert_eq!(
            attempt(&mut transfers, 3_000, Ok(7)).await,
            TransferState::Done(7)
        );
        assert_eq!(transfers.failures("a"), 0);
        transfers.forget("a");
        assert!(!transfers.contains("a"));
        let pauses = [1, 2, 3, 7, 100].map(|failures| pause(failures).0);
        assert_eq!(pauses, [1_000, 2_000, 4_000, 60_000, 60_000]);
    }

    #[tokio::test]
    async fn a_fetch_ends_if_its_object_does_not_exist() {
        let mut transfers = Transfers::new("the transfer failed", true);
        assert_eq!(
            attempt(&mut transfers, 0, Err(away())).await,
            TransferState::Pending
        );
        assert_eq!(
            attempt(&mut transfers, 1_000, Err(missing())).await,
            TransferState::Failed
        );
    }

    #[tokio::test]
    async fn a_holder_has_two_transfers_at_a_time_and_others_begin_next_to_them() {
        let mut transfers: Transfers<u32> = Transfers::new("the transfer failed", false);
        for (key, holder, running) in [
            ("a", "key:1", 1),
            ("b", "key:1", 2),
            ("c", "key:1", 2),
            ("d", "key:2", 3),
        ] {
            let state = transfers.poll(key, holder, Time(0), std::future::pending);
            assert_eq!(state, TransferState::Pending);
            assert_eq!(transfers.tasks.len(), running, "{key}");
        }
        assert_eq!(transfers.len(), 4);
    }
}
