//! The background responses that have not ended, in memory. Their requests are on disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::event_log::EventLog;
use super::turns::{Turns, units};
use dialect::responses::Settlement;
use edge::record::Record;
use pool::Time;
use store::BackgroundHead;

/// A background response that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub head: BackgroundHead,
    pub settlement: Settlement,
    /// Events are kept for clients that read them.
    pub events: Option<Arc<EventLog>>,
    /// Ends the present run.
    pub stop: CancellationToken,
    /// Fires once the response has ended and its result can be read.
    pub ended: CancellationToken,
    /// The record of the present run.
    pub record: Option<Arc<Record>>,
}

impl Entry {
    pub fn new(head: BackgroundHead) -> Entry {
        let events = head.is_streamed.then(Arc::default);
        Entry {
            head,
            settlement: Settlement::default(),
            events,
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
            record: None,
        }
    }

    /// Returns true if its request has a seat.
    pub fn has_seat(&self) -> bool {
        let record = self.record.as_ref();
        record.is_some_and(|record| record.with(|facts| facts.waited_ms.is_some()))
    }

    fn units(&self) -> u32 {
        units(self.head.is_streamed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub by_id: BTreeMap<String, Entry>,
    pub(super) turns: Turns,
}

impl Entries {
    /// Adds a response that waits, unless it is known. Returns its entry.
    pub fn add(&mut self, head: BackgroundHead) -> Entry {
        if let Some(known) = self.by_id.get(&head.id) {
            return known.clone();
        }
        let entry = Entry::new(head);
        let head = &entry.head;
        self.turns.push(&head.holder, &head.id, entry.units());
        self.by_id.insert(head.id.clone(), entry.clone());
        entry
    }

    /// A response of this holder.
    pub fn find(&self, holder: &str, id: &str) -> Option<&Entry> {
        let found = self.by_id.get(id);
        found.filter(|entry| entry.head.holder == holder)
    }

    /// The response that begins next, with `record` for its run.
    pub fn begin(&mut self, now: Time, record: impl FnOnce(&str) -> Arc<Record>) -> Option<Entry> {
        loop {
            let id = self.turns.next(now)?;
            if let Some(entry) = self.by_id.get_mut(&id) {
                entry.record = Some(record(&id));
                entry.stop = CancellationToken::new();
                return Some(entry.clone());
            }
        }
    }

    /// Releases what a run has taken that has ended.
    pub fn release(&mut self, entry: &Entry) {
        self.turns.release(&entry.head.holder, entry.units());
    }

    /// Lets a response wait again until this time, after its run has ended.
    pub fn pause(&mut self, id: &str, until: Time, has_begun: bool) {
        if let Some(entry) = self.by_id.get_mut(id) {
            entry.record = None;
            entry.head.runs += u32::from(has_begun);
            let (holder, units) = (entry.head.holder.clone(), entry.units());
            self.turns.pause(&holder, id, units, until);
        }
    }

    /// Removes a response that has ended.
    pub fn remove(&mut self, id: &str) {
        if let Some(entry) = self.by_id.remove(id) {
            self.turns.remove(&entry.head.holder, id);
            entry.stop.cancel();
            if let Some(events) = &entry.events {
                events.end();
            }
            entry.ended.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn head(id: &str) -> BackgroundHead {
        BackgroundHead {
            id: id.to_owned(),
            holder: "key:1".to_owned(),
            created: Time(1),
            runs: 0,
            is_streamed: false,
        }
    }

    fn record(id: &str) -> Arc<Record> {
        let id = HeaderValue::from_str(id).expect("an id");
        Arc::new(Record::new(id, None, Time(1), None))
    }

    #[test]
    fn a_response_begins_pauses_and_ends_for_its_holder_only() {
        let mut entries = Entries::default();
        entries.add(head("a"));
        // It is known, and does not wait twice.
        entries.add(head("a"));
        assert!(entries.find("key:2", "a").is_none());
        let begun = entries.begin(Time(1), record).expect("begun");
        assert!(!begun.has_seat());
        begun
            .record
            .as_ref()
            .unwrap()
            .with(|facts| facts.waited_ms = Some(3));
        assert!(entries.find("key:1", "a").unwrap().has_seat());
        entries.release(&begun);
        entries.pause("a", Time(5), true);
        assert!(entries.begin(Time(4), record).is_none());
        assert_eq!(entries.begin(Time(5), record).unwrap().head.runs, 1);
        let ended = entries.find("key:1", "a").unwrap().ended.clone();
        entries.remove("a");
        assert!(ended.is_cancelled() && entries.find("key:1", "a").is_none());
    }
}
