//! The section `telemetry`: the destination of request traces and metrics. Keys that are not set use the standard variables of OpenTelemetry,
//! which already exist on machines configured for other programs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::problems::Problem;
use crate::values::Length;
use pool::Span;

/// Appended to the address of a collector, unless the address ends with it.
const TRACES_PATH: &str = "v1/traces";
const METRICS_PATH: &str = "v1/metrics";
/// The default interval of metrics, and its bounds.
const INTERVAL: Length = Length::from_secs(60);
const INTERVAL_MIN: Length = Length::from_secs(1);
const INTERVAL_MAX: Length = Length::from_secs(3600);
const SERVICE_NAME: &str = "model-pool";
const SERVICE_NAME_BYTES_MAX: usize = 255;

const ENDPOINT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const PROTOCOL_VARIABLE: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const SERVICE_VARIABLE: &str = "OTEL_SERVICE_NAME";
const RATIO_VARIABLE: &str = "OTEL_TRACES_SAMPLER_ARG";
const DISABLED_VARIABLE: &str = "OTEL_SDK_DISABLED";
const TRACES_EXPORTER_VARIABLE: &str = "OTEL_TRACES_EXPORTER";
const METRICS_EXPORTER_VARIABLE: &str = "OTEL_METRICS_EXPORTER";
const METRICS_ENDPOINT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";
/// In milliseconds.
const INTERVAL_VARIABLE: &str = "OTEL_METRIC_EXPORT_INTERVAL";
/// The name of OTLP in the variables of exporters.
const OTLP: &str = "otlp";

/// Request traces and metrics for OpenTelemetry. Without an endpoint there are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetrySection {
    /// The collector for OTLP over HTTP, such as `http://127.0.0.1:4318`; `/v1/traces` is added, and `/v1/metrics` for metrics. null:
    /// the variable `OTEL_EXPORTER_OTLP_ENDPOINT`, or no traces if it is not set.
    pub endpoint: Option<String>,
    /// The encoding: `http/protobuf` or `http/json`. null: the variable `OTEL_EXPORTER_OTLP_PROTOCOL`, or `http/protobuf`.
    pub protocol: Option<TelemetryProtocol>,
    /// A file with one header per line, such as `authorization: Bearer …`, for collectors that require one; null: the variable
    /// `OTEL_EXPORTER_OTLP_HEADERS`, or none.
    pub headers_file: Option<PathBuf>,
    /// The name of this service in traces and metrics. null: the variable `OTEL_SERVICE_NAME`, or `model-pool`.
    pub service_name: Option<String>,
    /// The fraction to trace of the requests without trace context, 0 to 1. A request with `traceparent` is traced if that says so.
    /// null: the variable `OTEL_TRACES_SAMPLER_ARG`, or 1.
    pub sampling_ratio: Option<f64>,
    /// Send metrics. null: true, unless the variable `OTEL_METRICS_EXPORTER` does not name `otlp`.
    pub metrics: Option<bool>,
    /// The URL for metrics, with its path. null: the variable `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, or `endpoint` with `/v1/metrics`.
    pub metrics_endpoint: Option<String>,
    /// The interval of metrics, 1s to 1h. null: the variable `OTEL_METRIC_EXPORT_INTERVAL` in milliseconds, or 60s.
    pub metrics_interval: Option<Length>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TelemetryProtocol {
    #[default]
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
    #[serde(rename = "http/json")]
    HttpJson,
}

impl TelemetrySection {
    /// The address for spans, including the path; `None` without an endpoint.
    pub fn url(&self) -> Option<Url> {
        url_below(self.endpoint.as_deref()?, TRACES_PATH)
    }

    /// The address for metrics, including the path; `None` without an endpoint, or if metrics are off.
    pub fn metrics_url(&self) -> Option<Url> {
        if !self.has_metrics() {
            return None;
        }
        match &self.metrics_endpoint {
            Some(endpoint) => Url::parse(endpoint).ok(),
            None => url_below(self.endpoint.as_deref()?, METRICS_PATH),
        }
    }

    pub fn has_metrics(&self) -> bool {
        self.metrics.unwrap_or(true)
    }

    pub fn metrics_interval(&self) -> Length {
        self.metrics_interval.unwrap_or(INTERVAL)
    }

    pub fn protocol(&self) -> TelemetryProtocol {
        self.protocol.unwrap_or_default()
    }

    pub fn service_name(&self) -> &str {
        self.service_name.as_deref().unwrap_or(SERVICE_NAME)
    }

    pub fn sampling_ratio(&self) -> f64 {
        self.sampling_ratio.unwrap_or(1.0)
    }

    /// The section with its defaults filled in.
    pub(crate) fn resolved(&self) -> TelemetrySection {
        TelemetrySection {
            protocol: Some(self.protocol()),
            service_name: Some(self.service_name().to_owned()),
            sampling_ratio: Some(self.sampling_ratio()),
            metrics: Some(self.has_metrics()),
            metrics_interval: Some(self.metrics_interval()),
            ..self.clone()
        }
    }

