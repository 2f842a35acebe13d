//! OTLP as protocol buffers: `ExportTraceServiceRequest` and `ExportMetricsServiceRequest` of opentelemetry-proto, written field by
//! field. The field numbers come from its published files, which are stable.

use crate::batch::{Batch, CONVENTIONS, Resource, SCOPE, VERSION};
use crate::metric::{CUMULATIVE, HistogramPoint, Metric, MetricBatch};
use crate::span::{Attribute, Span, SpanEvent, Value};

/// The encodings of a value after its tag.
const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const LENGTH: u32 = 2;
const FIXED_32: u32 = 5;

pub(crate) fn encode(batch: &Batch<'_>) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |resource_spans| {
        resource_spans.message(1, |message| resource(message, batch.resource));
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, scope);
            for item in batch.spans {
                scope_spans.message(2, |message| span(message, item));
            }
            scope_spans.text(3, CONVENTIONS);
        });
        resource_spans.text(3, CONVENTIONS);
    });
    request.0
}

pub(crate) fn encode_metrics(batch: &MetricBatch<'_>) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |resource_metrics| {
        resource_metrics.message(1, |message| resource(message, batch.resource));
        resource_metrics.message(2, |scope_metrics| {
            scope_metrics.message(1, scope);
            for item in batch.metrics {
                scope_metrics.message(2, |message| metric(message, item, batch));
            }
            scope_metrics.text(3, CONVENTIONS);
        });
        resource_metrics.text(3, CONVENTIONS);
    });
    request.0
}

fn scope(scope: &mut Message) {
    scope.text(1, SCOPE);
    scope.text(2, VERSION);
}

fn metric(message: &mut Message, metric: &Metric, batch: &MetricBatch<'_>) {
    message.text(1, metric.name);
    message.text(2, metric.description);
    message.text(3, metric.unit);
    message.message(9, |histogram| {
        for item in &metric.points {
            histogram.message(1, |message| point(message, item, batch));
        }
        histogram.number(2, u64::from(CUMULATIVE));
    });
}

fn point(message: &mut Message, point: &HistogramPoint, batch: &MetricBatch<'_>) {
    let histogram = &point.histogram;
    message.fixed_64(2, batch.start_unix_nanos);
    message.fixed_64(3, batch.at_unix_nanos);
    message.fixed_64(4, histogram.count());
    message.fixed_64(5, histogram.sum().to_bits());
    message.packed_64(6, histogram.counts().iter().copied());
    let bounds = histogram.bounds().iter();
    message.packed_64(7, bounds.map(|bound| bound.to_bits()));
    attributes(message, 9, &point.attributes);
}

/// The number of spans or points that the collector refused, and the reason; 0 if it accepted all.
pub(crate) fn rejected(response: &[u8]) -> (u64, String) {
    let partial = fields(response).find_map(|(field, value)| match (field, value) {
        (1, Field::Bytes(partial)) => Some(partial),
        _ => None,
    });
    let (mut count, mut message) = (0, String::new());
    for (field, value) in fields(partial.unwrap_or_default()) {
        match (field, value) {
            (1, Field::Number(number)) => count = number,
            (2, Field::Bytes(text)) => message = String::from_utf8_lossy(text).into_owned(),
            _ => {}
        }
    }
    (count, message)
}

fn resource(message: &mut Message, resource: &Resource) {
    attributes(message, 1, &resource.0);
}

fn span(message: &mut Message, span: &Span) {
    message.bytes(1, &span.trace.0);
    message.bytes(2, &span.id.0);
    if let Some(state) = &span.state {
        message.text(3, state);
    }
    if let Some(parent) = &span.parent {
        message.bytes(4, &parent.0);
    }
    message.text(5, &span.name);
    message.number(6, span.kind as u64);
    message.fixed_64(7, span.start_unix_nanos);
    message.fixed_64(8, span.end_unix_nanos);
    attributes(message, 9, &span.attributes);
    for item in &span.events {
        message.message(11, |message| event(message, item));
    }
    if let Some(error) = &span.error {
        message.message(15, |status| {
            status.text(2, error);
            status.number(3, 2);
        });
    }
    message.tag(16, FIXED_32);
    message.0.extend(span.flags().to_le_bytes());
}

fn event(message: &mut Message, event: &SpanEvent) {
    message.fixed_64(1, event.at_unix_nanos);
    message.text(2, &event.name);
    attributes(message, 3, &event.attributes);
}

fn attributes(message: &mut Message, field: u32, all: &[Attribute]) {
    for attribute in all {
        message.message(field, |pair| {
            pair.text(1, attribute.key);
            pair.message(2, |any| value(any, &attribute.value));
        });
    }
}

