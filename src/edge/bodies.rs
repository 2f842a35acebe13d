//! Limits of request bodies: time, size, and a share of memory. A body counts for its caller while it arrives and until its last
//! copy is dropped. A slow body is evicted if others need its memory.

mod arrived;

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::body::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};

use self::arrived::Arrived;
pub(super) use self::arrived::Held;
use super::record::{self, Record, Share};
use crate::shares::{Arrival, Caller, Capacity, Class, Evicted, Permit, Shares};
use api_types::error::{ErrorKind, Failure};
use config::ServerSection;
use controller::Clock;
use pool::{Span, Time};

/// Minimum rate. A slower body is cut after the time allowed for every body, or earlier if other bodies of its caller wait.
const BYTES_PER_SECOND_MIN: u64 = 16 << 10;
/// Limit of small bodies. Larger ones share three quarters of the memory.
pub const SMALL_MAX: u64 = 256 << 10;
/// Divisor of the memory reserved for administrators.
pub const ADMIN_PART: u64 = 16;
/// Largest body that may use the administrators' reserve.
const ADMIN_MAX: u64 = 1 << 20;
/// Interval for checking whether an incomplete body is slow.
const SLOW_AFTER: Duration = Duration::from_secs(1);
const BUSY_RETRY: Span = Span::from_secs(5);

/// Limits shared by all bodies.
#[derive(Debug)]
pub struct Bodies {
    bounds: ArcSwap<Bounds>,
    shares: Arc<Shares>,
    clock: Clock,
}

/// Limits per body.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    limit: u64,
    within: Duration,
}

impl Bounds {
    fn from_config(server: &ServerSection) -> Bounds {
        Bounds {
            limit: server.body_limit.0.0,
            within: server.body_timeout.duration(),
        }
    }
}

impl Bodies {
    /// Changes the limits for bodies that begin afterwards.
    pub fn set(&self, server: &ServerSection) {
        self.bounds.store(Arc::new(Bounds::from_config(server)));
    }

    pub fn from_config(server: &ServerSection, clock: Clock) -> Bodies {
        let memory = server.bodies_memory.0.0;
        Bodies {
            bounds: ArcSwap::from_pointee(Bounds::from_config(server)),
            shares: Shares::new(Capacity {
                most: [memory / 4 * 3, memory - memory / ADMIN_PART, memory],
                is_divided: true,
            }),
            clock,
        }
    }

    pub async fn read(&self, body: &mut Incoming, record: &Record) -> Result<Bytes, Failure> {
        let Bounds { limit, within } = **self.bounds.load();
        let declared = body.size_hint().exact();
        if declared.is_some_and(|length| length > limit) {
            return Err(Failure::too_large(limit));
        }
        let begun = self.clock.now();
        // A body that has not begun holds no memory.
        let first = match tokio::time::timeout(within, next(body)).await {
            Ok(first) => first?.unwrap_or_default(),
            Err(_) => return Err(too_slow(0, within)),
        };
        let received = first.len() as u64;
        if received > limit {
            return Err(Failure::too_large(limit));
        }
        let (caller, is_admin) = record.caller();
        let class = class(declared.unwrap_or(received), is_admin);
        let whole = is_over(body).await?;
        let (bytes, permit) = match whole {
            Whole::Yes => {
                let permit = self.hold(caller, class, received, within).await?;
                (first, permit)
            }
            rest => {
                let reading = Incomplete {
                    caller,
                    is_admin,
                    limit,
                    within,
                    declared,
                    begun,
                };
                // Boxed because most bodies arrive in one piece.
                Box::pin(self.read_rest(body, reading, first, rest)).await?
            }
        };
        record.arrived(&bytes);
        let held = Arc::new(Held::new(permit, None));
        record.holds(&held);
        Ok(Held::with(&held, bytes))
    }

    /// Reads the rest after the first piece.
    async fn read_rest(
        &self,
        body: &mut Incoming,
        reading: Incomplete,
        first: Bytes,
        next_piece: Whole,
    ) -> Result<(Bytes, Permit), Failure> {
        let Incomplete {
            caller,
            is_admin,
            limit,
            within,
            declared,
            begun,
        } = reading;
        let mut received = first.len() as u64;
        let mut counted = received;
        let class_of = |bytes: u64| class(declared.unwrap_or(bytes), is_admin);
        let arrival = self
            .shares
            .arrive(caller, class_of(received), received, begun);
        let mut arrived = Arrived::One(first);
        // The announced length only counts against the caller's share.
        let announced = declared.unwrap_or(0).saturating_sub(received);
        let mut waited = Duration::ZERO;
        self.wait_for_room(
            within,
            &mut waited,
            received,
            arrival.promise(announced, begun),
        )
        .await?;
        let mut piece = match next_piece {
            Whole::Unknown(piece) => piece,
            Whole::Yes | Whole::No => None,
        };
        loop {
            let data = match piece.take() {
                Some(data) => data,
                None => {
                    let allowed = within + Duration::from_secs(received / BYTES_PER_SECOND_MIN);
                    match self
                        .next_in_time(body, &arrival, received, allowed + waited, begun)
                        .await?
                    {
                        Some(data) => data,
                        None => break,
                    }
                }
            };
            received += data.len() as u64;
            if received > limit {
                return Err(Failure::too_large(limit));
            }
            if received > counted {
                counted = (counted * 2)
                    .max(received)
                    .min(declared.unwrap_or(limit).max(received));
                let growing = arrival.grow(class_of(counted), counted, self.clock.now());
                self.wait_for_room(within, &mut waited, received, growing)
                    .await?;
            }
            arrived.push(data, counted);
        }
        match arrival.complete() {
            Ok(permit) => Ok((arrived.into_bytes(), permit)),
            Err(Evicted) => Err(evicted(received)),
        }
    }

