//! The bounds of requests' bodies: a time, a size and a share of memory, which counts until the last copy of
//! the body is gone, not only while it arrives.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::body::Bytes;
use axum::http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::record::{self, Record, Share};
use crate::error::Failure;
use config::ServerSection;
use controller::Clock;
use pool::Span;

/// A body that comes more slowly than this, after the time that every body has, is no body.
const BYTES_PER_SECOND_MIN: u64 = 16 << 10;
/// Memory is given out in pieces of this size.
const PIECE: u64 = 1 << 10;
/// Larger bodies share three quarters of the memory, so that they never stop the small ones.
const SMALL_MAX: u64 = 256 << 10;
/// What a body of unknown length is given first; then always twice as much.
const UNKNOWN_FIRST: u64 = 16 << 10;
const BUSY_RETRY: Span = Span::from_secs(5);

/// The bounds that all bodies share.
#[derive(Debug)]
pub struct Bodies {
    bounds: ArcSwap<Bounds>,
    all: Arc<Semaphore>,
    large: Arc<Semaphore>,
    clock: Clock,
}

/// Of each body.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    limit: u64,
    within: Duration,
}

impl Bounds {
    fn of(server: &ServerSection) -> Bounds {
        Bounds {
            limit: server.body_limit.0.0,
            within: server.body_timeout.duration(),
        }
    }
}

impl Bodies {
    /// Other bounds, for bodies that begin from now on.
    pub fn set(&self, server: &ServerSection) {
        self.bounds.store(Arc::new(Bounds::of(server)));
    }

    pub fn of(server: &ServerSection, clock: Clock) -> Bodies {
        let pieces = server.bodies_memory.0.0 / PIECE;
        let some = |pieces: u64| {
            let pieces = usize::try_from(pieces).unwrap_or(usize::MAX);
            Arc::new(Semaphore::new(pieces.min(Semaphore::MAX_PERMITS)))
        };
        Bodies {
            bounds: ArcSwap::from_pointee(Bounds::of(server)),
            all: some(pieces),
            large: some(pieces / 4 * 3),
            clock,
        }
    }

    pub async fn read(&self, body: &mut Incoming, record: &Record) -> Result<Bytes, Failure> {
        let Bounds { limit, within } = **self.bounds.load();
        let declared = body.size_hint().exact();
        let expected = declared.unwrap_or(0);
        if expected > limit {
            return Err(Failure::too_large(limit));
        }
        let first = declared.unwrap_or(UNKNOWN_FIRST.min(limit));
        let mut held = Held::default();
        self.reserve(&mut held, first, within).await?;
        let begun = self.clock.now();
        let mut received = 0;
        let mut arriving = Arrived::Nothing;
        loop {
            let allowed = within + Duration::from_secs(received / BYTES_PER_SECOND_MIN);
            let passed = Duration::from_millis(self.clock.now().since(begun).0);
            let left = allowed.saturating_sub(passed);
            let frame = match tokio::time::timeout(left, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => break,
                Ok(Some(Err(error))) => {
                    return Err(Failure::invalid(
                        None,
                        format!("the body did not arrive whole: {error}"),
                    ));
                }
                Err(_) => return Err(too_slow(received, allowed)),
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            received += data.len() as u64;
            if received > limit {
                return Err(Failure::too_large(limit));
            }
            if received > held.bytes {
                let wanted = (held.bytes * 2).max(received).min(limit);
                let more = wanted - held.bytes;
                self.reserve(&mut held, more, within).await?;
            }
            arriving.push(data, expected);
        }
        let bytes = arriving.into_bytes();
        record.arrived(&bytes);
        let held = Arc::new(held);
        record.holds(&held);
        Ok(Held::with(&held, bytes))
    }

    /// Memory beside what a request's body has, for what the request refers to. From then on the request's share is both.
    pub async fn more(&self, bytes: usize) -> Result<Share, Failure> {
        let within = self.bounds.load().within;
        let mut held = Held {
            _body: record::held(),
            ..Held::default()
        };
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.reserve(&mut held, bytes, within).await?;
        Ok(record::hold(Arc::new(held)))
    }

    /// Waits for memory as long as a body may take.
    async fn reserve(&self, held: &mut Held, bytes: u64, within: Duration) -> Result<(), Failure> {
        let pieces = u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX);
        if pieces == 0 {
            return Ok(());
        }
        let is_large = held.bytes + bytes > SMALL_MAX;
        let reserved = async {
            let large = match is_large {
                true => Some(Arc::clone(&self.large).acquire_many_owned(pieces).await),
                false => None,
            };
            let all = Arc::clone(&self.all).acquire_many_owned(pieces).await;
            (large, all)
        };
        match tokio::time::timeout(within, reserved).await {
            // The semaphores are never closed.
            Ok((large, all)) => {
                join(&mut held.large, large.and_then(Result::ok));
                join(&mut held.all, all.ok());
            }
            Err(_) => return Err(no_memory()),
        }
        held.bytes += bytes;
        Ok(())
    }
}