/// `AnyValue`: the field that is present determines the type, so zeros are written as well.
fn value(any: &mut Message, value: &Value) {
    match value {
        Value::Text(text) => any.text(1, text),
        Value::Bool(is) => any.number(2, u64::from(*is)),
        // Negative numbers are written as their two's complement.
        Value::Integer(number) => any.number(3, *number as u64),
        Value::Float(number) => any.fixed_64(4, number.to_bits()),
        Value::Texts(texts) => any.message(5, |list| {
            for text in texts {
                list.message(1, |any| any.text(1, text));
            }
        }),
    }
}

/// A message being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn tag(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    fn number(&mut self, field: u32, number: u64) {
        self.tag(field, VARINT);
        self.varint(number);
    }

    fn fixed_64(&mut self, field: u32, number: u64) {
        self.tag(field, FIXED_64);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// A list of numbers of 64 bits.
    fn packed_64(&mut self, field: u32, numbers: impl ExactSizeIterator<Item = u64>) {
        self.tag(field, LENGTH);
        self.varint(8 * numbers.len() as u64);
        for number in numbers {
            self.0.extend(number.to_le_bytes());
        }
    }

    fn message(&mut self, field: u32, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

/// The fields of a message, up to the first unreadable one.
fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    std::iter::from_fn(move || {
        let (tag, rest) = varint(message)?;
        let (value, rest) = match tag as u32 & 7 {
            VARINT => {
                let (number, rest) = varint(rest)?;
                (Field::Number(number), rest)
            }
            FIXED_64 => (Field::Other, rest.get(8..)?),
            FIXED_32 => (Field::Other, rest.get(4..)?),
            LENGTH => {
                let (length, rest) = varint(rest)?;
                let (bytes, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                (Field::Bytes(bytes), rest)
            }
            _ => return None,
        };
        message = rest;
        Some((tag >> 3, value))
    })
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (nth, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * nth).min(63);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[nth + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{SpanId, TraceId};
    use crate::histogram::Histogram;
    use crate::span::{SpanKind, attribute};

    #[test]
    fn a_span_is_encoded_as_protoc_would() {
        let written = Span {
            trace: TraceId([1; 16]),
            id: SpanId([2; 8]),
            parent: None,
            has_remote_parent: false,
            state: None,
            name: "a".into(),
            kind: SpanKind::Server,
            start_unix_nanos: 1,
            end_unix_nanos: 300,
            attributes: vec![attribute("k", 300_u64)],
            events: Vec::new(),
            error: None,
        };
        let mut message = Message::default();
        span(&mut message, &written);
        let expected = [
            &[0x0a, 16][..],
            &[1; 16],
            &[0x12, 8],
            &[2; 8],
            &[0x2a, 1, b'a'],
            &[0x30, 2],
            &[0x39, 1, 0, 0, 0, 0, 0, 0, 0],
            &[0x41, 0x2c, 1, 0, 0, 0, 0, 0, 0],
            // attributes { key: "k" value { int_value: 300 } }
            &[0x4a, 8, 0x0a, 1, b'k', 0x12, 3, 0x18, 0xac, 0x02],
            &[0x85, 0x01, 0x01, 0x01, 0, 0],
        ];
        assert_eq!(message.0, expected.concat());
    }

    #[test]
    fn a_histogram_point_is_encoded_as_protoc_would() {
        let mut histogram = Histogram::new(&[0.5]);
        histogram.observe(0.25);
        histogram.observe(2.0);
        let written = HistogramPoint {
            attributes: vec![attribute("k", "v")],
            histogram,
        };
        let batch = MetricBatch {
            resource: &Resource(Vec::new()),
            metrics: &[],
            start_unix_nanos: 1,
            at_unix_nanos: 300,
        };
        let mut message = Message::default();
        point(&mut message, &written, &batch);
        let expected = [
            &[0x11, 1, 0, 0, 0, 0, 0, 0, 0][..],
            &[0x19, 0x2c, 1, 0, 0, 0, 0, 0, 0],
            &[0x21, 2, 0, 0, 0, 0, 0, 0, 0],
            // 2.25 as a double.
            &[0x29, 0, 0, 0, 0, 0, 0, 0x02, 0x40],
            &[0x32, 16, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            &[0x3a, 8, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f],
            // attributes { key: "k" value { string_value: "v" } }
            &[0x4a, 8, 0x0a, 1, b'k', 0x12, 3, 0x0a, 1, b'v'],
        ];
        assert_eq!(message.0, expected.concat());
    }

    #[test]
    fn a_partial_success_is_parsed_and_nonsense_is_ignored() {
        let mut response = Message::default();
        response.message(1, |partial| {
            partial.number(1, 300);
            partial.text(2, "too old");
        });
        assert_eq!(rejected(&response.0), (300, "too old".to_owned()));
        assert_eq!(rejected(&[]), (0, String::new()));
        for end in 0..response.0.len() {
            rejected(&response.0[..end]);
        }
        assert_eq!(rejected(&[0xff; 40]).0, 0);
    }
}
