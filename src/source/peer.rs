//! Another machine of the pool with the weights, as a source of files: the interface it needs, and when to give up on it. The
//! caller connects to it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use tokio::time::MissedTickBehavior;

use super::error::SourceError;
use super::part::{OpenedPart, Part, PartProblem};

/// A peer that sends less than `SLOW_BYTES` in this time is dropped, because a hub is usually faster.
const SLOW_WINDOW: Duration = Duration::from_secs(10);
const SLOW_BYTES: u64 = 10 << 20;
/// Number of attempts for one file with a busy peer, and the pause between them.
const BUSY_TRIES: u32 = 5;
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// A connection to a machine that has the weights.
pub trait Peer: Send + Sync {
    /// The node's name, for display.
    fn node(&self) -> &str;

    /// Opens the content with this name at an offset.
    fn open<'a>(&'a self, blob: &'a str, offset: u64)
    -> BoxFuture<'a, Result<PeerFile, PeerError>>;
}

/// A file that a peer sends.
pub struct PeerFile {
    /// The offset at which the body begins.
    pub offset: u64,
    pub body: BoxStream<'static, Result<Bytes, String>>,
}

/// The reason why a peer does not send a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerError {
    /// It sends as many files as allowed, or an engine is loading there.
    Busy,
    Failed(String),
}

/// A peer, and whether it is still in use.
pub(super) struct PeerSource {
    peer: Box<dyn Peer>,
    /// If true, the peer is not used for any further file.
    is_slow: Arc<AtomicBool>,
    /// Number of consecutive busy responses.
    busy: AtomicU32,
}

impl fmt::Debug for PeerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSource")
            .field("node", &self.node())
            .finish_non_exhaustive()
    }
}

impl PeerSource {
    pub fn new(peer: Box<dyn Peer>) -> PeerSource {
        PeerSource {
            peer,
            is_slow: Arc::default(),
            busy: AtomicU32::new(0),
        }
    }

    /// A placeholder that sends nothing.
    pub fn none() -> PeerSource {
        PeerSource::new(Box::new(NoPeer))
    }

    pub fn node(&self) -> &str {
        self.peer.node()
    }

    pub fn error(&self, why: String) -> SourceError {
        SourceError::Peer {
            node: self.node().to_owned(),
            why,
        }
    }

    pub async fn open(&self, part: &Part, offset: u64) -> Result<OpenedPart, PartProblem> {
        let lasting = |why: String| PartProblem::Lasting(self.error(why));
        if self.is_slow.load(Ordering::Relaxed) {
            return Err(lasting(format!(
                "it sends less than {} MiB in {} s",
                SLOW_BYTES >> 20,
                SLOW_WINDOW.as_secs()
            )));
        }
        match self.peer.open(&part.blob, offset).await {
            Ok(file) => {
                self.busy.store(0, Ordering::Relaxed);
                Ok(OpenedPart {
                    offset: file.offset,
                    body: watched(file.body, Arc::clone(&self.is_slow)),
                })
            }
            Err(PeerError::Busy) => {
                let tries = self.busy.fetch_add(1, Ordering::Relaxed) + 1;
                if tries < BUSY_TRIES {
                    Err(PartProblem::Passing {
                        why: "it is busy".to_owned(),
                        after: Some(BUSY_PAUSE),
                    })
                } else {
                    Err(lasting(
                        "it already sends the maximum number of files (node.peers_at_once)"
                            .to_owned(),
                    ))
                }
            }
            Err(PeerError::Failed(why)) => Err(lasting(why)),
        }
    }
}

struct NoPeer;

impl Peer for NoPeer {
    fn node(&self) -> &str {
        "none"
    }

    fn open<'a>(&'a self, _: &'a str, _: u64) -> BoxFuture<'a, Result<PeerFile, PeerError>> {
        let none = Err(PeerError::Failed("there is no peer".to_owned()));
        Box::pin(std::future::ready(none))
    }
}

/// Wraps the body to end with an error once it is too slow.
fn watched(
    body: BoxStream<'static, Result<Bytes, String>>,
    is_slow: Arc<AtomicBool>,
) -> BoxStream<'static, Result<Bytes, String>> {
    let mut window = tokio::time::interval(SLOW_WINDOW);
    // Skip the first tick, which is immediate.
    window.reset();
    window.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let state = (body, window, 0_u64, false);
    stream::unfold(state, move |(mut body, mut window, mut came, is_over)| {
        let is_slow = Arc::clone(&is_slow);
        async move {
            if is_over {
                return None;
            }
            loop {
                tokio::select! {
                    biased;
                    chunk = body.next() => {
                        let chunk = chunk?;
                        came += chunk.as_ref().map_or(0, |bytes| bytes.len() as u64);
                        let is_over = chunk.is_err();
                        return Some((chunk, (body, window, came, is_over)));
                    }
                    _ = window.tick() => {
                        if came < SLOW_BYTES {
                            is_slow.store(true, Ordering::Relaxed);
                            let slow = Err("the node sends too slowly".to_owned());
                            return Some((slow, (body, window, came, true)));
                        }
                        came = 0;
                    }
                }
            }
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stalled_body_ends_with_an_error_and_marks_the_peer_as_slow() {
        let first = stream::iter([Ok(Bytes::from_static(b"begun"))]);
        let body = first.chain(stream::pending()).boxed();
        let is_slow = Arc::new(AtomicBool::new(false));
        let mut body = watched(body, Arc::clone(&is_slow));
        assert_eq!(body.next().await, Some(Ok(Bytes::from_static(b"begun"))));
        assert!(body.next().await.is_some_and(|chunk| chunk.is_err()));
        assert!(is_slow.load(Ordering::Relaxed));
        assert_eq!(body.next().await, None);
    }
}
