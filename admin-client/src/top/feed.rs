//! Follows the pool for `top`: the live view and the events, each from its own stream. A stream that ends or is silent
//! for too long is opened again, for as long as `top` runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Sender;

use super::view::{Change, View, event_id};
use crate::answers::{EventList, EventView};
use crate::client::{Client, Stream};
use crate::failure::Failure;

/// The server says every 10 s that a stream is alive.
const SILENCE_MAX: Duration = Duration::from_secs(25);
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Events of the past that the screen begins with.
const PAST_EVENTS: &str = "100";

/// News for the screen.
#[derive(Debug)]
pub enum News {
    View(Box<View>),
    Change(Box<Change>),
    Events(Vec<EventView>),
    /// There is no connection, and why.
    Lost(String),
}

/// Opens the live view and returns its first picture, so that a wrong address or key is reported before the screen
/// is taken over.
///
/// # Errors
/// As `Client::stream`; `StreamEnded` if it ends before a picture.
pub async fn open(client: &Client) -> Result<(Stream, View), Failure> {
    let mut stream = client.stream("admin/live", &[], None).await?;
    while let Some(event) = stream.next_within(Some(SILENCE_MAX)).await? {
        if event.name == "view" {
            let view = serde_json::from_str(&event.data).map_err(|source| Failure::Shape {
                path: "admin/live".to_owned(),
                source,
            })?;
            return Ok((stream, view));
        }
    }
    Err(Failure::StreamEnded {
        server: client.server().to_owned(),
    })
}

/// Passes on what the stream says, and opens it again when it has ended. Returns when nobody listens any more.
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

/// Why the stream ended; `None` if nobody listens any more.
async fn pass_on(stream: &mut Stream, news: &Sender<News>) -> Option<String> {
    loop {
        let event = match stream.next_within(Some(SILENCE_MAX)).await {
            Ok(Some(event)) => event,
            Ok(None) => return Some("the server ended the stream".to_owned()),
            Err(failure) => return Some(reason(&failure)),
        };
        let report = match event.name.as_str() {
            "view" => serde_json::from_str(&event.data).map(|it| News::View(Box::new(it))),
            "change" => serde_json::from_str(&event.data).map(|it| News::Change(Box::new(it))),
            _ => continue,
        };
        match report {
            Ok(report) => news.send(report).await.ok()?,
            Err(error) => return Some(format!("a change cannot be read: {error}")),
        }
    }
}

/// The last events, in the order in which they happened.
///
/// # Errors
/// As `Client::get`.
pub async fn past_events(client: &Client) -> Result<Vec<EventView>, Failure> {
    let answer = client
        .get("admin/events", &[("limit", PAST_EVENTS)])
        .await?;
    Ok(answer.read::<EventList>()?.events)
}

/// Passes on past and new events. The connection's state is for `follow_view` to say.
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
            while let Ok(Some(event)) = stream.next_within(Some(SILENCE_MAX)).await {
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
pub fn reason(failure: &Failure) -> String {
    let causes = std::iter::successors(std::error::Error::source(failure), |it| it.source());
    match causes.last() {
        Some(cause) => format!("{failure}: {cause}"),
        None => failure.to_string(),
    }
}
