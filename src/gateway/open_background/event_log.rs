//! The events of a streamed background response, kept while it runs: clients read them from any number on. A file keeps them for the
//! next process.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::event_file::{self, EventFile, KeptEvents};

/// Largest size of the events of a response. The oldest ones are dropped beyond it.
const BYTES_MAX: usize = 4 << 20;
/// Size from which a file is replaced, to leave out dropped events.
const FILE_BYTES_MAX: u64 = 2 * BYTES_MAX as u64;
const COMMENT: &str = ": waiting for the model\n\n";
const LOST: &str =
    ": the events after this one are no longer kept; get the response without `stream`\n\n";

/// The events of a response.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    events: Mutex<Events>,
    changed: Notify,
    /// The file for the next process.
    path: Option<PathBuf>,
}

/// The file of a log.
#[derive(Debug, Default)]
enum FileState {
    /// It is created before the next run.
    #[default]
    Closed,
    Open(EventFile),
    /// It could not be written, and was removed.
    Failed,
}

#[derive(Debug, Default)]
struct Events {
    /// With their numbers, in order.
    kept: VecDeque<(u64, Bytes)>,
    bytes: usize,
    /// The number of the last event that was dropped.
    dropped: Option<u64>,
    /// Ends of the response that are being stored.
    holds: u32,
    /// The number of the last event if the store takes such an end. Events from this number on are hidden.
    held: Option<u64>,
    is_over: bool,
    file: FileState,
}

/// The next event for a reader.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Event(u64, Bytes),
    /// It does not exist yet.
    Later,
    /// It was dropped.
    Lost,
    Over,
}

impl Events {
    fn next_number(&self, first: u64) -> u64 {
        self.kept.back().map_or(first, |(number, _)| number + 1)
    }

    fn copy(&self) -> KeptEvents {
        KeptEvents {
            dropped: self.dropped,
            events: self.kept.iter().cloned().collect(),
        }
    }

    fn push(&mut self, number: u64, event: Bytes) {
        self.bytes += event.len();
        self.kept.push_back((number, event));
        while self.bytes > BYTES_MAX && self.kept.len() > 1 {
            if let Some((number, dropped)) = self.kept.pop_front() {
                self.bytes -= dropped.len();
                self.dropped = Some(number);
            }
        }
    }
}

impl EventLog {
    /// A log with a file, and the events that an earlier process has kept there.
    pub fn new(path: Option<PathBuf>, kept: KeptEvents) -> EventLog {
        let mut events = Events {
            dropped: kept.dropped,
            ..Events::default()
        };
        for (number, event) in kept.events {
            events.push(number, event);
        }
        EventLog {
            events: Mutex::new(events),
            path,
            ..EventLog::default()
        }
    }