fn too_slow(received: u64, within: Duration) -> Failure {
    Failure::new(
        StatusCode::REQUEST_TIMEOUT,
        "invalid_request_error",
        "body_too_slow",
        format!(
            "of the body only {received} bytes came within {:.1} s (server.body_timeout)",
            within.as_secs_f64()
        ),
    )
}

fn no_memory() -> Failure {
    let failure = Failure::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "server_error",
        "bodies_memory",
        "the bodies of other requests take all the memory there is for them (server.bodies_memory); ask again",
    );
    failure.again_in(BUSY_RETRY)
}

/// A share of the memory; dropping it gives it back.
#[derive(Debug, Default)]
pub(super) struct Held {
    bytes: u64,
    all: Option<OwnedSemaphorePermit>,
    large: Option<OwnedSemaphorePermit>,
    /// The share of the body itself, where this is what came to it later.
    _body: Option<Arc<Held>>,
}

fn join(held: &mut Option<OwnedSemaphorePermit>, more: Option<OwnedSemaphorePermit>) {
    let Some(more) = more else { return };
    match held {
        Some(held) => held.merge(more),
        None => *held = Some(more),
    }
}

impl Held {
    /// The same bytes, with this share of the memory until the last copy is dropped.
    pub fn with(held: &Arc<Held>, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        let _held = Arc::clone(held);
        Bytes::from_owner(HeldBody { bytes, _held })
    }
}

/// A body with its share of the memory.
struct HeldBody<B> {
    bytes: B,
    _held: Arc<Held>,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for HeldBody<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// What came so far. One piece stays as it is; many small ones are copied together at once, since each
/// keeps the buffer that it came in.
enum Arrived {
    Nothing,
    One(Bytes),
    Many(Vec<u8>),
}

impl Arrived {
    fn push(&mut self, data: Bytes, expected: u64) {
        *self = match std::mem::replace(self, Arrived::Nothing) {
            Arrived::Nothing => Arrived::One(data),
            Arrived::One(first) => {
                let capacity = usize::try_from(expected).unwrap_or(0);
                let mut all = Vec::with_capacity(capacity.max(first.len() + data.len()));
                all.extend_from_slice(&first);
                all.extend_from_slice(&data);
                Arrived::Many(all)
            }
            Arrived::Many(mut all) => {
                all.extend_from_slice(&data);
                Arrived::Many(all)
            }
        };
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Arrived::Nothing => Bytes::new(),
            Arrived::One(bytes) => bytes,
            Arrived::Many(all) => all.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Size;

    const WITHIN: Duration = Duration::from_millis(100);

    fn bodies(memory: u64) -> Bodies {
        let server = ServerSection {
            bodies_memory: Size(pool::Bytes(memory)),
            ..ServerSection::default()
        };
        Bodies::of(&server, Clock::start())
    }

    #[tokio::test]
    async fn memory_that_is_given_out_comes_back_with_the_last_copy() {
        let bodies = bodies(pool::Bytes::MIB);
        let mut held = Held::default();
        bodies.reserve(&mut held, 700 << 10, WITHIN).await.unwrap();
        let bytes = Bytes::from_static(b"{}");
        let body = Held::with(&Arc::new(held), bytes);
        let copy = body.clone();
        drop(body);
        let mut next = Held::default();
        let refused = bodies
            .reserve(&mut next, 700 << 10, WITHIN)
            .await
            .unwrap_err();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        drop(copy);
        bodies.reserve(&mut next, 700 << 10, WITHIN).await.unwrap();
    }

    #[tokio::test]
    async fn large_bodies_leave_a_quarter_to_the_small_ones() {
        let bodies = bodies(pool::Bytes::MIB);
        let mut large = Held::default();
        bodies.reserve(&mut large, 768 << 10, WITHIN).await.unwrap();
        let mut second = Held::default();
        assert!(
            bodies
                .reserve(&mut second, 257 << 10, WITHIN)
                .await
                .is_err()
        );
        let mut small = Held::default();
        bodies.reserve(&mut small, 256 << 10, WITHIN).await.unwrap();
        assert!(bodies.reserve(&mut second, 1, WITHIN).await.is_err());
    }

    #[test]
    fn one_piece_is_not_copied_and_many_are_put_together() {
        let mut arrived = Arrived::Nothing;
        let piece = Bytes::from(vec![1, 2]);
        let place = piece.as_ptr();
        arrived.push(piece, 2);
        let Arrived::One(one) = &arrived else {
            panic!("one piece");
        };
        assert_eq!(one.as_ptr(), place);
        arrived.push(Bytes::from_static(&[3]), 4);
        arrived.push(Bytes::from_static(&[4]), 4);
        assert_eq!(arrived.into_bytes().as_ref(), [1, 2, 3, 4]);
    }
}
