//! Follows the pool for `top`: the live view and the events, each from a separate stream. Reopens a stream that ends or is silent
//! for too long, for as long as `top` runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Sender;

use super::view::{Change, View, event_id};
use crate::error::CommandError;
use crate::responses::{EventList, EventView};
use client::{Client, ClientError, Stream, root_cause};

/// The server sends a keep-alive every 10 s.
const SILENCE_MAX: Duration = Duration::from_secs(25);
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Number of past events on the first screen.
const PAST_EVENTS: &str = "100";

/// News for the screen.
#[derive(Debug)]
pub enum News {
    View(Box<View>),
    Change(Box<Change>),
    Events(Vec<EventView>),
    /// The connection is lost, with the reason.
    Lost(String),
}

/// Opens the live view and returns its first picture. Called before the screen is taken over, to report a wrong address or key like
/// any other command.
///
/// # Errors
/// As `Client::stream`; `StreamEnded` if it ends before a picture.
pub async fn open(client: &Client) -> Result<(Stream, View), CommandError> {
    let mut stream = client.stream("admin/live", &[], None).await?;
    while let Some(event) = stream.message(Some(SILENCE_MAX)).await? {
        if event.name == "view" {
            let view = serde_json::from_str(&event.data).map_err(|source| ClientError::Shape {
                path: "admin/live".to_owned(),
                source,
            })?;
            return Ok((stream, view));
        }
    }
    Err(CommandError::StreamEnded {
        server: client.server().to_owned(),
    })
}

/// Forwards the stream's news, and reopens the stream when it ends. Returns when the receiver is closed.
pub async fn follow_view(client: Arc<Client>, mut stream: Stream, news: Sender<News>) {
    loop {
        let why = match pass_on(&mut stream, &news).await {
            Some(why) => why,
            None => return,
        };
        if news.send(News::Lost(why)).await.is_err() {
            return;
        }
        loop {
            tokio::time::sleep(RETRY_AFTER).await;
            let report = match open(&client).await {
                Ok((opened, view)) => {
                    stream = opened;
                    News::View(Box::new(view))
                }
                Err(failure) => News::Lost(reason(&failure)),
            };
            let is_open = matches!(report, News::View(_));
            if news.send(report).await.is_err() {
                return;
            }
            if is_open {
                break;
            }
        }
    }
}

/// Forwards news and returns the reason that the stream ended, or `None` if the receiver is closed.
async fn pass_on(stream: &mut Stream, news: &Sender<News>) -> Option<String> {
    loop {
        let event = match stream.message(Some(SILENCE_MAX)).await {
            Ok(Some(event)) => event,
            Ok(None) => return Some("the server ended the stream".to_owned()),
            Err(failure) => return Some(reason(&failure.into())),
        };
        let report = match event.name.as_str() {
            "view" => serde_json::from_str(&event.data).map(|view| News::View(Box::new(view))),
            "change" => {
                serde_json::from_str(&event.data).map(|change| News::Change(Box::new(change)))
            }
            _ => continue,
        };
        match report {
            Ok(report) => news.send(report).await.ok()?,
            Err(error) => return Some(format!("cannot read a change: {error}")),
        }
    }
}

/// The last events, oldest first.
///
/// # Errors
/// As `Client::get`.
pub async fn past_events(client: &Client) -> Result<Vec<EventView>, CommandError> {
    let response = client
        .get("admin/events", &[("limit", PAST_EVENTS)])
        .await?;
    Ok(response.read::<EventList>()?.events)
}

/// Forwards past and new events. Leaves it to `follow_view` to report a lost connection.
pub async fn follow_events(client: Arc<Client>, news: Sender<News>) {
    let mut last: Option<String> = None;
    loop {
        if last.is_none()
            && let Ok(events) = past_events(&client).await
        {
            last = events.last().map(event_id);
            if news.send(News::Events(events)).await.is_err() {
                return;
            }
        }
        let query = [("follow", "true")];
        if let Ok(mut stream) = client.stream("admin/events", &query, last.as_deref()).await {
            while let Ok(Some(event)) = stream.message(Some(SILENCE_MAX)).await {
                let Ok(view) = serde_json::from_str::<EventView>(&event.data) else {
                    continue;
                };
                last = event.id.or(last);
                if news.send(News::Events(vec![view])).await.is_err() {
                    return;
                }
            }
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// The failure with its last cause, in one line.
pub fn reason(failure: &CommandError) -> String {
    match root_cause(failure) {
        Some(cause) => format!("{failure}: {cause}"),
        None => failure.to_string(),
    }
}
