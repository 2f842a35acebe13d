//! What clients and engines send, read as the gateway reads it, for fuzzers alone. It serves nothing, and says
//! by a panic when something that must hold does not.

use axum::body::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use super::aggregate::{Aggregate, usage_of};
use super::as_chat::AsChat;
use super::body::{Fields, Scanned};
use super::dialect::{Dialect, Telling};
use super::events::{data_of, event_end};
use super::outgoing::{CHAT, COMPLETIONS, outgoing, renamed};
use super::request_fields::Fate;
use crate::catalog::Generation;

/// A client's body: what routing reads of it, and its fields.
pub(crate) fn body(bytes: &[u8]) {
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
    assert_eq!(said(&renamed, "model"), Some("\"other\""));
}

/// A client's body on its way to an engine.
pub(crate) fn to_engine(bytes: &[u8], generation: &Generation) {
    let Ok(scanned) = Scanned::read(Bytes::copy_from_slice(bytes)) else {
        return;
    };
    for path in [CHAT, COMPLETIONS] {
        let room = Some(Value::from(512));
        let fate = |name: &str, _: &RawValue| match name == "store" {
            true => Ok(Fate::Ignored),
            false => Ok(Fate::Goes),
        };
        let written = outgoing(&scanned.body, path, "served", generation, room, fate);
        let Ok(written) = written else {
            continue;
        };
        let sent = Fields::read(&written.body).expect("what the pool writes is JSON");
        assert_eq!(said(&sent, "model"), Some("\"served\""));
        assert_eq!(said(&sent, "stream"), Some("true"));
        assert_eq!(said(&sent, "store"), None);
    }
}

fn said<'a>(fields: &Fields<'a>, name: &str) -> Option<&'a str> {
    fields.get(name).map(|value| value.get())
}

/// An engine's stream in pieces, made into one answer, as it is and as a chat's.
pub(crate) fn from_engine(bytes: &[u8]) {
    let mut taken = 0;
    while let Some(length) = event_end(&bytes[taken..]) {
        let event = &bytes[taken..taken + length];
        assert!(length > 0, "an event has an end");
        taken += length;
        let chunk = data_of(event).and_then(|data| serde_json::from_slice::<Value>(data).ok());
        let _ = chunk.as_ref().and_then(usage_of);
    }
    for as_chat in [None, Some(AsChat::default())] {
        let mut whole = Aggregate::of(as_chat);
        for piece in bytes.chunks(61) {
            if whole.push(piece).is_err() {
                break;
            }
        }
        let _ = whole.usage();
        let _ = whole.finish();
    }
}

/// A client's request in another API's words and, behind a zero byte, what an engine says to it: event by event
/// and whole.
pub(crate) fn in_other_words(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0);
    let (request, stream) = bytes.split_at(end.unwrap_or(bytes.len()));
    let stream = stream.get(1..).unwrap_or_default();
    for dialect in [Dialect::Anthropic, Dialect::Responses] {
        let Ok(asked) = dialect.read(Bytes::copy_from_slice(request), 1_790_000_000) else {
            continue;
        };
        Fields::read(&asked.body).expect("what the pool writes is JSON");
        let mut telling = Telling::new(None, asked.teller.clone());
        let mut left = stream;
        while let Some(length) = event_end(left) {
            let (event, later) = left.split_at(length);
            left = later;
            let told = telling.event(event.to_vec());
            assert!(std::str::from_utf8(&told).is_ok() || std::str::from_utf8(event).is_err());
        }
        let _ = telling.engine_refused(left);
        if let Ok(answer) = serde_json::from_slice(stream) {
            let _ = asked.teller.whole(answer);
        }
    }
}
