//! What clients and engines send, read as the gateway reads it, for fuzzers alone. It serves nothing, and says
//! by a panic when something that must hold does not.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};
use futures_util::FutureExt;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::auth::cross_site;
use crate::dialect::{Dialect, Reading, ReasoningRequest, Seal, Sealer, Teller, Telling, ollama};
use crate::edge::ClientAddress;
use crate::inference::answer::as_chat::AsChat;
use crate::inference::answer::assembler::Assembler;
use crate::inference::answer::events::{data_of, event_end};
use crate::inference::answer::usage::usage_of;
use crate::inference::request::body::{Fields, Scanned};
use crate::inference::request::form::Form;
use crate::inference::request::outgoing::{CHAT, COMPLETIONS, Wishes, outgoing, renamed};
use crate::inference::request::request_fields::Fate;
use catalog::{Generation, ReasoningFields};
use config::Network;
use controller::Clock;
use pool::KeyId;

/// A client's body: what routing reads of it, and its fields.
pub fn body(bytes: &[u8]) {
    let Ok(scanned) = Scanned::read(Bytes::copy_from_slice(bytes)) else {
        return;
    };
    assert!(!scanned.model.is_empty());
    // What routing can read, everything after it can read too.
    let fields = Fields::read(&scanned.body).expect("an object that was scanned");
    assert!(fields.get("model").is_some());
    let renamed =
        renamed(&scanned.body, "other", |_, _| Ok(Fate::Goes)).expect("an object that was scanned");
    let renamed = Fields::read(&renamed).expect("what the pool writes is JSON");
    assert_eq!(text_of(&renamed, "model"), Some("\"other\""));
}

/// A client's body on its way to an engine.
pub fn to_engine(bytes: &[u8], generation: &Generation) {
    let Ok(scanned) = Scanned::read(Bytes::copy_from_slice(bytes)) else {
        return;
    };
    let fields = Fields::read(&scanned.body).expect("an object that was scanned");
    for path in [CHAT, COMPLETIONS] {
        let room = Some(Value::from(512));
        let fate = |name: &str, _: &RawValue| {
            if name == "store" {
                Ok(Fate::Ignored)
            } else {
                Ok(Fate::Goes)
            }
        };
        let wishes = Wishes {
            reasoning: ReasoningRequest::default(),
            fields_of: &|_| ReasoningFields::default(),
            continuous_usage: true,
            plain: false,
            plain_prompts: false,
            refuses_tools: false,
            parses_calls: true,
        };
        let written = outgoing(&fields, path, "served", generation, room, fate, wishes);
        let Ok(written) = written else {
            continue;
        };
        let sent = Fields::read(&written.body).expect("what the pool writes is JSON");
        assert_eq!(text_of(&sent, "model"), Some("\"served\""));
        assert_eq!(text_of(&sent, "stream"), Some("true"));
        assert_eq!(text_of(&sent, "store"), None);
    }
}

fn text_of<'a>(fields: &Fields<'a>, name: &str) -> Option<&'a str> {
    fields.get(name).map(|value| value.get())
}

/// An engine's stream in pieces, made into one answer, as it is and as a chat's.
pub fn from_engine(bytes: &[u8]) {
    let mut taken = 0;
    while let Some(length) = event_end(&bytes[taken..]) {
        let event = &bytes[taken..taken + length];
        assert!(length > 0, "an event has an end");
        taken += length;
        let chunk = data_of(event).and_then(|data| serde_json::from_slice::<Value>(&data).ok());
        let _ = chunk.as_ref().and_then(usage_of);
    }
    for as_chat in [None, Some(AsChat::default())] {
        let mut assembled = Assembler::new(as_chat, 4);
        for piece in bytes.chunks(61) {
            if assembled.push(piece).is_err() {
                break;
            }
        }
        let _ = assembled.end();
        let _ = assembled.usage();
        let _ = assembled.finish();
    }
}

