//! Opens the traces and the exported metrics of requests, if a collector is configured.

use std::sync::Arc;

use super::tasks::start;
use config::{Config, TelemetryProtocol};
use controller::{Clock, Handle};
use http::Traces;
use telemetry::{
    ClientError, Encoding, Exporter, ExporterSettings, GenAiMetrics, MetricExporter, parse_headers,
};
use tokio::task::JoinHandle;

const HEADERS_VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// The exporters, which run from the start on.
pub struct Telemetry {
    traces: Option<TraceExport>,
    metrics: Option<MetricExport>,
}

struct TraceExport {
    exporter: Exporter,
    task: JoinHandle<()>,
    ratio: f64,
}

struct MetricExport {
    exporter: MetricExporter,
    task: JoinHandle<()>,
    metrics: Arc<GenAiMetrics>,
}

/// Opens the exporters. `None` without a collector. An error is one line for the user, without secrets.
pub fn open(config: &Config, clock: Clock) -> Result<Option<Telemetry>, String> {
    let section = &config.telemetry;
    let (traces_url, metrics_url) = (section.url(), section.metrics_url());
    if traces_url.is_none() && metrics_url.is_none() {
        return Ok(None);
    }
    let headers = match &section.headers_file {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("telemetry.headers_file: {}: {error}", path.display()))?;
            parse_headers(text.lines())
                .map_err(|error| format!("telemetry.headers_file: {}: {error}", path.display()))?
        }
        None => {
            let text = std::env::var(HEADERS_VARIABLE).unwrap_or_default();
            let pairs: Vec<String> = text.split(',').map(percent_decoded).collect();
            parse_headers(pairs.iter().map(String::as_str)).map_err(|error| {
                format!(
                    "the environment variable {HEADERS_VARIABLE}: {}",
                    error.replacen("line", "header", 1)
                )
            })?
        }
    };
    let settings = |url| ExporterSettings {
        url,
        headers: headers.clone(),
        encoding: match section.protocol() {
            TelemetryProtocol::HttpProtobuf => Encoding::Protobuf,
            TelemetryProtocol::HttpJson => Encoding::Json,
        },
        service_name: section.service_name().to_owned(),
    };
    let open_traces = |url| -> Result<TraceExport, ClientError> {
        let settings = settings(url);
        let shown = settings.url.to_string();
        let (exporter, task) = Exporter::new(settings)?;
        let ratio = section.sampling_ratio();
        tracing::info!("traces go to {shown}; {ratio} of the requests without a trace are sampled");
        Ok(TraceExport {
            exporter,
            task: start(task),
            ratio,
        })
    };
    let open_metrics = |url| -> Result<MetricExport, ClientError> {
        let settings = settings(url);
        let shown = settings.url.to_string();
        let interval = section.metrics_interval();
        let metrics = Arc::new(GenAiMetrics::new(clock.unix_nanos()));
        let (exporter, task) = MetricExporter::new(
            settings,
            interval.duration(),
            Arc::clone(&metrics),
            move || clock.unix_nanos(),
        )?;
        tracing::info!("metrics go to {shown} every {interval}");
        Ok(MetricExport {
            exporter,
            task: start(task),
            metrics,
        })
    };
    let line = |error: ClientError| error.to_string();
    Ok(Some(Telemetry {
        traces: traces_url.map(open_traces).transpose().map_err(line)?,
        metrics: metrics_url.map(open_metrics).transpose().map_err(line)?,
    }))
}

impl Telemetry {
    /// The traces, if they have a collector.
    pub fn traces(&self, handle: &Handle, base: &str) -> Option<Arc<Traces>> {
        let traces = self.traces.as_ref()?;
        Some(Arc::new(Traces::new(
            traces.exporter.clone(),
            traces.ratio,
            handle.load_timeline().clone(),
            handle.clock(),
            base,
        )))
    }

    /// The counts for the collector of metrics, if there is one.
    pub fn metrics(&self) -> Option<Arc<GenAiMetrics>> {
        let metrics = self.metrics.as_ref()?;
        Some(Arc::clone(&metrics.metrics))
    }
}

/// Sends the last spans and metrics, within a short time limit.
pub async fn finish(telemetry: Option<Telemetry>) {
    let Some(Telemetry { traces, metrics }) = telemetry else {
        return;
    };
    let spans = async {
        if let Some(traces) = traces {
            traces.exporter.finish().await;
            traces.task.abort();
        }
    };
    let counts = async {
        if let Some(metrics) = metrics {
            metrics.exporter.finish().await;
            metrics.task.abort();
        }
    };
    tokio::join!(spans, counts);
}

/// Values of the variable are URL-encoded; the file's are not.
fn percent_decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = after
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoded_values_are_decoded_and_invalid_ones_are_kept() {
        for (text, decoded) in [
            ("authorization=Bearer%20abc", "authorization=Bearer abc"),
            ("a=100%", "a=100%"),
            ("a=%zz", "a=%zz"),
            ("a=%c3%a9", "a=\u{e9}"),
        ] {
            assert_eq!(percent_decoded(text), decoded);
        }
    }
}
