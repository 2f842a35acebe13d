//! The background responses that have not ended, in memory. Their requests are on disk.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::event_file::{self, KeptEvents};
use super::event_log::EventLog;
use super::turns::{Turns, units};
use edge::record::Record;
use pool::Time;
use store::BackgroundHead;

/// A background response that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub head: BackgroundHead,
    /// Events are kept for clients that read them.
    pub events: Option<Arc<EventLog>>,
    /// Ends the present run.
    pub stop: CancellationToken,
    /// The record of the present run.
    pub record: Option<Arc<Record>>,
    /// Runs that the pool could not serve, one after the other.
    pub tries: u32,
}

/// A response that waits for another run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    pub until: Time,
    pub runs: u32,
    pub cuts: u32,
    pub tries: u32,
}

impl Entry {
    fn new(head: BackgroundHead, events: Option<EventLog>) -> Entry {
        Entry {
            head,
            events: events.map(Arc::new),
            stop: CancellationToken::new(),
            record: None,
            tries: 0,
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
    /// The folder of the files of events.
    pub(super) dir: Option<PathBuf>,
    pub(super) turns: Turns,
}

impl Entries {
    /// Adds a response that waits, unless it is known, with the events that an earlier process has kept. Returns its entry.
    pub fn add(&mut self, head: BackgroundHead, kept: KeptEvents) -> Entry {
        if let Some(known) = self.by_id.get(&head.id) {
            return known.clone();
        }
        let dir = self.dir.as_ref();
        let path = dir.map(|dir| event_file::path(dir, &head.id));
        let events = head.is_streamed.then(|| EventLog::new(path, kept));
        let entry = Entry::new(head, events);
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

    /// Lets a response wait again, after its run has ended.
    pub fn pause(&mut self, id: &str, pause: Pause) {
        if let Some(entry) = self.by_id.get_mut(id) {
            entry.record = None;
            entry.head.runs = pause.runs;
            entry.head.cuts = pause.cuts;
            entry.tries = pause.tries;
            let (holder, units) = (entry.head.holder.clone(), entry.units());
            self.turns.pause(&holder, id, units, pause.until);
        }
    }

    /// Removes a response that has ended, unless it runs.
    pub fn remove_waiting(&mut self, id: &str) {
        if self
            .by_id
            .get(id)
            .is_some_and(|entry| entry.record.is_none())
        {
            self.remove(id);
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
            person: None,
            created: Time(1),
            runs: 0,
            cuts: 0,
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
        entries.add(head("a"), KeptEvents::default());
        // It is known, and does not wait twice.
        entries.add(head("a"), KeptEvents::default());
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
        let pause = Pause {
            until: Time(5),
            runs: 2,
            cuts: 1,
            tries: 3,
        };
        entries.pause("a", pause);
        assert!(entries.begin(Time(4), record).is_none());
        let again = entries.begin(Time(5), record).expect("begun");
        assert_eq!((again.head.runs, again.head.cuts, again.tries), (2, 1, 3));
        entries.remove_waiting("a");
        assert!(entries.find("key:1", "a").is_some(), "it runs");
        entries.remove("a");
        assert!(again.stop.is_cancelled() && entries.find("key:1", "a").is_none());
        // A run that ends after its removal does not add it again.
        entries.release(&again);
        entries.pause("a", pause);
        assert!(entries.begin(Time(9), record).is_none());
    }
}
