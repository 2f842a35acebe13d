//! Stored responses in memory: some wait to be written to disk, others are never written. The latter are dropped when they are old
//! or when memory is needed, least recently used first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use pool::{Span, Time};
use store::{StoredItem, StoredResponse};

/// Smallest weight of a response.
const BYTES_MIN: usize = 4 << 10;
/// Divisor of the memory that one holder may use.
const HOLDERS_PART: usize = 4;

/// Limits of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub bytes: usize,
    /// Largest number of responses per holder.
    pub(crate) per_holder: usize,
    /// Time after which a response that is never written is dropped.
    pub age: Span,
}

#[derive(Debug)]
struct Entry {
    response: Arc<StoredResponse>,
    bytes: usize,
    used: Time,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits to be written, and cannot be dropped before.
    Queued,
    /// May be dropped; holds its place in the order of use.
    Idle(u64),
}

/// The droppable responses of one holder.
#[derive(Debug, Default)]
struct Holder {
    idle: BTreeMap<u64, String>,
    bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    entries: BTreeMap<String, Entry>,
    /// Maps each item to its response, the latest if there are several.
    items: BTreeMap<String, String>,
    idle: BTreeMap<u64, String>,
    holders: BTreeMap<String, Holder>,
    queue: VecDeque<String>,
    bytes: usize,
    last_use: u64,
}

/// The weight of a response of this size.
pub(super) fn weight(bytes: usize) -> usize {
    bytes.max(BYTES_MIN)
}

impl Memory {
    /// Reserves memory for a response in progress. Returns false if the memory is full.
    pub fn reserve(&mut self, bytes: usize, room: Room, now: Time) -> bool {
        self.forget(room, now);
        if bytes > room.bytes {
            return false;
        }
        while self.bytes + bytes > room.bytes {
            if !self.drop_first_idle() {
                return false;
            }
        }
        self.bytes += bytes;
        true
    }

    pub fn release(&mut self, bytes: usize) {
        self.bytes -= bytes.min(self.bytes);
    }

    /// Adds a response. If it is to be written, the responses that it continues are written too.
    pub fn insert(&mut self, response: StoredResponse, is_written: bool, room: Room, now: Time) {
        let bytes = weight(response.bytes());
        let (id, holder) = (response.id.clone(), response.holder.clone());
        for item in response.input.iter().chain(&response.output) {
            self.items.insert(item.id.clone(), id.clone());
        }
        if is_written {
            self.queue_before(&response);
        }
        let entry = Entry {
            response: Arc::new(response),
            bytes,
            used: now,
            state: State::Queued,
        };
        self.bytes += bytes;
        self.entries.insert(id.clone(), entry);
        if is_written {
            self.queue.push_back(id)
        } else {
            self.make_idle(&id);
            self.bound(&holder, room);
        }
        while self.bytes > room.bytes && self.drop_first_idle() {}
    }

