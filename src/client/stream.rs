//! Streams of events while they arrive.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use crate::error::ClientError;
use crate::events::{Event, Message, Parser};
use crate::http::Client;

/// A stream of server-sent events. Dropping it cancels the request.
pub struct Stream {
    bytes: BoxStream<'static, Result<Vec<u8>, reqwest::Error>>,
    parser: Parser,
    ready: std::vec::IntoIter<Event>,
    client: Client,
}

impl Stream {
    pub(crate) fn new(response: reqwest::Response, client: Client) -> Stream {
        let bytes = response.bytes_stream();
        Stream {
            bytes: bytes.map(|chunk| chunk.map(Vec::from)).boxed(),
            parser: Parser::default(),
            ready: Vec::new().into_iter(),
            client,
        }
    }

    /// Returns the next event or comment, or `None` if the server has ended the stream. Cancel safe.
    ///
    /// # Errors
    /// `Unreachable` if the connection broke, `EventTooLong` for an event beyond the limit.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(event) = self.ready.next() {
                return Ok(Some(event));
            }
            match self.bytes.next().await {
                Some(Ok(chunk)) => {
                    let events = self.parser.push(&chunk);
                    self.ready = events.map_err(|_| ClientError::EventTooLong)?.into_iter();
                }
                Some(Err(error)) => return Err(self.client.lost(error)),
                None => return Ok(None),
            }
        }
    }

    /// Returns the next event with data, or `None` if the server has ended the stream, or was silent for `silence_max`: a
    /// connection can disappear without an error.
    ///
    /// # Errors
    /// As `next`.
    pub async fn message(
        &mut self,
        silence_max: Option<Duration>,
    ) -> Result<Option<Message>, ClientError> {
        loop {
            let next = self.next();
            let event = match silence_max {
                None => next.await?,
                Some(limit) => match tokio::time::timeout(limit, next).await {
                    Ok(event) => event?,
                    Err(_) => return Ok(None),
                },
            };
            match event {
                Some(Event::Message(message)) => return Ok(Some(message)),
                Some(Event::Comment(_)) => {}
                None => return Ok(None),
            }
        }
    }
}