    fn locked(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the events of a response that waits for its first run, unless it has events.
    pub fn announce(&self, announcement: [String; 2]) {
        let mut events = self.locked();
        if events.kept.is_empty() && events.dropped.is_none() && !events.is_over {
            for (number, event) in (0..).zip(announcement) {
                events.push(number, event.into());
            }
        }
        drop(events);
        self.changed.notify_waiters();
    }

    /// Adds an event of a run. Numbers rise. After the last event, it is left out.
    pub fn push(&self, number: u64, event: Bytes) {
        let mut events = self.locked();
        if !events.is_over {
            events.push(number, event);
        }
        drop(events);
        self.changed.notify_waiters();
    }

    /// Creates the file with the events so far. Afterwards a run may count on disk: without a file, the next process cannot know the
    /// numbers of its events.
    pub async fn save(&self) {
        let Some(path) = self.path.clone() else {
            return;
        };
        let kept = {
            let events = self.locked();
            if events.is_over || !matches!(events.file, FileState::Closed) {
                return;
            }
            events.copy()
        };
        self.write(move || EventFile::create(&path, &kept)).await;
    }

    /// Adds an event of a run, first to the file.
    pub async fn record(&self, number: u64, event: Bytes) {
        let (file, kept) = {
            let mut events = self.locked();
            let file = std::mem::take(&mut events.file);
            let is_long = matches!(&file, FileState::Open(file) if file.bytes() > FILE_BYTES_MAX);
            (file, is_long.then(|| events.copy()))
        };
        match file {
            FileState::Open(mut file) => {
                let event = event.clone();
                self.write(move || {
                    if let Some(kept) = kept {
                        file = file.replace(&kept)?;
                    }
                    file.append(number, &event)?;
                    Ok(file)
                })
                .await;
            }
            other => self.locked().file = other,
        }
        self.push(number, event);
    }

    /// Writes to the file. After an error, the events are kept in memory only.
    async fn write(&self, work: impl FnOnce() -> io::Result<EventFile> + Send + 'static) {
        let written = tokio::task::spawn_blocking(work).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        let mut events = self.locked();
        events.file = match written {
            Ok(file) if !events.is_over => FileState::Open(file),
            Ok(_) => {
                self.remove_file();
                FileState::Failed
            }
            Err(error) => {
                tracing::warn!(%error, "the events of a background response are in memory only");
                self.remove_file();
                FileState::Failed
            }
        };
    }

    fn remove_file(&self) {
        if let Some(path) = &self.path {
            event_file::remove(path);
        }
    }

    /// The number of the next event, or `first` if no event is known.
    pub fn next_number(&self, first: u64) -> u64 {
        self.locked().next_number(first)
    }

    /// Returns the number of the last event if the response ends now, which is `first` if no event is known. Readers wait there
    /// until [`EventLog::finish`] or [`EventLog::release`], and the run may still add events.
    pub fn hold(&self, first: u64) -> u64 {
        let mut events = self.locked();
        events.holds += 1;
        let next = events.next_number(first);
        *events.held.get_or_insert(next)
    }

    /// The number of the last event if another process has ended the response, with `stored` as its number there. `None` while this
    /// process stores an end.
    pub fn number_of_end(&self, stored: Option<u64>) -> Option<u64> {
        let events = self.locked();
        let next = events.next_number(0);
        (events.holds == 0).then(|| stored.map_or(next, |stored| stored.max(next)))
    }

    /// Withdraws a hold, because the response has not ended in this way.
    pub fn release(&self) {
        let mut events = self.locked();
        events.holds = events.holds.saturating_sub(1);
        if events.holds == 0 {
            events.held = None;
        }
        drop(events);
        self.changed.notify_waiters();
    }

    /// Adds the last event, and drops the events of the run from its number on.
    pub fn finish(&self, number: u64, event: Bytes) {
        let mut events = self.locked();
        if !events.is_over {
            while events.kept.back().is_some_and(|(last, _)| *last >= number) {
                let replaced = events.kept.pop_back();
                events.bytes -= replaced.map_or(0, |(_, event)| event.len());
            }
            events.push(number, event);
        }
        drop(events);
        self.end();
    }

    /// No more events follow.
    pub fn end(&self) {
        let mut events = self.locked();
        events.is_over = true;
        events.held = None;
        events.file = FileState::Closed;
        // Readers end afterwards.
        self.remove_file();
        drop(events);
        self.changed.notify_waiters();
    }

    fn after(&self, after: Option<u64>) -> Next {
        let events = self.locked();
        let is_lost = events
            .dropped
            .is_some_and(|dropped| after.is_none_or(|after| after < dropped));
        if is_lost {
            return Next::Lost;
        }
        let is_read = |(number, _): &(u64, Bytes)| after.is_some_and(|after| *number <= after);
        let place = events.kept.partition_point(is_read);
        let is_shown = |(number, _): &&(u64, Bytes)| events.held.is_none_or(|held| *number < held);
        match events.kept.get(place).filter(is_shown) {
            Some((number, event)) => Next::Event(*number, event.clone()),
            None if events.is_over => Next::Over,
            None => Next::Later,
        }
    }

    /// A body with the events after this number, until the last one or until `ending` fires. Writes a comment after each silence of
    /// this length.
    pub fn body(
        self: Arc<EventLog>,
        after: Option<u64>,
        silence: Duration,
        ending: CancellationToken,
    ) -> Body {
        let reader = (self, after, ending, false);
        let pieces = stream::unfold(reader, move |(log, after, ending, is_lost)| async move {
            if is_lost {
                return None;
            }
            loop {
                let mut changed = pin!(log.changed.notified());
                // Registered before the look, which then overlooks no change.
                changed.as_mut().enable();
                match log.after(after) {
                    Next::Event(number, event) => {
                        let reader = (log.clone(), Some(number), ending, false);
                        return Some((Ok::<Bytes, Infallible>(event), reader));
                    }
                    Next::Lost => {
                        let reader = (log.clone(), after, ending, true);
                        return Some((Ok(Bytes::from_static(LOST.as_bytes())), reader));
                    }
                    Next::Over => return None,
                    Next::Later => {}
                }
                tokio::select! {
                    () = &mut changed => {}
                    () = ending.cancelled() => return None,
                    () = tokio::time::sleep(silence) => {
                        let reader = (log.clone(), after, ending, false);
                        return Some((Ok(Bytes::from_static(COMMENT.as_bytes())), reader));
                    }
                }
            }
        });
        Body::from_stream(pieces)
    }
}

#[cfg(test)]
mod tests;