/// A client's request in another API's words and, behind a zero byte, what an engine says to it: event by event
/// and whole.
pub fn translated_bodies(bytes: &[u8]) {
    let (request, stream) = parted(bytes, 0);
    let reading = Reading {
        now_seconds: 1_790_000_000,
        sealer: Sealer::new(Arc::new(Seal::of(&[7; 32])), KeyId(1)),
        desk: None,
    };
    for dialect in [Dialect::OpenAi, Dialect::Anthropic, Dialect::Responses] {
        let Ok(translated) = dialect.read(Bytes::copy_from_slice(request), &reading) else {
            continue;
        };
        // What needs no translation passes as it came, and the gateway reads it next.
        if translated.body != request {
            Fields::read(&translated.body).expect("what the pool writes is JSON");
        }
        retold(translated.teller, stream);
    }
    let request = Bytes::copy_from_slice(request);
    for ask in [ollama::Ask::Chat, ollama::Ask::Generate] {
        let Ok(translated) = ollama::read(&request, ask, &|_| None) else {
            continue;
        };
        if let ollama::Work::Answer { body, .. } = translated.work {
            Fields::read(&body).expect("what the pool writes is JSON");
        }
        let marks = Arc::new(ollama::Marks::begin(Clock::start()));
        let output = ollama::Answer::of(ask, translated.named, marks);
        for line in retold(Teller::Ollama(Box::new(output)), stream).lines() {
            serde_json::from_str::<Value>(line).expect("each line is JSON");
        }
    }
}

/// What an engine says, event by event and whole, in another API's words; the events.
fn retold(teller: Teller, stream: &[u8]) -> String {
    let mut telling = Telling::new(None, teller.clone());
    let (mut left, mut all) = (stream, String::new());
    while let Some(length) = event_end(left) {
        let (event, later) = left.split_at(length);
        left = later;
        let output = telling.event(event.to_vec());
        assert!(std::str::from_utf8(&output).is_ok() || std::str::from_utf8(event).is_err());
        all.push_str(&String::from_utf8_lossy(&output));
    }
    all.push_str(&telling.engine_refused(left));
    if let Ok(answer) = serde_json::from_slice(stream) {
        let _ = teller.answer(answer);
    }
    all
}

/// The form of a sound's request, its type in the first line: what goes on to the engine says the same.
pub fn form(bytes: &[u8]) {
    let (kind, body) = parted(bytes, b'\n');
    let kind = HeaderValue::from_bytes(kind).ok();
    let body = Bytes::copy_from_slice(body);
    let Ok(form) = read(kind.as_ref(), body) else {
        return;
    };
    let (kind, body) = form.written("served");
    let sent = read(Some(&kind), body).expect("what the pool writes is a form");
    assert_eq!(sent.model, "served");
    assert!(
        form.has_same_content(&sent),
        "a field was changed on its way"
    );
}

/// A body that is all there needs no waiting.
fn read(kind: Option<&HeaderValue>, body: Bytes) -> Result<Form, ()> {
    let form = Form::read(kind, body).now_or_never();
    form.expect("a whole body").map_err(drop)
}

/// The lines of a request's head. A client behind a proxy never counts as one of this machine because of what it
/// writes, and no page of another site passes as one of ours.
pub fn head(bytes: &[u8]) {
    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n').take(64) {
        let (name, value) = parted(line, b':');
        let name = HeaderName::from_bytes(name.trim_ascii());
        let value = HeaderValue::from_bytes(value.trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let stranger = ClientAddress::of(PEER, &headers, &[]);
    assert_eq!(stranger.address, PEER);
    let near: IpAddr = Ipv4Addr::LOCALHOST.into();
    let with_a_proxy_named = ClientAddress::of(near, &headers, &[]);
    let is_forwarded = headers.contains_key("x-forwarded-for") || headers.contains_key("forwarded");
    assert!(!(is_forwarded && with_a_proxy_named.is_loopback()));
    for trusted in ["192.0.2.0/24", "0.0.0.0/0", "::/0"] {
        let trusted: Network = trusted.parse().expect("a network");
        let client = ClientAddress::of(PEER, &headers, std::slice::from_ref(&trusted));
        // The proxy has named a client, or there is none.
        assert_eq!(
            client.advice(PEER, &headers, &[trusted]).is_some(),
            client.is_hidden
        );
        assert!(!client.is_loopback());
    }
    let site = headers.get("sec-fetch-site").cloned();
    let mut request = Request::post("/v1/chat/completions");
    *request.headers_mut().expect("a request") = headers;
    let (parts, ()) = request.body(()).expect("a request").into_parts();
    for has_tls in [false, true] {
        let page = cross_site::check_page(&parts, None, has_tls);
        if let (Ok(()), Some(site)) = (page, &site) {
            assert!(site == "same-origin" || site == "none", "{site:?}");
        }
    }
    let _ = cross_site::check_type(&parts);
}

/// What stands before the first of these bytes, and what behind it.
fn parted(bytes: &[u8], by: u8) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == by);
    let (before, behind) = bytes.split_at(end.unwrap_or(bytes.len()));
    (before, behind.get(1..).unwrap_or_default())
}
