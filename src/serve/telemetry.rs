//! Opens the traces of requests, if a collector is configured.

use std::sync::Arc;

use super::tasks::start;
use config::{Config, TelemetryProtocol};
use controller::Handle;
use http::Traces;
use telemetry::{Encoding, Exporter, ExporterSettings, parse_headers};
use tokio::task::JoinHandle;

const HEADERS_VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// The exporter, which waits for spans.
pub struct Telemetry {
    exporter: Exporter,
    task: JoinHandle<()>,
    ratio: f64,
}

/// Opens the exporter. `None` without a collector. An error is one line for the user, without secrets.
pub fn open(config: &Config) -> Result<Option<Telemetry>, String> {
    let section = &config.telemetry;
    let Some(url) = section.url() else {
        return Ok(None);
    };
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
    let shown = url.to_string();
    let settings = ExporterSettings {
        url,
        headers,
        encoding: match section.protocol() {
            TelemetryProtocol::HttpProtobuf => Encoding::Protobuf,
            TelemetryProtocol::HttpJson => Encoding::Json,
        },
        service_name: section.service_name().to_owned(),
    };
    let (exporter, task) = Exporter::new(settings).map_err(|error| error.to_string())?;
    let ratio = section.sampling_ratio();
    tracing::info!("traces go to {shown}; {ratio} of the requests without a trace are sampled");
    Ok(Some(Telemetry {
        exporter,
        task: start(task),
        ratio,
    }))
}

impl Telemetry {
    pub fn traces(&self, handle: &Handle, base: &str) -> Arc<Traces> {
        Arc::new(Traces::new(
            self.exporter.clone(),
            self.ratio,
            handle.load_timeline().clone(),
            handle.clock(),
            base,
        ))
    }
}

/// Sends the last spans, within a short time limit.
pub async fn finish(telemetry: Option<Telemetry>) {
    if let Some(Telemetry { exporter, task, .. }) = telemetry {
        exporter.finish().await;
        task.abort();
    }
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
