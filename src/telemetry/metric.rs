//! Metrics as OpenTelemetry models them: histograms with attributes, cumulative since the start of the process.

use crate::batch::Resource;
use crate::histogram::Histogram;
use crate::span::Attribute;

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
pub(crate) const CUMULATIVE: u8 = 2;

#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    pub name: &'static str,
    pub description: &'static str,
    /// In UCUM, such as `s`.
    pub unit: &'static str,
    pub points: Vec<HistogramPoint>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HistogramPoint {
    pub attributes: Vec<Attribute>,
    pub histogram: Histogram,
}

/// Metrics of one service to send.
pub(crate) struct MetricBatch<'a> {
    pub resource: &'a Resource,
    pub metrics: &'a [Metric],
    /// The time since which the metrics count.
    pub start_unix_nanos: u64,
    pub at_unix_nanos: u64,
}
