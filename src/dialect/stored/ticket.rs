//! Permission to store one response once it is complete. Its memory is reserved at the beginning, so the request knows early
//! whether it will be stored. If the ticket is dropped before, nothing is stored.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::memory::weight;
use super::service::StoredResponses;
use crate::background_run::BackgroundRun;
use store::{StoredItem, StoredResponse};

/// Memory reserved for a response in addition to its request, until its size is known.
const ANSWER_BYTES: usize = 8 << 10;
/// Longest time that the end of a response waits for the disk.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);

/// A response that may be lost at a restart although its client requested storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwritten {
    Late,
    Failed,
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unwritten::Late => write!(
                f,
                "the response was not written to disk within {} s; it is in memory and may be lost at a restart",
                WRITTEN_WITHIN.as_secs()
            ),
            Unwritten::Failed => f.write_str(
                "the response could not be written to disk (see the server log); it is in memory and will be lost at a restart",
            ),
        }
    }
}

/// The response or the conversation that a response continues.
#[derive(Clone, Debug, Default)]
pub(super) struct Continued {
    pub previous: Option<String>,
    pub conversation: Option<String>,
}

/// Permission to store one response.
#[derive(Debug)]
pub struct Ticket {
    service: Arc<StoredResponses>,
    holder: Arc<str>,
    continued: Continued,
    /// The run, if the response is a background response.
    background: Option<Arc<BackgroundRun>>,
    input: Mutex<Vec<StoredItem>>,
    reserved: AtomicUsize,
    is_written: bool,
    /// Receives the outcome of the write, once the response is complete.
    receipt: Mutex<Option<oneshot::Receiver<bool>>>,
}

impl Ticket {
    /// `None` if the memory is full.
    pub(super) fn new(
        service: &Arc<StoredResponses>,
        holder: &Arc<str>,
        continued: Continued,
        input: Vec<StoredItem>,
        is_requested: bool,
        background: Option<Arc<BackgroundRun>>,
    ) -> Option<Ticket> {
        let bytes: usize = input
            .iter()
            .map(|item| item.id.len() + item.item.len())
            .sum();
        let is_written = is_requested && service.is_writable(bytes);
        // If the response cannot be written to disk, it is kept in memory as long as there is room.
        let bytes = weight(bytes + ANSWER_BYTES);
        let (room, now) = (service.room(), service.now());
        let has_room = service.with(|memory| memory.reserve(bytes, room, now));
        has_room.then(|| Ticket {
            service: Arc::clone(service),
            holder: Arc::clone(holder),
            continued,
            background,
            input: Mutex::new(input),
            reserved: AtomicUsize::new(bytes),
            is_written,
            receipt: Mutex::default(),
        })
    }

    /// Returns true if the response will be written to disk.
    pub(crate) fn is_written(&self) -> bool {
        self.is_written
    }

    /// Stores the complete response, or gives it to the background run that then stores it. `response` is its JSON object with an
    /// empty output.
    pub fn keep(
        &self,
        id: String,
        last_event: Option<u64>,
        response: String,
        output: Vec<StoredItem>,
    ) {
        self.release();
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let response = StoredResponse {
            id,
            holder: self.holder.to_string(),
            previous: self.continued.previous.clone(),
            conversation: self.continued.conversation.clone(),
            last_event,
            response,
            input: std::mem::take(&mut input),
            output,
        };
        if let Some(run) = &self.background {
            return run.set_result(response);
        }
        let receipt = self.service.insert(response, self.is_written);
        *self.receipt.lock().unwrap_or_else(PoisonError::into_inner) = receipt;
    }

    /// Waits until the stored response is on disk, if it is to be written.
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
            // The sender is dropped if the client has deleted the response.
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
