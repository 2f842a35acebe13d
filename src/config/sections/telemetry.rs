//! The section `telemetry`: the destination of request traces. Keys that are not set use the standard variables of OpenTelemetry,
//! which already exist on machines configured for other programs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::problems::Problem;

/// Appended to the address of a collector, unless the address ends with it.
const TRACES_PATH: &str = "v1/traces";
const SERVICE_NAME: &str = "model-pool";
const SERVICE_NAME_BYTES_MAX: usize = 255;

const ENDPOINT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const PROTOCOL_VARIABLE: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const SERVICE_VARIABLE: &str = "OTEL_SERVICE_NAME";
const RATIO_VARIABLE: &str = "OTEL_TRACES_SAMPLER_ARG";
const DISABLED_VARIABLE: &str = "OTEL_SDK_DISABLED";

/// Request traces for OpenTelemetry. Without an endpoint there are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetrySection {
    /// The collector for OTLP over HTTP, such as `http://127.0.0.1:4318`; `/v1/traces` is added. null: the variable
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`, or no traces if it is not set.
    pub endpoint: Option<String>,
    /// The encoding of spans: `http/protobuf` or `http/json`. null: the variable `OTEL_EXPORTER_OTLP_PROTOCOL`, or `http/protobuf`.
    pub protocol: Option<TelemetryProtocol>,
    /// A file with one header per line, such as `authorization: Bearer …`, for collectors that require one; null: the variable
    /// `OTEL_EXPORTER_OTLP_HEADERS`, or none.
    pub headers_file: Option<PathBuf>,
    /// The name of this service in traces. null: the variable `OTEL_SERVICE_NAME`, or `model-pool`.
    pub service_name: Option<String>,
    /// The fraction to trace of the requests without trace context, 0 to 1. A request with `traceparent` is traced if that says so.
    /// null: the variable `OTEL_TRACES_SAMPLER_ARG`, or 1.
    pub sampling_ratio: Option<f64>,
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
        let mut url = Url::parse(self.endpoint.as_deref()?).ok()?;
        let path = url.path().trim_end_matches('/');
        let path = if path.ends_with(&format!("/{TRACES_PATH}")) {
            path.to_owned()
        } else {
            format!("{path}/{TRACES_PATH}")
        };
        url.set_path(&path);
        Some(url)
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
        if self.endpoint.is_none() && !is_disabled {
            self.endpoint = variable(ENDPOINT_VARIABLE);
            if self.endpoint.is_some() {
                take("endpoint", ENDPOINT_VARIABLE);
            }
        }
        if self.endpoint.is_none() {
            return Vec::new();
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
        if let Some(endpoint) = &self.endpoint
            && let Err(why) = address(endpoint)
        {
            // The value is not repeated: it may contain a secret.
            let message = format!("is not a URL such as http://127.0.0.1:4318: {why}");
            wrong("endpoint", message);
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
mod tests {
    use super::*;

    fn section(endpoint: &str) -> TelemetrySection {
        TelemetrySection {
            endpoint: Some(endpoint.to_owned()),
            ..TelemetrySection::default()
        }
    }

    #[test]
    fn the_traces_path_is_appended_if_it_is_missing() {
        for (endpoint, url) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            (
                "https://a.example/otlp/",
                "https://a.example/otlp/v1/traces",
            ),
            (
                "https://a.example/x/v1/traces",
                "https://a.example/x/v1/traces",
            ),
        ] {
            assert_eq!(section(endpoint).url().unwrap().as_str(), url);
            assert_eq!(section(endpoint).problems(), []);
        }
        assert_eq!(TelemetrySection::default().url(), None);
    }

    #[test]
    fn otel_variables_fill_unset_keys_and_are_reported() {
        let variables = [
            (ENDPOINT_VARIABLE, "http://localhost:4318"),
            (PROTOCOL_VARIABLE, "http/json"),
            (SERVICE_VARIABLE, "lab"),
            (RATIO_VARIABLE, "0.25"),
        ];
        let environment: BTreeMap<String, String> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let (mut filled, mut taken) = (TelemetrySection::default(), BTreeMap::new());
        assert_eq!(filled.take_variables(&environment, &mut taken), []);
        assert_eq!(filled.protocol(), TelemetryProtocol::HttpJson);
        assert_eq!(filled.service_name(), "lab");
        assert_eq!(filled.sampling_ratio(), 0.25);
        assert_eq!(taken["telemetry.endpoint"], ENDPOINT_VARIABLE);
        assert_eq!(taken.len(), 4);
        let mut own = TelemetrySection {
            sampling_ratio: Some(1.0),
            ..section("http://localhost:1")
        };
        taken.clear();
        own.take_variables(&environment, &mut taken);
        assert_eq!(own.endpoint.as_deref(), Some("http://localhost:1"));
        assert_eq!(own.sampling_ratio(), 1.0);
        assert!(!taken.contains_key("telemetry.endpoint"), "{taken:?}");
    }

    #[test]
    fn wrong_otel_variables_are_ignored_without_an_endpoint() {
        let of = |variables: &[(&str, &str)]| {
            let environment = variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            let (mut section, mut taken) = (TelemetrySection::default(), BTreeMap::new());
            let problems = section.take_variables(&environment, &mut taken);
            (section.endpoint, problems.len())
        };
        assert_eq!(of(&[(PROTOCOL_VARIABLE, "grpc")]), (None, 0));
        let endpoint = (ENDPOINT_VARIABLE, "http://localhost:4318");
        assert_eq!(of(&[endpoint, (DISABLED_VARIABLE, "TRUE")]), (None, 0));
        let wrong = [endpoint, (PROTOCOL_VARIABLE, "grpc"), (RATIO_VARIABLE, "x")];
        assert_eq!(of(&wrong).1, 2);
    }

    #[test]
    fn an_invalid_endpoint_is_refused_without_repeating_it() {
        for wrong in [
            "localhost:4318",
            "secret",
            "http://user:secret@localhost:4318",
            "http://localhost:4318?key=secret",
            "http://localhost:4317",
            "ftp://localhost",
        ] {
            let problems = section(wrong).problems();
            assert_eq!(problems.len(), 1, "{wrong}");
            assert_eq!(problems[0].key, "telemetry.endpoint");
            assert!(!problems[0].message.contains("secret"), "{problems:?}");
        }
        let odd = TelemetrySection {
            sampling_ratio: Some(1.5),
            service_name: Some(" ".to_owned()),
            ..TelemetrySection::default()
        };
        assert_eq!(odd.problems().len(), 2);
    }
}