    /// Queues the responses that this one continues before it.
    pub fn queue_before(&mut self, response: &StoredResponse) {
        let mut before = Vec::new();
        let mut next = response.previous.clone();
        while let Some(id) = next {
            let found = self.entries.get(&id);
            let Some(entry) = found.filter(|entry| entry.response.holder == response.holder) else {
                break;
            };
            next = entry.response.previous.clone();
            if matches!(entry.state, State::Idle(_)) {
                before.push(id);
            }
        }
        for id in before.into_iter().rev() {
            self.take_out_of_idle(&id);
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.state = State::Queued;
            }
            self.queue.push_back(id);
        }
    }

    /// Returns the response and marks it as used.
    pub fn find(&mut self, holder: &str, id: &str, now: Time) -> Option<Arc<StoredResponse>> {
        let found = self.entries.get_mut(id);
        let entry = found.filter(|entry| entry.response.holder == holder)?;
        entry.used = now;
        let response = Arc::clone(&entry.response);
        if matches!(entry.state, State::Idle(_)) {
            self.make_idle(id);
        }
        Some(response)
    }

    pub fn item(&mut self, holder: &str, id: &str, now: Time) -> Option<StoredItem> {
        let response = self.items.get(id)?.clone();
        let response = self.find(holder, &response, now)?;
        let mut items = response.input.iter().chain(&response.output);
        items.find(|item| item.id == id).cloned()
    }

    /// The next responses to write, oldest first. They stay queued until written.
    pub fn queued(&self, number: usize, bytes_max: usize) -> Vec<Arc<StoredResponse>> {
        let mut bytes = 0;
        let queued = self.queue.iter().filter_map(|id| self.entries.get(id));
        let few = queued.take(number).take_while(|entry| {
            let is_first = bytes == 0;
            bytes += entry.bytes;
            is_first || bytes <= bytes_max
        });
        few.map(|entry| Arc::clone(&entry.response)).collect()
    }

    /// Removes responses that are now on disk. Returns the responses that were deleted during the write.
    pub fn written<'a>(&mut self, written: &'a [Arc<StoredResponse>]) -> Vec<&'a StoredResponse> {
        let was_deleted =
            |response: &&Arc<StoredResponse>| !self.entries.contains_key(&response.id);
        let deleted = written
            .iter()
            .filter(was_deleted)
            .map(Arc::as_ref)
            .collect();
        for response in written {
            self.remove(&response.id);
        }
        deleted
    }

    /// Keeps responses that could not be written in memory only.
    pub fn unwritten(&mut self, responses: &[Arc<StoredResponse>], room: Room) {
        for response in responses {
            self.queue.retain(|id| *id != response.id);
            if self.entries.contains_key(&response.id) {
                self.make_idle(&response.id);
                self.bound(&response.holder, room);
            }
        }
    }

    /// Deletes a response of this holder. Returns false if it is not in memory.
    pub fn delete(&mut self, holder: &str, id: &str) -> bool {
        let found = self.entries.get(id);
        let is_theirs = found.is_some_and(|entry| entry.response.holder == holder);
        if is_theirs {
            self.remove(id);
        }
        is_theirs
    }

    /// Drops responses that are too old.
    fn forget(&mut self, room: Room, now: Time) {
        while let Some((_, id)) = self.idle.first_key_value() {
            let is_old = |entry: &Entry| now.since(entry.used) >= room.age;
            if !self.entries.get(id).is_some_and(is_old) {
                break;
            }
            self.drop_first_idle();
        }
    }

    fn bound(&mut self, holder: &str, room: Room) {
        while let Some(all) = self.holders.get(holder) {
            let fits = all.idle.len() <= room.per_holder && all.bytes <= room.bytes / HOLDERS_PART;
            let Some((_, id)) = all.idle.first_key_value().filter(|_| !fits) else {
                break;
            };
            let id = id.clone();
            self.remove(&id);
        }
    }

    fn drop_first_idle(&mut self) -> bool {
        let first = self.idle.first_key_value().map(|(_, id)| id.clone());
        first.is_some_and(|id| {
            self.remove(&id);
            true
        })
    }

    /// Makes the response the most recently used droppable one.
    fn make_idle(&mut self, id: &str) {
        self.take_out_of_idle(id);
        self.last_use += 1;
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.state = State::Idle(self.last_use);
        let holder = self
            .holders
            .entry(entry.response.holder.clone())
            .or_default();
        holder.idle.insert(self.last_use, id.to_owned());
        holder.bytes += entry.bytes;
        self.idle.insert(self.last_use, id.to_owned());
    }

    fn take_out_of_idle(&mut self, id: &str) {
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        let State::Idle(place) = entry.state else {
            return;
        };
        self.idle.remove(&place);
        if let Some(holder) = self.holders.get_mut(&entry.response.holder) {
            holder.idle.remove(&place);
            holder.bytes -= entry.bytes.min(holder.bytes);
            if holder.idle.is_empty() {
                self.holders.remove(&entry.response.holder);
            }
        }
    }

    fn remove(&mut self, id: &str) {
        self.take_out_of_idle(id);
        let Some(entry) = self.entries.remove(id) else {
            self.queue.retain(|queued| queued != id);
            return;
        };
        if entry.state == State::Queued {
            // Usually found near the front.
            if let Some(place) = self.queue.iter().position(|queued| queued == id) {
                self.queue.remove(place);
            }
        }
        self.release(entry.bytes);
        for item in entry.response.input.iter().chain(&entry.response.output) {
            if self.items.get(&item.id).is_some_and(|owner| owner == id) {
                self.items.remove(&item.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room {
        bytes: 8 * BYTES_MIN,
        per_holder: 100,
        age: Span::from_secs(10),
    };

    fn response(id: &str, holder: &str, previous: Option<&str>) -> StoredResponse {
        StoredResponse {
            id: id.to_owned(),
            holder: holder.to_owned(),
            previous: previous.map(str::to_owned),
            conversation: None,
            last_event: None,
            response: "{}".to_owned(),
            input: Vec::new(),
            output: vec![StoredItem {
                id: format!("out_{id}"),
                item: format!("{{\"of\":\"{id}\"}}"),
            }],
        }
    }

    fn ids(responses: &[Arc<StoredResponse>]) -> Vec<&str> {
        responses
            .iter()
            .map(|response| response.id.as_str())
            .collect()
    }

    #[test]
    fn an_unwritten_response_is_found_only_by_its_holder_until_it_expires_or_is_evicted() {
        let mut memory = Memory::default();
        memory.insert(response("a", "k1", None), false, ROOM, Time(0));
        memory.insert(response("b", "k1", None), false, ROOM, Time(1));
        assert!(memory.find("k2", "a", Time(1)).is_none());
        assert!(memory.item("k2", "out_a", Time(1)).is_none());
        let item = memory.item("k1", "out_a", Time(5)).unwrap();
        assert_eq!(item.item, "{\"of\":\"a\"}");
        // Of the three responses in one holder's quarter, `b` was used least recently and is dropped.
        memory.insert(response("c", "k1", None), false, ROOM, Time(6));
        assert!(memory.find("k1", "b", Time(6)).is_none());
        assert!(memory.find("k1", "a", Time(6)).is_some());
        assert!(memory.reserve(6 * BYTES_MIN, ROOM, Time(7)));
        assert!(memory.reserve(BYTES_MIN, ROOM, Time(7)));
        assert!(memory.find("k1", "c", Time(7)).is_none());
        assert!(!memory.reserve(2 * BYTES_MIN, ROOM, Time(7)));
        memory.release(8 * BYTES_MIN);
        memory.insert(response("d", "k1", None), false, ROOM, Time(8));
        assert!(memory.reserve(1, ROOM, Time(10_008)));
        assert!(memory.find("k1", "d", Time(10_008)).is_none(), "it is old");
        assert!(memory.holders.is_empty() && memory.items.is_empty());
    }

    #[test]
    fn a_queued_response_is_kept_until_written_together_with_its_predecessors() {
        let mut memory = Memory::default();
        memory.insert(response("a", "k1", None), false, ROOM, Time(0));
        memory.insert(response("b", "k1", Some("a")), false, ROOM, Time(0));
        memory.insert(response("x", "k2", Some("a")), true, ROOM, Time(0));
        assert_eq!(ids(&memory.queued(9, usize::MAX)), ["x"], "not another's");
        memory.insert(response("c", "k1", Some("b")), true, ROOM, Time(0));
        let queued = memory.queued(9, usize::MAX);
        assert_eq!(ids(&queued), ["x", "a", "b", "c"]);
        assert_eq!(memory.queued(9, 1).len(), 1, "one at least");
        assert!(!memory.reserve(ROOM.bytes, ROOM, Time(99_000)));
        assert!(memory.find("k1", "a", Time(99_000)).is_some());
        assert!(!memory.delete("k2", "b") && memory.delete("k1", "b"));
        let deleted = memory.written(&queued);
        assert_eq!(deleted[0].id, "b", "it was deleted while it was written");
        assert!(memory.queued(9, usize::MAX).is_empty());
        assert_eq!(memory.bytes, 0);
    }

    #[test]
    fn a_response_that_could_not_be_written_is_kept_for_a_while() {
        let mut memory = Memory::default();
        memory.insert(response("a", "k1", None), true, ROOM, Time(0));
        let queued = memory.queued(9, usize::MAX);
        memory.unwritten(&queued, ROOM);
        assert!(memory.queued(9, usize::MAX).is_empty());
        assert!(memory.find("k1", "a", Time(1)).is_some());
        assert!(memory.reserve(ROOM.bytes, ROOM, Time(2)), "it may go");
        assert!(memory.find("k1", "a", Time(3)).is_none());
    }
}
