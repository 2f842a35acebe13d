//! `events` and `logs`, as a list of past entries or as a stream of new ones. An interrupted event stream continues after the last
//! event received, which loses none. A log stream ends with its engine.

use std::time::Duration;

use crate::cli::EventsArgs;
use crate::error::CommandError;
use crate::render::events as text;
use crate::render::quantity::{Clock, label};
use crate::responses::{EventList, EventView, LogLine, LogList};
use crate::screen::note;
use crate::session::Session;
use crate::style::clean;
use client::{ClientError, Stream};

/// Attempts to reconnect a lost stream, one second apart.
const ATTEMPTS_MAX: u32 = 5;

/// The filters of the request.
fn query(args: &EventsArgs) -> Vec<(&str, &str)> {
    let pairs = [
        ("model", &args.model),
        ("kind", &args.kind),
        ("reason", &args.reason),
        ("by", &args.by),
        ("group", &args.group),
        ("since", &args.since),
        ("until", &args.until),
    ];
    pairs
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_deref()?)))
        .collect()
}

pub async fn events(session: &Session, args: &EventsArgs) -> Result<(), CommandError> {
    let mut last = None;
    if !args.follow || args.limit.is_some() {
        last = past_events(session, args).await?;
    }
    if args.follow {
        return follow_events(session, args, last).await;
    }
    Ok(())
}

/// Prints past events and returns the id of the last one, after which the stream of new events begins.
async fn past_events(session: &Session, args: &EventsArgs) -> Result<Option<String>, CommandError> {
    let limit = args.limit.unwrap_or(100).to_string();
    let mut query = query(args);
    query.push(("limit", &limit));
    let response = session.client.get("admin/events", &query).await?;
    let list: EventList = response.read()?;
    let last = list
        .events
        .last()
        .and_then(|event| event.id.as_ref())
        .or(list.next_after.as_ref())
        .filter(|id| !id.is_null())
        .map(label);
    let style = session.screen.style;
    match (session.json, args.follow) {
        (true, false) => session.screen.print(&response.text)?,
        // With --follow, past events too are one object per line.
        (true, true) => {
            let body: serde_json::Value = response.read()?;
            for event in body["events"].as_array().into_iter().flatten() {
                session.screen.print(&event.to_string())?;
            }
        }
        (false, _) if list.events.is_empty() && !args.follow => {
            session.screen.print("No events.")?
        }
        (false, _) => {
            for event in &list.events {
                session
                    .screen
                    .print(&text::event(event, Clock::read(), style))?;
            }
        }
    }
    Ok(last)
}

async fn follow_events(
    session: &Session,
    args: &EventsArgs,
    mut last: Option<String>,
) -> Result<(), CommandError> {
    let mut query = query(args);
    query.push(("follow", "true"));
    let mut attempts = 0;
    loop {
        let opened = session
            .client
            .stream("admin/events", &query, last.as_deref())
            .await;
        match opened {
            Ok(mut stream) => {
                // A broken stream is reopened, like a stream that the server has ended.
                while let Ok(Some(event)) = stream.message(None).await {
                    attempts = 0;
                    last = event.id.or(last);
                    print_event(session, &event.data)?;
                }
            }
            // Retry only if the server was reachable before.
            Err(ClientError::Unreachable { .. }) if attempts > 0 && attempts < ATTEMPTS_MAX => {}
            Err(failure) => return Err(failure.into()),
        }
        attempts += 1;
        if attempts > ATTEMPTS_MAX {
            return Err(CommandError::StreamEnded {
                server: session.client.server().to_owned(),
            });
        }
        note("The event stream has ended; reconnecting.");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn print_event(session: &Session, data: &str) -> Result<(), CommandError> {
    if session.json {
        return session.screen.print(data);
    }
    let line = match serde_json::from_str::<EventView>(data) {
        Ok(event) => text::event(&event, Clock::read(), session.screen.style),
        Err(_) => clean(data),
    };
    session.screen.print(&line)
}

pub async fn logs(
    session: &Session,
    model: &str,
    replica: Option<&str>,
    tail: u32,
    follow: bool,
) -> Result<(), CommandError> {
    let tail = tail.to_string();
    let mut query = vec![("model", model), ("tail", tail.as_str())];
    query.extend(replica.map(|replica| ("replica", replica)));
    let style = session.screen.style;
    if follow {
        query.push(("follow", "true"));
        let stream = session.client.stream("admin/logs", &query, None).await?;
        return follow_logs(session, stream).await;
    }
    let response = session.client.get("admin/logs", &query).await?;
    session.show(&response, |list: &LogList| match list.lines.as_slice() {
        [] => "The engines of this model have not written any output yet.\n".to_owned(),
        lines => lines
            .iter()
            .map(|line| text::log_line(line, style) + "\n")
            .collect(),
    })
}

async fn follow_logs(session: &Session, mut stream: Stream) -> Result<(), CommandError> {
    while let Some(event) = stream.message(None).await? {
        if session.json {
            session.screen.print(&event.data)?;
            continue;
        }
        let line = match serde_json::from_str::<LogLine>(&event.data) {
            Ok(line) => text::log_line(&line, session.screen.style),
            Err(_) => clean(&event.data),
        };
        session.screen.print(&line)?;
    }
    Ok(())
}
