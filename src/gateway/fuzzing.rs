//! Entry points for fuzzers: parse client and engine data as the gateway does, and panic if an invariant is violated. Not used in
//! production.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};
use futures_util::FutureExt;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::auth::cross_site;
use crate::inference::request::form::Form;
use crate::inference::request::outgoing::{Wishes, outgoing, renamed};
use crate::inference::request::request_fields::Fate;
use catalog::{Generation, ReasoningFields};
use config::Network;
use controller::Clock;
use dialect::as_chat::AsChat;
use dialect::assembler::Assembler;
use dialect::body::{Fields, Scanned};
use dialect::events::{data_of, event_end};
use dialect::usage::usage_of;
use dialect::{CHAT, COMPLETIONS};
use dialect::{Dialect, Reading, ReasoningRequest, Seal, Sealer, Teller, Telling, ollama};
use edge::ClientAddress;
use pool::{KeyId, ServiceClass};

/// A client's body: its routing fields and all other fields.
pub fn body(bytes: &[u8]) {
    let Ok(scanned) = Scanned::read(Bytes::copy_from_slice(bytes)) else {
        return;
    };
    assert!(!scanned.model.is_empty());
    // Whatever routing accepts, all later code must accept.
    let fields = Fields::read(&scanned.body).expect("an object that was scanned");
    assert!(fields.get("model").is_some());
    let renamed =
        renamed(&scanned.body, "other", |_, _| Ok(Fate::Goes)).expect("an object that was scanned");
    let renamed = Fields::read(&renamed).expect("what the pool writes is JSON");
    assert_eq!(text_of(&renamed, "model"), Some("\"other\""));
}

/// A client's body, rewritten for an engine.
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
            tier_max: ServiceClass::Priority,
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

/// An engine's stream in pieces, assembled into a response, unchanged and as a chat.
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

/// A client's request in another API and, after a zero byte, the engine's response to it, translated as events and as a complete
/// response.
pub fn translated_bodies(bytes: &[u8]) {
    let (request, stream) = parted(bytes, 0);
    let reading = Reading {
        now_seconds: 1_790_000_000,
        sealer: Sealer::new(Arc::new(Seal::new(&[7; 32])), KeyId(1)),
        desk: None,
        background: None,
    };
    for dialect in [Dialect::OpenAi, Dialect::Anthropic, Dialect::Responses] {
        let Ok(translated) = dialect.read(Bytes::copy_from_slice(request), &reading) else {
            continue;
        };
        // Untranslated bodies are read by the gateway next.
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
        let output = ollama::Answer::new(ask, translated.named, marks);
        for line in retold(Teller::Ollama(Box::new(output)), stream).lines() {
            serde_json::from_str::<Value>(line).expect("each line is JSON");
        }
    }
}

/// Translates an engine's response into another API, as events and as a complete response. Returns the events.
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
    if let Ok(response) = serde_json::from_slice(stream) {
        let _ = teller.respond(response);
    }
    all
}

/// An audio form, with its type in the first line: the rewritten form must have the same content.
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

/// A complete body is read without waiting.
fn read(kind: Option<&HeaderValue>, body: Bytes) -> Result<Form, ()> {
    let form = Form::read(kind, body).now_or_never();
    form.expect("a complete body").map_err(drop)
}

/// Header lines of a request. A client behind a proxy must never count as local because of its headers, and no page of another site
/// may pass as ours.
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
    let stranger = ClientAddress::new(PEER, &headers, &[]);
    assert_eq!(stranger.address, PEER);
    let near: IpAddr = Ipv4Addr::LOCALHOST.into();
    let with_a_proxy_named = ClientAddress::new(near, &headers, &[]);
    let is_forwarded = headers.contains_key("x-forwarded-for") || headers.contains_key("forwarded");
    assert!(!(is_forwarded && with_a_proxy_named.is_loopback()));
    for trusted in ["192.0.2.0/24", "0.0.0.0/0", "::/0"] {
        let trusted: Network = trusted.parse().expect("a network");
        let client = ClientAddress::new(PEER, &headers, std::slice::from_ref(&trusted));
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

/// Splits at the first such byte, which is dropped.
fn parted(bytes: &[u8], by: u8) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == by);
    let (before, behind) = bytes.split_at(end.unwrap_or(bytes.len()));
    (before, behind.get(1..).unwrap_or_default())
}
