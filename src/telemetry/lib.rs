//! OpenTelemetry traces and metrics: the W3C trace context of a request, spans, histograms under the conventions for generative AI,
//! and their export over OTLP/HTTP. Independent of models and the pool.
//!
//! OTLP is a small, stable format, and the program has an HTTP client already. The SDK of OpenTelemetry would bring a
//! second queue, a second configuration and some twenty crates for what is a few hundred lines here; docs/guides/tracing.md
//! has the reasons.

mod batch;
mod context;
mod exporter;
mod failure_log;
mod gen_ai;
mod histogram;
mod json;
mod metric;
mod metric_exporter;
mod protobuf;
mod sender;
mod span;

pub use context::{Ids, ParentContext, SpanId, TraceId, TraceParent, ratio_keeps};
pub use exporter::{ENDS_WITHIN, Exporter, ExporterCounts, ExporterSettings};
pub use gen_ai::{ErrorType, GenAiLabels, GenAiMetrics, OTHER_OPERATION, PROVIDER};
pub use histogram::Histogram;
pub use metric_exporter::MetricExporter;
pub use sender::{ClientError, Encoding, parse_headers};
pub use span::{Attribute, Span, SpanEvent, SpanKind, Value, attribute};
