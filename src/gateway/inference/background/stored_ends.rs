//! Stops the runs of responses that another process has ended. The rows of such responses no longer exist.

use std::convert::Infallible;
use std::time::Duration;

use crate::open_background::Entry;
use crate::state::App;
use dialect::responses::{last_event, shown_response};

/// Looks for the rows of all responses that run, with this time between two looks.
pub(super) async fn watch(app: &App, every: Duration) -> Infallible {
    loop {
        tokio::time::sleep(every).await;
        let running = app.backgrounds.running();
        if running.is_empty() {
            continue;
        }
        let ids: Vec<&str> = running.iter().map(|entry| entry.head.id.as_str()).collect();
        match app.handle.store().ended_backgrounds(&ids).await {
            Ok(ended) => {
                let is_ended = |entry: &&Entry| ended.contains(&entry.head.id);
                for entry in running.iter().filter(is_ended) {
                    stop(app, entry).await;
                }
            }
            Err(fault) => {
                tracing::warn!(%fault, "the background responses cannot be read; trying again");
            }
        }
    }
}

/// Stops the run of a response that has ended, and shows its last event unless it was deleted. A response that this process has just
/// ended gets the event that its own end would show.
async fn stop(app: &App, entry: &Entry) {
    let head = &entry.head;
    if let Some(log) = &entry.events {
        let found = match app.responses.find(&head.holder, &head.id).await {
            Ok(found) => found,
            Err(fault) => {
                tracing::warn!(%fault, "the end of a background response cannot be read; trying again");
                return;
            }
        };
        if let Some(found) = found {
            let Some(number) = log.number_of_end(found.last_event) else {
                return;
            };
            let bytes = found.bytes();
            let event = move || Ok(last_event(&shown_response(&found, false), number));
            let Ok(event) = app.reading.run(bytes, event).await else {
                return;
            };
            log.finish(number, event.into());
        }
    }
    app.backgrounds.with(|entries| entries.remove(&head.id));
}
