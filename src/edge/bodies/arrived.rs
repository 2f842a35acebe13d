//! The bytes of a body with its share of memory, held until the last copy is dropped.

use std::sync::Arc;

use axum::body::Bytes;

use crate::shares::Permit;

/// A share of memory, returned when dropped.
#[derive(Debug)]
pub struct Held {
    _permit: Permit,
    /// The share of the body itself, if this one was added later.
    _body: Option<Arc<Held>>,
}

impl Held {
    pub fn new(permit: Permit, body: Option<Arc<Held>>) -> Held {
        Held {
            _permit: permit,
            _body: body,
        }
    }

    /// Wraps the bytes with the share, held until the last copy is dropped.
    pub fn with(held: &Arc<Held>, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        let _held = Arc::clone(held);
        Bytes::from_owner(HeldBody { bytes, _held })
    }
}

/// A body with its share of memory.
struct HeldBody<B> {
    bytes: B,
    _held: Arc<Held>,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for HeldBody<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// The part of a body that has arrived. A single piece is kept; several pieces are copied together, because each would keep its
/// receive buffer alive.
pub(super) enum Arrived {
    One(Bytes),
    Many(Vec<u8>),
}

impl Arrived {
    /// `counted`: the memory that the body holds.
    pub fn push(&mut self, data: Bytes, counted: u64) {
        let all = match self {
            Arrived::Many(all) => all,
            Arrived::One(first) => {
                let first = std::mem::take(first);
                *self = Arrived::Many(first.to_vec());
                return self.push(data, counted);
            }
        };
        let capacity = usize::try_from(counted)
            .unwrap_or(0)
            .max(all.len() + data.len());
        all.reserve_exact(capacity - all.len());
        all.extend_from_slice(&data);
    }

    pub fn into_bytes(self) -> Bytes {
        match self {
            Arrived::One(bytes) => bytes,
            Arrived::Many(all) => all.into(),
        }
    }
}
