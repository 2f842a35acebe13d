//! The right of one response to be stored when it is whole: its memory is set aside from the beginning, so that
//! the request knows at once whether it will be. Dropped before that, nothing is stored.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::memory::weight;
use super::service::StoredResponses;
use store::{StoredItem, StoredResponse};

/// What an answer takes beside its request, until its size is known.
const ANSWER_BYTES: usize = 8 << 10;
/// The end of an answer waits no longer for its response to be on disk.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);

/// Why a response may be lost at a restart, though its client wants it on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwritten {
    Late,
    Failed,
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unwritten::Late => write!(
                f,
                "the response was not on disk within {} s; it is in memory, and may be lost at a restart",
                WRITTEN_WITHIN.as_secs()
            ),
            Unwritten::Failed => f.write_str(
                "the response could not be written to disk, and the pool's log says why; it is in memory, and will be lost at a restart",
            ),
        }
    }
}

/// Of one response.
#[derive(Debug)]
pub(crate) struct Ticket {
    service: Arc<StoredResponses>,
    holder: Arc<str>,
    previous: Option<String>,
    input: Mutex<Vec<StoredItem>>,
    reserved: AtomicUsize,
    is_written: bool,
    /// Hears of the write, once the response is whole.
    receipt: Mutex<Option<oneshot::Receiver<bool>>>,
}

impl Ticket {
    /// `None`: there is no room for it.
    pub(super) fn new(
        service: &Arc<StoredResponses>,
        holder: &Arc<str>,
        previous: Option<String>,
        input: Vec<StoredItem>,
        is_requested: bool,
    ) -> Option<Ticket> {
        let bytes: usize = input.iter().map(|it| it.id.len() + it.item.len()).sum();
        let is_written = is_requested && service.is_writable(bytes);
        // Where it cannot be kept as requested, it is kept in memory if that costs no other holder anything.
        let bytes = weight(bytes + ANSWER_BYTES);
        let (room, now) = (service.room(), service.now());
        let has_room = service.with(|memory| memory.reserve(bytes, room, now));
        has_room.then(|| Ticket {
            service: Arc::clone(service),
            holder: Arc::clone(holder),
            previous,
            input: Mutex::new(input),
            reserved: AtomicUsize::new(bytes),
            is_written,
            receipt: Mutex::default(),
        })
    }

    /// Whether the response will be on disk.
    pub fn is_written(&self) -> bool {
        self.is_written
    }

    /// The response is whole: `response` is its JSON object with an empty output.
    pub fn keep(&self, id: String, response: String, output: Vec<StoredItem>) {
        self.release();
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let response = StoredResponse {
            id,
            holder: self.holder.to_string(),
            previous: self.previous.clone(),
            response,
            input: std::mem::take(&mut input),
            output,
        };
        let receipt = self.service.insert(response, self.is_written);
        *self.receipt.lock().unwrap_or_else(PoisonError::into_inner) = receipt;
    }

    /// Resolves when the response that was kept is on disk, where it is to be.
    pub async fn written(&self) -> Result<(), Unwritten> {
        let receipt = self
            .receipt
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(receipt) = receipt else {
            return Ok(());
        };
        match tokio::time::timeout(WRITTEN_WITHIN, receipt).await {
            // Without a word it was deleted meanwhile, by its own client.
            Ok(Ok(true) | Err(_)) => Ok(()),
            Ok(Ok(false)) => Err(Unwritten::Failed),
            Err(_) => Err(Unwritten::Late),
        }
    }

    fn release(&self) {
        let bytes = self.reserved.swap(0, Ordering::Relaxed);
        self.service.with(|memory| memory.release(bytes));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.release();
    }
}
