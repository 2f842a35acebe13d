//! The stored responses of all holders: looked up in memory or on disk, written in batches, and deleted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use super::memory::{Memory, Room};
use config::LiveConfig;
use controller::Clock;
use pool::Time;
use store::{
    ChainBounds, ItemPlace, NamedConversation, ResponseBounds, Store, StoreError, StoredItem,
    StoredLink, StoredResponse,
};

/// Limits of a write, small enough to not delay an administrator's order that waits for the database.
const BATCH: usize = 32;
const BATCH_BYTES: usize = 4 << 20;

/// The store of responses for later turns.
pub struct StoredResponses {
    store: Arc<Store>,
    config: LiveConfig,
    clock: Clock,
    memory: Mutex<Memory>,
    /// Waiters for responses to be on disk, resolved by the write; removed if the response is deleted.
    receipts: Mutex<BTreeMap<String, oneshot::Sender<bool>>>,
    queued: Notify,
    /// Serializes writes, to write no response twice.
    writing: tokio::sync::Mutex<()>,
}

impl fmt::Debug for StoredResponses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredResponses(…)")
    }
}

/// A response of a conversation, in memory or on disk.
pub(super) enum Link {
    Memory(Arc<StoredResponse>),
    Disk(StoredLink),
}

impl StoredResponses {
    pub fn new(store: Arc<Store>, config: LiveConfig, clock: Clock) -> StoredResponses {
        StoredResponses {
            store,
            config,
            clock,
            memory: Mutex::default(),
            receipts: Mutex::default(),
            queued: Notify::new(),
            writing: tokio::sync::Mutex::default(),
        }
    }

    /// Returns true if responses are stored at all.
    pub fn is_on(&self) -> bool {
        self.config.get().state.responses.store
    }

    /// Writes queued responses until it is dropped.
    pub async fn keep_writing(self: Arc<StoredResponses>) {
        loop {
            self.queued.notified().await;
            self.write_all().await;
        }
    }

    /// Writes all queued responses.
    pub async fn write_all(&self) {
        let _turn = self.writing.lock().await;
        loop {
            let batch = self.with(|memory| memory.queued(BATCH, BATCH_BYTES));
            if batch.is_empty() {
                return;
            }
            match self.write(&batch).await {
                Ok(()) => {
                    self.settle(&batch, true);
                    for deleted in self.with(|memory| memory.written(&batch)) {
                        let gone = self.store.delete_response(&deleted.holder, &deleted.id);
                        if let Err(fault) = gone.await {
                            tracing::warn!(%fault, "could not remove a deleted response from disk");
                        }
                    }
                }
                Err(fault) => {
                    if !fault.is_logged_by_the_store() {
                        tracing::warn!(%fault, "could not write responses; keeping them in memory only");
                    }
                    let room = self.room();
                    self.with(|memory| memory.unwritten(&batch, room));
                    self.settle(&batch, false);
                }
            }
        }
    }

    async fn write(&self, batch: &[Arc<StoredResponse>]) -> Result<(), StoreError> {
        let bounds = ResponseBounds::from_config(&self.config.get().state.responses);
        let now = self.clock.now();
        let written = self.store.add_responses(batch, now, bounds).await;
        match written {
            // Another process has taken over, while responses that began here end here.
            Err(fault) if fault.is_closed() => {
                let other = self.store.open_again().await?;
                let written = other.add_responses(batch, now, bounds).await;
                other.close().await;
                written
            }
            written => written,
        }
    }

