//! OTLP as JSON: ids in hexadecimal, times and integers as texts, enums as numbers.

use serde_json::{Map, Value as Json, json};

use crate::batch::{Batch, CONVENTIONS, SCOPE, VERSION};
use crate::metric::{CUMULATIVE, HistogramPoint, Metric, MetricBatch};
use crate::span::{Attribute, Span, SpanEvent, Value};

pub(crate) fn encode(batch: &Batch<'_>) -> Vec<u8> {
    let spans: Vec<Json> = batch.spans.iter().map(span).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": attributes(&batch.resource.0)},
        "scopeSpans": [{
            "scope": {"name": SCOPE, "version": VERSION},
            "spans": spans,
            "schemaUrl": CONVENTIONS,
        }],
        "schemaUrl": CONVENTIONS,
    }]})
    .to_string()
    .into_bytes()
}

pub(crate) fn encode_metrics(batch: &MetricBatch<'_>) -> Vec<u8> {
    let metrics: Vec<Json> = batch
        .metrics
        .iter()
        .map(|item| metric(item, batch))
        .collect();
    json!({"resourceMetrics": [{
        "resource": {"attributes": attributes(&batch.resource.0)},
        "scopeMetrics": [{
            "scope": {"name": SCOPE, "version": VERSION},
            "metrics": metrics,
            "schemaUrl": CONVENTIONS,
        }],
        "schemaUrl": CONVENTIONS,
    }]})
    .to_string()
    .into_bytes()
}

fn metric(metric: &Metric, batch: &MetricBatch<'_>) -> Json {
    let points = metric.points.iter().map(|item| point(item, batch));
    json!({
        "name": metric.name,
        "description": metric.description,
        "unit": metric.unit,
        "histogram": {
            "dataPoints": points.collect::<Vec<Json>>(),
            "aggregationTemporality": CUMULATIVE,
        },
    })
}

fn point(point: &HistogramPoint, batch: &MetricBatch<'_>) -> Json {
    let histogram = &point.histogram;
    let counts = histogram.counts().iter().map(u64::to_string);
    json!({
        "attributes": attributes(&point.attributes),
        "startTimeUnixNano": batch.start_unix_nanos.to_string(),
        "timeUnixNano": batch.at_unix_nanos.to_string(),
        "count": histogram.count().to_string(),
        "sum": histogram.sum(),
        "bucketCounts": counts.collect::<Vec<String>>(),
        "explicitBounds": histogram.bounds(),
    })
}

/// The number of items that the collector refused, and the reason; 0 if it accepted all. `field` has the number.
pub(crate) fn rejected(response: &[u8], field: &str) -> (u64, String) {
    let response: Json = serde_json::from_slice(response).unwrap_or_default();
    let partial = &response["partialSuccess"];
    let count = &partial[field];
    let count = count
        .as_u64()
        .or_else(|| count.as_str().and_then(|text| text.parse().ok()));
    let message = partial["errorMessage"].as_str().unwrap_or_default();
    (count.unwrap_or(0), message.to_owned())
}

fn span(span: &Span) -> Json {
    let mut written = Map::new();
    let mut add = |name: &str, value: Json| written.insert(name.to_owned(), value);
    add("traceId", json!(span.trace.to_string()));
    add("spanId", json!(span.id.to_string()));
    if let Some(state) = &span.state {
        add("traceState", json!(**state));
    }
    if let Some(parent) = span.parent {
        add("parentSpanId", json!(parent.to_string()));
    }
    add("flags", json!(span.flags()));
    add("name", json!(span.name));
    add("kind", json!(span.kind as u8));
    add(
        "startTimeUnixNano",
        json!(span.start_unix_nanos.to_string()),
    );
    add("endTimeUnixNano", json!(span.end_unix_nanos.to_string()));
    add("attributes", attributes(&span.attributes));
    if !span.events.is_empty() {
        add("events", span.events.iter().map(event).collect());
    }
    add(
        "status",
        match &span.error {
            None => json!({}),
            Some(message) => json!({"message": message, "code": 2}),
        },
    );
    Json::Object(written)
}

fn event(event: &SpanEvent) -> Json {
    json!({
        "timeUnixNano": event.at_unix_nanos.to_string(),
        "name": event.name,
        "attributes": attributes(&event.attributes),
    })
}

fn attributes(all: &[Attribute]) -> Json {
    all.iter()
        .map(|attribute| json!({"key": attribute.key, "value": value(&attribute.value)}))
        .collect()
}

fn value(value: &Value) -> Json {
    match value {
        Value::Text(text) => json!({"stringValue": text}),
        Value::Texts(texts) => {
            let texts: Vec<Json> = texts
                .iter()
                .map(|text| json!({"stringValue": text}))
                .collect();
            json!({"arrayValue": {"values": texts}})
        }
        Value::Integer(number) => json!({"intValue": number.to_string()}),
        Value::Float(number) => json!({"doubleValue": number}),
        Value::Bool(is) => json!({"boolValue": is}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_success_is_parsed_with_string_and_numeric_counts() {
        let refused = br#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#;
        let of = |response: &[u8]| rejected(response, "rejectedSpans");
        assert_eq!(of(refused), (3, "too old".to_owned()));
        assert_eq!(of(br#"{"partialSuccess":{"rejectedSpans":2}}"#).0, 2);
        assert_eq!(of(br#"{"partialSuccess":{"rejectedDataPoints":2}}"#).0, 0);
        assert_eq!(of(b"{}"), (0, String::new()));
        assert_eq!(of(b"not JSON").0, 0);
    }
}
