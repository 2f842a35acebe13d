//! A collector of traces and metrics for tests: receives OTLP over HTTP, and parses bodies in JSON and protocol buffers.

use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;
use support::servers::request_of;
use support::service::wait_for;

/// A request's head and body.
pub type ReceivedRequest = (String, Vec<u8>);

/// A receiver of OTLP over HTTP.
pub struct Collector {
    pub address: String,
    pub received: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Collector {
    pub fn start() -> Collector {
        Collector::that_answers(
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
        )
    }

    pub fn that_answers(response: &'static str) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let received = Arc::<Mutex<Vec<ReceivedRequest>>>::default();
        let into = Arc::clone(&received);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if let Some(request) = request_of(&socket) {
                    into.lock().unwrap().push(request);
                    let _ = (&socket).write_all(response.as_bytes());
                }
            }
        });
        Collector { address, received }
    }

    pub fn section(&self, more: &str) -> String {
        format!(
            "telemetry: {{endpoint: \"http://{}\", {more}}}\n",
            self.address
        )
    }

    pub fn heads(&self) -> Vec<String> {
        let received = self.received.lock().unwrap();
        received.iter().map(|(head, _)| head.clone()).collect()
    }

    /// All spans so far, of bodies in JSON.
    pub fn spans(&self) -> Vec<Value> {
        let received = self.received.lock().unwrap();
        let traces = received
            .iter()
            .filter(|(head, _)| head.starts_with("POST /v1/traces "));
        let bodies = traces.map(|(_, body)| {
            let body: Value = serde_json::from_slice(body).expect("JSON");
            let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
            spans.as_array().expect("spans").clone()
        });
        bodies.flatten().collect()
    }

    /// The requests with metrics so far, as JSON.
    pub fn metrics(&self) -> Vec<Value> {
        let received = self.received.lock().unwrap();
        let metrics = received
            .iter()
            .filter(|(head, _)| head.starts_with("POST /v1/metrics "));
        let bodies = metrics.map(|(_, body)| serde_json::from_slice(body).expect("JSON"));
        bodies.collect()
    }

    /// Waits for the span of a request with this name, and returns the spans of its trace.
    pub fn trace_with(&self, root: &str) -> Spans {
        self.trace_where(|span| span["name"] == root)
    }

    /// Waits for a span in a trace with a known id.
    pub fn trace_of(&self, trace: &str, root: &str) -> Spans {
        self.trace_where(|span| span["name"] == root && span["traceId"] == trace)
    }

    /// The spans of a request arrive together.
    fn trace_where(&self, is_root: impl Fn(&Value) -> bool) -> Spans {
        let mut found = None;
        wait_for("the trace at the collector", || {
            let mut spans = self.spans();
            let trace = spans.iter().find(|span| is_root(span));
            let trace = trace.map(|span| span["traceId"].clone());
            found = trace.map(|trace| {
                spans.retain(|span| span["traceId"] == trace);
                Spans(spans)
            });
            found.is_some()
        });
        found.unwrap()
    }
}

#[derive(Debug)]
pub struct Spans(pub Vec<Value>);

impl Spans {
    pub fn get(&self, name: &str) -> &Value {
        let mut found = self.0.iter().filter(|span| span["name"] == name);
        let span = found.next();
        let span = span.unwrap_or_else(|| panic!("no {name} in {:#?}", self.0));
        assert!(found.next().is_none(), "{name} twice in {:#?}", self.0);
        span
    }

    pub fn is_child(&self, name: &str, parent: &str) {
        let (child, parent) = (self.get(name), self.get(parent));
        assert_eq!(child["parentSpanId"], parent["spanId"], "{name}");
        let ([from, until], [first, last]) = (times(child), times(parent));
        assert!(first <= from && from <= until && until <= last, "{self:#?}");
    }
}

/// Start and end in nanoseconds.
pub fn times(span: &Value) -> [u64; 2] {
    ["startTimeUnixNano", "endTimeUnixNano"]
        .map(|field| span[field].as_str().unwrap().parse().unwrap())
}

pub fn milliseconds(span: &Value) -> u64 {
    let [from, until] = times(span);
    (until - from) / 1_000_000
}

pub fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    let value = found.unwrap_or_else(|| panic!("no {key} in {span:#}"));
    value["value"].as_object().unwrap().values().next().unwrap()
}

/// The fields of a protocol buffers message: numbers, and the bytes of length-delimited fields.
fn fields(mut message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let (byte, rest) = bytes.split_first().expect("a byte");
            *bytes = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        number
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let length = match tag & 7 {
            0 => {
                varint(&mut message);
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)).unwrap(),
            5 => 4,
            kind => panic!("a field of kind {kind}"),
        };
        let (value, rest) = message.split_at(length);
        found.push((tag >> 3, value.to_vec()));
        message = rest;
    }
    found
}

pub fn field(message: &[u8], number: u64) -> Vec<Vec<u8>> {
    let fields = fields(message).into_iter();
    fields
        .filter(|(field, _)| *field == number)
        .map(|(_, bytes)| bytes)
        .collect()
}