    /// Replaces a background response with its result, after the responses that it continues are on disk. Returns false if it has
    /// ended already.
    pub async fn end_background(&self, result: &StoredResponse) -> Result<bool, StoreError> {
        self.with(|memory| memory.queue_before(result));
        self.write_all().await;
        let bounds = ResponseBounds::from_config(&self.config.get().state.responses);
        let now = self.clock.now();
        match self.store.end_background(result, now, bounds).await {
            Err(fault) if fault.is_closed() => {
                let other = self.store.open_again().await?;
                let ended = other.end_background(result, now, bounds).await;
                other.close().await;
                ended
            }
            ended => ended,
        }
    }

    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> T {
        work(&mut self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn room(&self) -> Room {
        let config = self.config.get();
        let responses = &config.state.responses;
        Room {
            bytes: usize::try_from(responses.memory.0.0).unwrap_or(usize::MAX),
            per_holder: responses.per_key as usize,
            age: responses.unasked.0,
        }
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Returns true if a response of this size can currently be written to disk.
    pub(super) fn is_writable(&self, bytes: usize) -> bool {
        let most = self.config.get().state.responses.per_key_size.0.0;
        bytes as u64 <= most && self.store.trouble().is_none()
    }

    /// Largest number of responses in a conversation.
    pub(super) fn turns_max(&self) -> usize {
        const TURNS_MAX: u32 = 1000;
        let most = self.config.get().state.responses.per_key;
        most.min(TURNS_MAX) as usize
    }

    /// Adds a response. If it is to be written, the returned receiver reports whether it was.
    pub(super) fn insert(
        &self,
        response: StoredResponse,
        is_written: bool,
    ) -> Option<oneshot::Receiver<bool>> {
        let (room, now) = (self.room(), self.now());
        let receipt = is_written.then(|| {
            let (sender, receipt) = oneshot::channel();
            self.receipts().insert(response.id.clone(), sender);
            receipt
        });
        self.with(|memory| memory.insert(response, is_written, room, now));
        if is_written {
            self.queued.notify_one();
        }
        receipt
    }

    fn receipts(&self) -> MutexGuard<'_, BTreeMap<String, oneshot::Sender<bool>>> {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the outcome of a write to the waiters.
    fn settle(&self, responses: &[Arc<StoredResponse>], is_on_disk: bool) {
        let mut receipts = self.receipts();
        for response in responses {
            if let Some(sender) = receipts.remove(&response.id) {
                let _ = sender.send(is_on_disk);
            }
        }
    }

    /// Finds a response of this holder.
    pub async fn find(
        &self,
        holder: &str,
        id: &str,
    ) -> Result<Option<Arc<StoredResponse>>, StoreError> {
        if !self.is_on() {
            return Ok(None);
        }
        let now = self.now();
        match self.with(|memory| memory.find(holder, id, now)) {
            Some(found) => Ok(Some(found)),
            None => Ok(self.store.response(holder, id).await?.map(Arc::new)),
        }
    }

    /// Deletes a response of this holder. Returns false if it does not exist.
    pub async fn delete(&self, holder: &str, id: &str) -> Result<bool, StoreError> {
        if !self.is_on() {
            return Ok(false);
        }
        let was_here = self.with(|memory| memory.delete(holder, id));
        if was_here {
            self.receipts().remove(id);
        }
        let was_there = self.store.delete_response(holder, id).await?;
        Ok(was_here || was_there)
    }

    /// Returns the response and its predecessors, latest first, and the id of the first missing predecessor, if any. Exceeds the
    /// limits by at most one response.
    pub(super) async fn conversation(
        &self,
        holder: &str,
        id: &str,
        bounds: ChainBounds,
    ) -> Result<(Vec<Link>, Option<String>), StoreError> {
        let (mut links, mut bytes) = (Vec::new(), 0_usize);
        let mut next = Some(id.to_owned());
        while let Some(id) = next {
            if links.len() > bounds.responses || bytes > bounds.bytes {
                return Ok((links, None));
            }
            let now = self.now();
            if let Some(found) = self.with(|memory| memory.find(holder, &id, now)) {
                next = found.previous.clone();
                bytes += found.bytes();
                links.push(Link::Memory(found));
                continue;
            }
            let left = ChainBounds {
                responses: bounds.responses + 1 - links.len(),
                bytes: bounds.bytes - bytes,
            };
            let stored = self.store.conversation(holder, &id, left).await?;
            let Some(last) = stored.last() else {
                return Ok((links, Some(id)));
            };
            next = last.previous.clone();
            bytes += stored.iter().map(|link| link.bytes).sum::<usize>();
            links.extend(stored.into_iter().map(Link::Disk));
        }
        Ok((links, None))
    }

    /// The input and output items of these responses on disk, in this order.
    pub(super) async fn items_of(
        &self,
        holder: &str,
        responses: &[&str],
    ) -> Result<Vec<StoredItem>, StoreError> {
        self.store.items_of(holder, responses).await
    }

    /// A conversation of this holder that a client created, once the responses that ended before are on disk.
    pub(super) async fn named(
        &self,
        holder: &str,
        id: &str,
    ) -> Result<Option<NamedConversation>, StoreError> {
        self.write_all().await;
        self.store.named_conversation(holder, id).await
    }

    /// The items of a conversation of this holder that a client created.
    pub(super) async fn items_of_named(
        &self,
        holder: &str,
        id: &str,
    ) -> Result<Vec<StoredItem>, StoreError> {
        self.store.all_conversation_items(holder, id).await
    }

    pub(super) async fn places(
        &self,
        holder: &str,
        ids: &[&str],
    ) -> Result<Vec<ItemPlace>, StoreError> {
        if ids.is_empty() {
            Ok(Vec::new())
        } else {
            self.store.item_places(holder, ids).await
        }
    }

    pub(super) async fn items_at(
        &self,
        places: &[ItemPlace],
    ) -> Result<Vec<StoredItem>, StoreError> {
        if places.is_empty() {
            Ok(Vec::new())
        } else {
            self.store.items_at(places).await
        }
    }
}