    /// Returns the next piece, or an error if the time is over or others need the memory.
    async fn next_in_time(
        &self,
        body: &mut Incoming,
        arrival: &Arrival,
        received: u64,
        allowed: Duration,
        begun: Time,
    ) -> Result<Option<Bytes>, Failure> {
        loop {
            let passed = Duration::from_millis(self.clock.now().since(begun).0);
            let left = allowed.saturating_sub(passed);
            let piece = async {
                tokio::select! {
                    biased;
                    () = arrival.evicted() => Err(evicted(received)),
                    piece = next(body) => piece,
                }
            };
            if let Ok(piece) = tokio::time::timeout(left.min(SLOW_AFTER), piece).await {
                return piece;
            }
            if left <= SLOW_AFTER {
                return Err(too_slow(received, allowed));
            }
            let is_slow = received < (passed + SLOW_AFTER).as_secs() * BYTES_PER_SECOND_MIN;
            if is_slow && arrival.is_waited_for() {
                return Err(evicted(received));
            }
        }
    }

    /// Waits for memory, and adds the time to `waited`.
    async fn wait_for_room(
        &self,
        within: Duration,
        waited: &mut Duration,
        received: u64,
        room: impl Future<Output = Result<(), Evicted>>,
    ) -> Result<(), Failure> {
        let begun = self.clock.now();
        let result = tokio::time::timeout(within, room).await;
        *waited += Duration::from_millis(self.clock.now().since(begun).0);
        match result {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Evicted)) => Err(evicted(received)),
            Err(_) => Err(no_memory()),
        }
    }

    /// Reserves memory for data that the request refers to, in addition to its body. The request's share then covers both.
    pub async fn more(&self, bytes: usize) -> Result<Share, Failure> {
        let within = self.bounds.load().within;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let (caller, is_admin) = record::caller();
        let class = class(bytes, is_admin);
        let permit = self.hold(caller, class, bytes, within).await?;
        Ok(record::hold(Arc::new(Held::new(permit, record::held()))))
    }

    /// Reserves memory for a copy of the present request, if the caller's share has room.
    pub fn copy(&self, bytes: usize) -> Option<Share> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let (caller, is_admin) = record::caller();
        let class = class(bytes, is_admin);
        let now = self.clock.now();
        let permit = self.shares.try_hold(caller, class, bytes, now)?;
        Some(Share::apart(Held::new(permit, None)))
    }

    /// Waits for memory as long as a body may take.
    async fn hold(
        &self,
        caller: Caller,
        class: Class,
        bytes: u64,
        within: Duration,
    ) -> Result<Permit, Failure> {
        let now = self.clock.now();
        if let Some(permit) = self.shares.try_hold(caller, class, bytes, now) {
            return Ok(permit);
        }
        let waiting = Box::pin(self.shares.hold(caller, class, bytes, now));
        let held = tokio::time::timeout(within, waiting).await;
        held.map_err(|_| no_memory())
    }
}

/// A body that has arrived in part.
struct Incomplete {
    caller: Caller,
    is_admin: bool,
    limit: u64,
    within: Duration,
    declared: Option<u64>,
    begun: Time,
}

fn class(bytes: u64, is_admin: bool) -> Class {
    match bytes {
        ..=ADMIN_MAX if is_admin => Class::Admin,
        ..=SMALL_MAX => Class::Small,
        _ => Class::Large,
    }
}

type Polled = Option<Result<Frame<Bytes>, hyper::Error>>;

/// The data of a frame; `None` at the end of the body. Trailers count as empty data.
fn data_of(polled: Polled) -> Result<Option<Bytes>, Failure> {
    match polled {
        None => Ok(None),
        Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
        Some(Err(error)) => Err(Failure::invalid(
            None,
            format!("the body did not arrive completely: {error}"),
        )),
    }
}

async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
    data_of(body.frame().await)
}

/// The state of a body after its first piece.
enum Whole {
    Yes,
    No,
    /// There was another piece, and the end is not known yet.
    Unknown(Option<Bytes>),
}

/// Checks whether the body has ended, without waiting.
async fn is_over(body: &mut Incoming) -> Result<Whole, Failure> {
    if body.is_end_stream() {
        return Ok(Whole::Yes);
    }
    let polled =
        std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *body).poll_frame(context)));
    Ok(match polled.await {
        Poll::Pending => Whole::No,
        Poll::Ready(polled) => match data_of(polled)? {
            None => Whole::Yes,
            piece => Whole::Unknown(piece),
        },
    })
}

fn too_slow(received: u64, within: Duration) -> Failure {
    Failure::new(
        ErrorKind::TooSlow,
        "body_too_slow",
        format!(
            "only {received} bytes of the body arrived within {:.1} s (server.body_timeout)",
            within.as_secs_f64()
        ),
    )
}

fn evicted(received: u64) -> Failure {
    busy(format!(
        "the body was dropped after {received} bytes: it arrived slowly or was large, and other requests need the memory for bodies (server.bodies_memory); send it again"
    ))
}

fn no_memory() -> Failure {
    busy("no memory for the body: this caller's other bodies use its share of server.bodies_memory, or all callers together use all of it; send fewer large requests at the same time, or retry".to_owned())
}

fn busy(message: String) -> Failure {
    let failure = Failure::new(ErrorKind::Unavailable, "bodies_memory", message);
    failure.again_in(BUSY_RETRY)
}

#[cfg(test)]
#[path = "bodies/tests.rs"]
mod tests;
