//! The bytes of recordings in engines, from the form that has arrived to the end of its transcript. Callers share them: an engine keeps
//! recordings on its disk, and does not know the callers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use api_types::error::{ErrorKind, Failure};
use edge::record;
use edge::shares::{Caller, Capacity, Class, Permit, Shares};
use pool::{Bytes, Span, Time};

const RETRY: Span = Span::from_secs(10);

#[derive(Debug)]
pub struct Recordings {
    shares: Arc<Shares>,
    /// `server.recordings_max`. An embedded engine accepts its default, so one caller cannot fill an engine.
    most: Bytes,
}

impl Recordings {
    pub fn new(most: Bytes) -> Recordings {
        Recordings {
            shares: Shares::new(Capacity::divided(most.0)),
            most,
        }
    }

    /// Takes this many bytes for the current request's caller, and waits for room at most `within`.
    ///
    /// # Errors
    /// 429 if the caller's other recordings use its share for longer, or all recordings use all bytes.
    pub(crate) async fn hold(&self, bytes: usize, within: Duration) -> Result<Permit, Failure> {
        let (caller, _) = record::caller();
        self.hold_for(caller, bytes, within).await
    }

    async fn hold_for(
        &self,
        caller: Caller,
        bytes: usize,
        within: Duration,
    ) -> Result<Permit, Failure> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let held = self.shares.hold(caller, Class::Large, bytes, Time(0));
        timeout(within, held).await.map_err(|_| {
            let message = format!(
                "no room for a recording of {} within {:.1} s: all recordings in progress have {} together, of at most {} (server.recordings_max), and one caller gets half of what the others leave; wait for your other recordings, or retry",
                Bytes(bytes),
                within.as_secs_f64(),
                Bytes(self.shares.held()),
                self.most
            );
            Failure::new(ErrorKind::TooMany, "recordings", message).again_in(RETRY)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::KeyId;

    const GIB: usize = 1 << 30;

    #[tokio::test]
    async fn b1_a_caller_with_many_recordings_leaves_room_for_those_of_another() {
        let all = Recordings::new(Bytes(4 << 30));
        // Without a wait.
        let hold = |key: u64, bytes| all.hold_for(Caller::Key(KeyId(key)), bytes, Duration::ZERO);
        let mut own = Vec::new();
        let refused = loop {
            match hold(1, GIB / 4).await {
                Ok(held) => own.push(held),
                Err(failure) => break failure,
            }
        };
        assert_eq!(own.len(), 8, "half of all");
        assert_eq!(refused.status().as_u16(), 429);
        assert_eq!(refused.retry(), Some(RETRY));
        let message = &refused.body.error.message;
        for part in ["256.0 MiB", "2.0 GiB", "4.0 GiB"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let other = hold(2, GIB).await.expect("room for the largest recording");
        hold(1, GIB / 4).await.expect_err("its share is used up");
        drop(own);
        let next = hold(1, GIB).await.expect("its share is free again");
        drop((next, other));
        assert_eq!(all.shares.held(), 0);
    }
}
