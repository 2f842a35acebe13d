//! A request and its response, from the head to the last byte: its metrics, and its access log line, which is written however the
//! exchange ends.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use axum::body::{Body as AnyBody, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Version};
use hyper::body::{Body, Frame, SizeHint};
use serde_json::{Value, json};

use super::Edge;
use super::client::ClientAddress;
use super::connection_watch::Turn;
use super::record::Record;
use crate::operation::operation;
use crate::trace::request::{RequestTrace, TraceEnd};
use api_types::dto;
use controller::Clock;
use pool::Time;

/// HTTP/2 responses are handed out in pieces of this size, which shows whether the client takes them.
const PIECE_BYTES: usize = 64 << 10;
const PATH_BYTES_MAX: usize = 512;

/// Dropping it ends the request.
pub struct Exchange {
    edge: Arc<Edge>,
    clock: Clock,
    turn: Turn,
    pub record: Arc<Record>,
    /// The request head, if there is a log or a trace.
    head: Option<Head>,
    is_h2: bool,
    is_head_only: bool,
    status: Option<u16>,
    bytes_out: u64,
    first_byte: Option<Time>,
    is_complete: bool,
}

struct Head {
    client: IpAddr,
    method: String,
    path: String,
    version: Version,
}

impl Exchange {
    pub fn begin(
        edge: &Arc<Edge>,
        turn: Turn,
        clock: Clock,
        (id, trace): (HeaderValue, Option<Box<RequestTrace>>),
        parts: &Parts,
        client: ClientAddress,
    ) -> Exchange {
        let head = || Head {
            client: client.address,
            method: parts.method.as_str().chars().take(32).collect(),
            path: bounded(parts.uri.path()),
            version: parts.version,
        };
        let record = Record::new(id, Some(client), clock.now(), trace);
        record.with(|facts| facts.operation = operation(parts.uri.path()));
        Exchange {
            edge: Arc::clone(edge),
            clock,
            turn,
            head: (edge.access.is_some() || record.trace.is_some()).then(head),
            record: Arc::new(record),
            is_h2: parts.version == Version::HTTP_2,
            is_head_only: parts.method == axum::http::Method::HEAD,
            status: None,
            bytes_out: 0,
            first_byte: None,
            is_complete: false,
        }
    }

    /// Starts sending the response.
    pub fn respond(mut self, status: u16, body: AnyBody) -> Sent {
        self.status = Some(status);
        self.is_complete = self.is_head_only || body.is_end_stream();
        Sent {
            body,
            rest: Bytes::new(),
            exchange: self,
        }
    }

    fn line(&self, head: &Head) -> String {
        let now = self.clock.now();
        let begun = self.record.begun;
        let since = |time: Time| time.since(begun).0;
        let ended = match (self.status, self.is_complete) {
            (None, _) => "left",
            (Some(_), false) => "cut",
            (Some(_), true) => "whole",
        };
        let mut line = json!({
            "time": dto::at(begun),
            "id": self.record.id(),
            "client": head.client,
            "protocol": format!("{:?}", head.version),
            "method": head.method,
            "path": head.path,
            "status": self.status,
            "ended": ended,
            "bytes_in": self.record.bytes_in.load(Ordering::Relaxed),
            "bytes_out": self.bytes_out,
            "first_byte_ms": self.first_byte.map(since),
            "duration_ms": since(now),
        });
        self.record.with(|facts| {
            let mut add = |name: &str, value: Value| line[name] = value;
            if let Some((id, name)) = &facts.key {
                add("key", json!({"id": id.to_string(), "name": name}));
            }
            if let Some(model) = &facts.model {
                add("model", json!(&**model));
                add("waited_ms", json!(facts.waited_ms));
                add("prompt_tokens", json!(facts.prompt_tokens));
                add("completion_tokens", json!(facts.completion_tokens));
            }
            if let Some(prompt) = &facts.prompt {
                add("prompt", json!(prompt));
            }
        });
        line.to_string()
    }

    fn trace_end(&self, head: &Head) -> TraceEnd {
        self.record.with(|facts| TraceEnd {
            status: self.status,
            result_status: facts.result_status,
            is_complete: self.is_complete,
            path: head.path.clone(),
            request_id: self.record.id().to_owned(),
            key: facts.key.as_ref().map(|(id, _)| id.to_string()),
            model: facts.model.as_deref().map(str::to_owned),
            prompt_tokens: facts.prompt_tokens,
            completion_tokens: facts.completion_tokens,
        })
    }
}

fn bounded(path: &str) -> String {
    let mut end = path.len().min(PATH_BYTES_MAX);
    while !path.is_char_boundary(end) {
        end -= 1;
    }
    path[..end].to_owned()
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let (Some(head), Some(log)) = (&self.head, &self.edge.access) {
            log.write(self.line(head));
        }
        if let (Some(head), Some(trace)) = (&self.head, &self.record.trace) {
            trace.finish(|| self.trace_end(head));
        }
    }
}

/// The body of a response.
pub struct Sent {
    body: AnyBody,
    /// The part of a large piece that is not handed out yet.
    rest: Bytes,
    exchange: Exchange,
}

impl Sent {
    fn hand_out(&mut self, mut data: Bytes) -> Bytes {
        if self.exchange.is_h2 && data.len() > PIECE_BYTES {
            self.rest = data.split_off(PIECE_BYTES);
        }
        let exchange = &mut self.exchange;
        exchange.turn.handed(true);
        exchange.bytes_out += data.len() as u64;
        if exchange.first_byte.is_none() {
            exchange.first_byte = Some(exchange.clock.now());
        }
        data
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.exchange.turn.handed(false);
        let polled = match std::mem::take(&mut self.rest) {
            rest if rest.is_empty() => match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(polled) => polled,
            },
            rest => Some(Ok(Frame::data(rest))),
        };
        let frame = match polled {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => Some(Ok(Frame::data(self.hand_out(data)))),
                Err(frame) => Some(Ok(frame)),
            },
            other => other,
        };
        if frame.is_none() || self.is_end_stream() {
            self.exchange.is_complete = true;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        let mut sum = SizeHint::new();
        if let Some(upper) = hint.upper() {
            sum.set_upper(upper + rest);
        }
        sum.set_lower(hint.lower() + rest);
        sum
    }
}
