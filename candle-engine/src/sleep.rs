//! Puts an engine to sleep and wakes it: the order of the steps, and the requests admitted in each phase. Each component frees its
//! own memory ([`Sleeper`]).
//!
//! ```text
//!          POST /sleep             the last response ended,    POST /wake_up
//!  awake ──────────────▶ closing ─────────────────────▶ asleep ─────────────▶ awake
//!    ▲   no requests           every part gave back             every part took again
//!    └──────────────────────────┘ a part failed, or the client left
//! ```

use crate::api_error::ApiError;
use crate::error::EngineError;
use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::StreamExt;
use std::sync::Arc;
use tokio::sync::watch;

/// A component of the engine with memory that it can free and allocate again.
pub(crate) trait Sleeper: Send + Sync {
    /// Frees caches, working memory, pages of mapped files, and copies of weights on a GPU; the host has the originals. No request
    /// is running. Waits for a step that is still being computed for a cancelled request. Blocks.
    ///
    /// # Errors
    /// If nothing or only part of the memory could be freed; [`wake`](Self::wake) is called then.
    fn sleep(&self) -> Result<(), EngineError>;

    /// Allocates again what `sleep` freed. Also called if nothing was freed. Blocks.
    ///
    /// # Errors
    /// If memory is insufficient; the engine stays asleep, and `wake` may be retried.
    fn wake(&self) -> Result<(), EngineError>;
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Awake,
    /// In transition: no request is admitted.
    Turning,
    Asleep,
}

#[derive(Debug, Clone, Copy, Default)]
struct GateState {
    phase: Phase,
    /// Number of running requests.
    running: usize,
}

/// The gate that all requests pass.
#[derive(Debug, Default)]
pub(crate) struct SleepGate(watch::Sender<GateState>);

/// A request's pass through the gate, until it is dropped.
#[derive(Debug)]
pub(crate) struct AwakeRequest(Arc<SleepGate>);

impl Drop for AwakeRequest {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| state.running -= 1);
    }
}

impl SleepGate {
    /// # Errors
    /// 503 while the engine sleeps.
    pub fn enter(self: &Arc<Self>) -> Result<AwakeRequest, ApiError> {
        let entered = self.0.send_if_modified(|state| {
            let awake = state.phase == Phase::Awake;
            state.running += usize::from(awake);
            awake
        });
        if entered {
            Ok(AwakeRequest(Arc::clone(self)))
        } else {
            Err(ApiError::with_status(
                StatusCode::SERVICE_UNAVAILABLE,
                "model_asleep",
                "the engine sleeps; POST /wake_up first",
            ))
        }
    }

    pub fn is_asleep(&self) -> bool {
        self.0.borrow().phase == Phase::Asleep
    }

    /// Stops admitting requests, waits for the running ones, and has every component free its memory. Does nothing if the engine is
    /// asleep.
    ///
    /// # Errors
    /// 409 during another transition; 500 with the reason if a component fails, in which case the engine is awake.
    pub async fn sleep(self: &Arc<Self>, parts: Vec<Arc<dyn Sleeper>>) -> Result<(), ApiError> {
        let Some(turn) = self.turn(Phase::Awake, Phase::Asleep)? else {
            return Ok(());
        };
        let mut states = self.0.subscribe();
        // If the client disconnects, the turn is dropped, which reopens the gate.
        if states.wait_for(|state| state.running == 0).await.is_err() {
            return Err(ApiError::internal("the engine is shutting down"));
        }
        blocking(move || {
            let failed = parts.iter().find_map(|part| part.sleep().err());
            let Some(error) = failed else {
                turn.to(Phase::Asleep);
                return Ok(());
            };
            let awake = parts.iter().try_for_each(|part| part.wake());
            turn.to(if awake.is_ok() {
                Phase::Awake
            } else {
                Phase::Asleep
            });
            Err(error)
        })
        .await
    }

