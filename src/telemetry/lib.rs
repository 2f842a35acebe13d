//! OpenTelemetry traces: the W3C trace context of a request, spans, and their export over OTLP/HTTP. Independent of models and the
//! pool.
//!
//! OTLP is a small, stable format, and the program has an HTTP client already. The SDK of OpenTelemetry would bring a
//! second queue, a second configuration and some twenty crates for what is a few hundred lines here; docs/guides/tracing.md
//! has the reasons.

mod batch;
mod context;
mod exporter;
mod json;
mod protobuf;
mod sender;
mod span;

pub use context::{Ids, ParentContext, SpanId, TraceId, TraceParent, ratio_keeps};
pub use exporter::{ENDS_WITHIN, Exporter, ExporterCounts, ExporterSettings};
pub use sender::{ClientError, Encoding, parse_headers};
pub use span::{Attribute, Span, SpanEvent, SpanKind, Value, attribute};