    /// Applies the standard variables to keys that are not set, and records them in `taken` by key. An invalid value is a problem
    /// only if there is an endpoint, because the variables may be meant for other programs.
    pub(crate) fn take_variables(
        &mut self,
        environment: &BTreeMap<String, String>,
        taken: &mut BTreeMap<String, String>,
    ) -> Vec<Problem> {
        let variable = |name: &str| {
            let text = environment.get(name)?.trim();
            (!text.is_empty()).then(|| text.to_owned())
        };
        let mut take = |key: &str, name: &str| {
            taken.insert(format!("telemetry.{key}"), name.to_owned());
        };
        let is_disabled =
            variable(DISABLED_VARIABLE).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let sends = |name: &str| {
            let exporters = variable(name);
            exporters.is_none_or(|names| names.split(',').any(|name| name.trim() == OTLP))
        };
        if self.metrics_endpoint.is_none() && !is_disabled {
            self.metrics_endpoint = variable(METRICS_ENDPOINT_VARIABLE);
            if self.metrics_endpoint.is_some() {
                take("metrics_endpoint", METRICS_ENDPOINT_VARIABLE);
            }
        }
        if self.endpoint.is_none() && !is_disabled {
            let endpoint = variable(ENDPOINT_VARIABLE);
            if sends(TRACES_EXPORTER_VARIABLE) {
                self.endpoint = endpoint;
                if self.endpoint.is_some() {
                    take("endpoint", ENDPOINT_VARIABLE);
                }
            } else if self.metrics_endpoint.is_none()
                && let Some(endpoint) = endpoint
            {
                // An invalid address is kept for the error about it.
                let url = url_below(&endpoint, METRICS_PATH);
                self.metrics_endpoint = Some(url.map_or(endpoint, String::from));
                take("metrics_endpoint", ENDPOINT_VARIABLE);
            }
        }
        if self.endpoint.is_none() && self.metrics_endpoint.is_none() {
            return Vec::new();
        }
        if self.metrics.is_none() && !sends(METRICS_EXPORTER_VARIABLE) {
            self.metrics = Some(false);
            take("metrics", METRICS_EXPORTER_VARIABLE);
        }
        let mut problems = Vec::new();
        if self.protocol.is_none()
            && let Some(text) = variable(PROTOCOL_VARIABLE)
        {
            take("protocol", PROTOCOL_VARIABLE);
            match serde_json::from_value(text.clone().into()) {
                Ok(protocol) => self.protocol = Some(protocol),
                Err(_) => problems.push(Problem::new(
                    "telemetry.protocol",
                    format!(
                        "is {text}; allowed: http/protobuf and http/json, which collectors accept on port 4318 and not on 4317"
                    ),
                )),
            }
        }
        if self.metrics_interval.is_none()
            && let Some(text) = variable(INTERVAL_VARIABLE)
        {
            take("metrics_interval", INTERVAL_VARIABLE);
            match text.parse() {
                Ok(milliseconds) => self.metrics_interval = Some(Length(Span(milliseconds))),
                Err(_) => problems.push(Problem::new(
                    "telemetry.metrics_interval",
                    format!("is {text}; {INTERVAL_VARIABLE} is in milliseconds, such as 60000"),
                )),
            }
        }
        if self.service_name.is_none() {
            self.service_name = variable(SERVICE_VARIABLE);
            if self.service_name.is_some() {
                take("service_name", SERVICE_VARIABLE);
            }
        }
        if self.sampling_ratio.is_none()
            && let Some(text) = variable(RATIO_VARIABLE)
        {
            take("sampling_ratio", RATIO_VARIABLE);
            match text.parse() {
                Ok(ratio) => self.sampling_ratio = Some(ratio),
                Err(_) => problems.push(Problem::new(
                    "telemetry.sampling_ratio",
                    format!("is {text}; allowed: 0 to 1, such as 0.1"),
                )),
            }
        }
        problems
    }

    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut wrong = |key: &str, message: String| {
            problems.push(Problem::new(format!("telemetry.{key}"), message));
        };
        for (key, endpoint, example) in [
            ("endpoint", &self.endpoint, ""),
            ("metrics_endpoint", &self.metrics_endpoint, "/v1/metrics"),
        ] {
            if let Some(endpoint) = endpoint
                && let Err(why) = address(endpoint)
            {
                // The value is not repeated: it may contain a secret.
                let message = format!("is not a URL such as http://127.0.0.1:4318{example}: {why}");
                wrong(key, message);
            }
        }
        if let Some(interval) = self.metrics_interval
            && !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval)
        {
            let message = format!("is {interval}; allowed: {INTERVAL_MIN} to {INTERVAL_MAX}");
            wrong("metrics_interval", message);
        }
        if let Some(name) = &self.service_name
            && (name.trim().is_empty() || name.len() > SERVICE_NAME_BYTES_MAX)
        {
            let message = format!(
                "has {} bytes; allowed: 1 to {SERVICE_NAME_BYTES_MAX}",
                name.trim().len()
            );
            wrong("service_name", message);
        }
        if let Some(ratio) = self.sampling_ratio
            && !(0.0..=1.0).contains(&ratio)
        {
            let message = format!("is {ratio}; allowed: 0 to 1, such as 0.1");
            wrong("sampling_ratio", message);
        }
        problems
    }
}

/// The address of a collector with the path of a signal, unless the address ends with one.
fn url_below(endpoint: &str, path: &str) -> Option<Url> {
    let mut url = Url::parse(endpoint).ok()?;
    let base = url.path().trim_end_matches('/');
    let base = base.strip_suffix(TRACES_PATH).unwrap_or(base);
    let full = format!("{}/{path}", base.trim_end_matches('/'));
    url.set_path(&full);
    Some(url)
}

fn address(text: &str) -> Result<(), String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err("it must begin with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "it contains a user or a password; use a header in telemetry.headers_file instead"
                .to_owned(),
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it contains `?` or `#`".to_owned());
    }
    if url.port() == Some(4317) {
        return Err(
            "port 4317 is for gRPC; collectors usually accept HTTP on port 4318".to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