    /// Has every component allocate its memory again, and admits requests. Does nothing if the engine is awake.
    ///
    /// # Errors
    /// 409 during another transition; 500 with the reason if a component fails, in which case the engine stays asleep.
    pub async fn wake(self: &Arc<Self>, parts: Vec<Arc<dyn Sleeper>>) -> Result<(), ApiError> {
        let Some(turn) = self.turn(Phase::Asleep, Phase::Awake)? else {
            return Ok(());
        };
        blocking(move || {
            parts.iter().try_for_each(|part| part.wake())?;
            turn.to(Phase::Awake);
            Ok(())
        })
        .await
    }

    /// Begins a transition; returns `None` if the engine is already in phase `to`.
    fn turn(self: &Arc<Self>, from: Phase, to: Phase) -> Result<Option<Transition>, ApiError> {
        let mut found = Phase::Awake;
        let turns = self.0.send_if_modified(|state| {
            found = state.phase;
            if found == from {
                state.phase = Phase::Turning;
            }
            found == from
        });
        if turns {
            return Ok(Some(Transition {
                gate: Arc::clone(self),
                ends_in: from,
            }));
        }
        if found == to {
            Ok(None)
        } else {
            Err(ApiError::with_status(
                StatusCode::CONFLICT,
                "turning",
                "the engine is falling asleep or waking up already; see GET /is_sleeping",
            ))
        }
    }
}

/// A transition that reverts if dropped before it is complete.
struct Transition {
    gate: Arc<SleepGate>,
    ends_in: Phase,
}

impl Transition {
    fn to(mut self, phase: Phase) {
        self.ends_in = phase;
    }
}

impl Drop for Transition {
    fn drop(&mut self) {
        let phase = self.ends_in;
        self.gate.0.send_modify(|state| state.phase = phase);
    }
}

/// Runs to completion even if the client disconnects.
async fn blocking(
    work: impl FnOnce() -> Result<(), EngineError> + Send + 'static,
) -> Result<(), ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(ApiError::internal(error.to_string())),
        Err(_) => Err(ApiError::internal("a part of the engine failed")),
    }
}

/// Keeps a request counted as running until its last byte is sent or its client disconnects.
pub(crate) fn counted(awake_request: AwakeRequest, response: Response) -> Response {
    // A body of known size has been computed already.
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        let pieces = body.into_data_stream();
        Body::from_stream(pieces.inspect(move |_| {
            let _ = &awake_request;
        }))
    })
}

