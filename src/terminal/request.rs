//! One request and its response on the screen: the wait on the status line, the text as it arrives, and its end.

use std::pin::pin;
use std::time::Duration;

use client::Event;
use serde_json::Value;
use tokio::time::sleep;

use super::error::CommandError;
use super::pool_client::PoolClient;
use super::quantity::seconds;
use super::queue_status::{Notice, QueueStatus, read};
use super::response::{Data, ModelResponse};
use super::screen::Screen;

/// Interval between updates of the status line.
const TICK: Duration = Duration::from_millis(500);

const CLOSED: &str = "the server closed the connection before the answer was complete";

/// The display options of a response.
#[derive(Clone, Copy, Debug)]
pub struct DisplayOptions {
    /// Show the text as it arrives instead of when it is complete.
    pub is_streamed: bool,
    pub is_verbose: bool,
}

/// Sends a request and shows the response. `stop` ends it early; the returned response has what has arrived.
pub async fn ask(
    client: &PoolClient,
    body: &Value,
    screen: &mut Screen,
    manner: DisplayOptions,
    stop: impl Future<Output = ()>,
) -> Result<ModelResponse, CommandError> {
    let mut response = ModelResponse::default();
    let outcome = receive(client, body, screen, manner, stop, &mut response).await;
    if !manner.is_streamed && outcome.is_ok() {
        screen.reasoning(&response.reasoning)?;
        screen.text(&response.text)?;
    }
    screen.end_response()?;
    outcome?;
    if let Some(ending) = response.ending() {
        screen.aside(ending);
    }
    if manner.is_verbose {
        screen.aside(&response.figures());
    }
    Ok(response)
}

async fn receive(
    client: &PoolClient,
    body: &Value,
    screen: &mut Screen,
    manner: DisplayOptions,
    stop: impl Future<Output = ()>,
    response: &mut ModelResponse,
) -> Result<(), CommandError> {
    let clock = Clock::start();
    let mut stop = pin!(stop);
    let mut waiting: Option<QueueStatus> = None;
    let mut opening = pin!(client.stream(body));
    let mut stream = loop {
        tokio::select! {
            biased;
            () = &mut stop => {
                response.is_interrupted = true;
                return Ok(());
            }
            opened = &mut opening => break opened?,
            () = sleep(TICK) => screen.status(&status(waiting.as_ref(), clock.passed())),
        }
    };
    loop {
        let event = tokio::select! {
            biased;
            () = &mut stop => {
                response.is_interrupted = true;
                return Ok(());
            }
            event = stream.next() => event?,
            () = sleep(TICK) => {
                if response.pieces == 0 || !manner.is_streamed {
                    screen.status(&status(waiting.as_ref(), clock.passed()));
                }
                continue;
            }
        };
        let data = match event {
            Some(Event::Comment(comment)) => {
                match read(&comment) {
                    Some(Notice::Waiting(now)) => {
                        screen.status(&now.line(clock.passed()));
                        waiting = Some(now);
                    }
                    Some(Notice::Seated { waited }) => {
                        response.waited = Some(waited);
                        waiting = None;
                    }
                    None => {}
                }
                continue;
            }
            Some(Event::Message(message)) => message.data,
            // Some servers omit `[DONE]`.
            None if response.finish.is_some() => return Ok(()),
            None => {
                return Err(CommandError::Cut {
                    message: CLOSED.to_owned(),
                });
            }
        };
        match response.take(&data, clock.passed()) {
            Data::Piece(piece) if manner.is_streamed => {
                screen.reasoning(&piece.reasoning)?;
                screen.text(&piece.text)?;
            }
            Data::Piece(_) => {}
            Data::End => return Ok(()),
            Data::Error(message) => return Err(CommandError::Cut { message }),
        }
    }
}

/// Sends a request without showing the response.
pub async fn quietly(client: &PoolClient, body: &Value) -> Result<ModelResponse, CommandError> {
    let clock = Clock::start();
    let mut response = ModelResponse::default();
    let mut stream = client.stream(body).await?;
    loop {
        let data = match stream.next().await? {
            Some(Event::Comment(comment)) => {
                if let Some(Notice::Seated { waited }) = read(&comment) {
                    response.waited = Some(waited);
                }
                continue;
            }
            Some(Event::Message(message)) => message.data,
            None if response.finish.is_some() => return Ok(response),
            None => {
                return Err(CommandError::Cut {
                    message: CLOSED.to_owned(),
                });
            }
        };
        match response.take(&data, clock.passed()) {
            Data::Piece(_) => {}
            Data::End => return Ok(response),
            Data::Error(message) => return Err(CommandError::Cut { message }),
        }
    }
}

/// Shows the elapsed time of a request on the status line.
pub async fn with_status<T>(screen: &mut Screen, work: impl Future<Output = T>) -> T {
    let clock = Clock::start();
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => {
                screen.erase_status();
                return done;
            }
            () = sleep(TICK) => screen.status(&status(None, clock.passed())),
        }
    }
}

fn status(waiting: Option<&QueueStatus>, passed: Duration) -> String {
    match waiting {
        Some(waiting) => waiting.line(passed),
        None => format!("waiting for the answer, {} so far", seconds(passed)),
    }
}

/// The time since a request was sent.
struct Clock(std::time::Instant);

impl Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the wait of a person is measured only here"
    )]
    fn start() -> Clock {
        Clock(std::time::Instant::now())
    }

    fn passed(&self) -> Duration {
        self.0.elapsed()
    }
}
