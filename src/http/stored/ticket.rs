//! The right of one response to be stored when it is whole: its memory is set aside from the beginning, so that
//! whoever asks knows at once whether it will be. Dropped before that, nothing is stored.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::memory::weight;
use super::service::StoredResponses;
use store::{StoredItem, StoredResponse};

/// What an answer takes beside its request, as long as nobody knows.
const ANSWER_BYTES: usize = 8 << 10;

/// Of one response.
#[derive(Debug)]
pub(crate) struct Ticket {
    service: Arc<StoredResponses>,
    holder: Arc<str>,
    previous: Option<String>,
    input: Mutex<Vec<StoredItem>>,
    reserved: AtomicUsize,
    is_written: bool,
}

impl Ticket {
    /// `None`: there is no room for it.
    pub(super) fn new(
        service: &Arc<StoredResponses>,
        holder: &Arc<str>,
        previous: Option<String>,
        input: Vec<StoredItem>,
        is_asked: bool,
    ) -> Option<Ticket> {
        let bytes: usize = input.iter().map(|it| it.id.len() + it.item.len()).sum();
        let is_written = is_asked && service.is_writable(bytes);
        // Where it cannot be kept as it is wanted, it is kept all the same where nobody pays for that.
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
        self.service.insert(response, self.is_written);
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