/// Tells the kernel that the pages of a mapped file are not needed for now. They stay in the page cache until the memory is needed,
/// and are read again on access.
pub(crate) fn give_back_pages(mapping: &memmap2::Mmap) -> Result<(), EngineError> {
    #[expect(unsafe_code, reason = "the system's advice has no safe form")]
    // SAFETY: the mapping is of a file and read-only; dropped pages are read from the file again.
    let advised = unsafe { mapping.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
    advised.map_err(|error| {
        EngineError::load(format!(
            "the pages of a mapped file cannot be released ({error})"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::sync::Mutex;

    /// Records its calls, and fails if the test wants it to.
    #[derive(Default)]
    struct RecordingSleeper {
        calls: Mutex<Vec<&'static str>>,
        fails: Option<&'static str>,
    }

    impl RecordingSleeper {
        fn failing(fails: &'static str) -> Arc<Self> {
            Arc::new(Self {
                fails: Some(fails),
                ..Self::default()
            })
        }

        fn note(&self, what: &'static str) -> Result<(), EngineError> {
            self.calls.lock().expect("no panic").push(what);
            match self.fails {
                Some(fails) if fails == what => Err(EngineError::load("out of memory")),
                _ => Ok(()),
            }
        }

        fn calls(&self) -> Vec<&'static str> {
            self.calls.lock().expect("no panic").clone()
        }
    }

    impl Sleeper for RecordingSleeper {
        fn sleep(&self) -> Result<(), EngineError> {
            self.note("sleep")
        }

        fn wake(&self) -> Result<(), EngineError> {
            self.note("wake")
        }
    }

    fn parts(part: &Arc<RecordingSleeper>) -> Vec<Arc<dyn Sleeper>> {
        vec![Arc::clone(part) as Arc<dyn Sleeper>]
    }

    #[tokio::test]
    async fn a_sleeping_engine_refuses_requests_until_it_is_woken() {
        let (gate, part) = (
            Arc::new(SleepGate::default()),
            Arc::new(RecordingSleeper::default()),
        );
        drop(gate.enter().expect("awake"));
        gate.sleep(parts(&part)).await.expect("falls asleep");
        gate.sleep(parts(&part)).await.expect("sleeps already");
        assert!(gate.is_asleep());
        let refused = gate.enter().expect_err("asleep");
        assert_eq!(refused.code, Some("model_asleep"));
        gate.wake(parts(&part)).await.expect("wakes");
        gate.wake(parts(&part)).await.expect("is awake");
        assert!(!gate.is_asleep() && gate.enter().is_ok());
        assert_eq!(part.calls(), ["sleep", "wake"]);
    }

    #[tokio::test]
    async fn running_requests_finish_before_sleep_and_new_ones_are_refused() {
        let (gate, part) = (
            Arc::new(SleepGate::default()),
            Arc::new(RecordingSleeper::default()),
        );
        let inside = gate.enter().expect("awake");
        let mut falling = Box::pin(gate.sleep(parts(&part)));
        assert!((&mut falling).now_or_never().is_none());
        assert!(gate.enter().is_err() && part.calls().is_empty());
        let other = gate.wake(parts(&part)).await.expect_err("it turns");
        assert_eq!(other.status, StatusCode::CONFLICT);
        drop(inside);
        falling.await.expect("falls asleep");
        assert!(gate.is_asleep());
    }

    #[tokio::test]
    async fn a_sleep_cancelled_before_it_takes_effect_leaves_the_engine_awake() {
        let (gate, part) = (
            Arc::new(SleepGate::default()),
            Arc::new(RecordingSleeper::default()),
        );
        let inside = gate.enter().expect("awake");
        let mut falling = Box::pin(gate.sleep(parts(&part)));
        assert!((&mut falling).now_or_never().is_none());
        drop(falling);
        assert!(gate.enter().is_ok() && part.calls().is_empty());
        drop(inside);
    }

    #[tokio::test]
    async fn a_part_that_fails_leaves_the_sleep_state_unchanged() {
        let (gate, part) = (
            Arc::new(SleepGate::default()),
            RecordingSleeper::failing("sleep"),
        );
        let failed = gate.sleep(parts(&part)).await.expect_err("it fails");
        assert!(failed.message.contains("out of memory"), "{failed:?}");
        assert!(!gate.is_asleep() && gate.enter().is_ok());
        assert_eq!(part.calls(), ["sleep", "wake"]);

        let (gate, part) = (
            Arc::new(SleepGate::default()),
            RecordingSleeper::failing("wake"),
        );
        gate.sleep(parts(&part)).await.expect("falls asleep");
        gate.wake(parts(&part)).await.expect_err("it fails");
        assert!(gate.is_asleep());
    }

    #[tokio::test]
    async fn a_stream_counts_as_running_until_it_ends_and_a_complete_response_does_not() {
        let gate = Arc::new(SleepGate::default());
        let response_with = |body| counted(gate.enter().expect("awake"), Response::new(body));
        let whole = response_with(Body::from("whole"));
        assert_eq!(gate.0.borrow().running, 0);
        let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>("piece")]);
        let stream = response_with(Body::from_stream(pieces));
        assert_eq!(gate.0.borrow().running, 1);
        drop((whole, stream));
        assert_eq!(gate.0.borrow().running, 0);
    }

    #[test]
    fn released_pages_read_back_with_the_same_content() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(1 << 16).expect("room");
        #[expect(unsafe_code, reason = "mapping a file has no safe form")]
        // SAFETY: no other code knows the file.
        let mapping = unsafe { memmap2::Mmap::map(&file) }.expect("a mapping");
        assert!(mapping.iter().all(|byte| *byte == 0));
        give_back_pages(&mapping).expect("given back");
        assert!(mapping.iter().all(|byte| *byte == 0));
    }
}
