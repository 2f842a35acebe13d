//! Tests of the destinations of traces and metrics, and of the standard variables.

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
fn metrics_go_to_their_own_url_or_below_the_endpoint() {
    for (endpoint, url) in [
        ("http://localhost:4318", "http://localhost:4318/v1/metrics"),
        (
            "https://a.example/x/v1/traces",
            "https://a.example/x/v1/metrics",
        ),
    ] {
        let url_of = section(endpoint).metrics_url();
        assert_eq!(url_of.unwrap().as_str(), url);
    }
    let own = TelemetrySection {
        metrics_endpoint: Some("http://localhost:9090/api/v1/otlp/v1/metrics".to_owned()),
        ..TelemetrySection::default()
    };
    let url = own.metrics_url().unwrap();
    assert_eq!(url.path(), "/api/v1/otlp/v1/metrics");
    assert_eq!((own.url(), own.problems()), (None, vec![]));
    let off = TelemetrySection {
        metrics: Some(false),
        ..section("http://localhost:4318")
    };
    assert_eq!(off.metrics_url(), None);
    let rare = TelemetrySection {
        metrics_interval: Some(Length::from_secs(3601)),
        ..own
    };
    assert_eq!(rare.problems()[0].key, "telemetry.metrics_interval");
}

#[test]
fn the_standard_variables_choose_which_signals_go_where() {
    let of = |variables: &[(&str, &str)]| {
        let environment = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let (mut section, mut taken) = (TelemetrySection::default(), BTreeMap::new());
        let problems = section.take_variables(&environment, &mut taken);
        assert_eq!(problems, [], "{variables:?}");
        let text = |url: Option<Url>| url.map(String::from).unwrap_or_default();
        (text(section.url()), text(section.metrics_url()), section)
    };
    let endpoint = (ENDPOINT_VARIABLE, "http://localhost:4318");
    let (traces, metrics) = (
        "http://localhost:4318/v1/traces",
        "http://localhost:4318/v1/metrics",
    );
    let (found, own, section) = of(&[endpoint, (INTERVAL_VARIABLE, "5000")]);
    assert_eq!((found.as_str(), own.as_str()), (traces, metrics));
    assert_eq!(section.metrics_interval(), Length::from_secs(5));
    let (found, own, _) = of(&[endpoint, (METRICS_EXPORTER_VARIABLE, "none")]);
    assert_eq!((found.as_str(), own.as_str()), (traces, ""));
    let (found, own, _) = of(&[endpoint, (METRICS_EXPORTER_VARIABLE, "console, otlp")]);
    assert_eq!((found.as_str(), own.as_str()), (traces, metrics));
    let (found, own, _) = of(&[endpoint, (TRACES_EXPORTER_VARIABLE, "none")]);
    assert_eq!((found.as_str(), own.as_str()), ("", metrics));
    let apart = (METRICS_ENDPOINT_VARIABLE, "http://localhost:9090/otlp");
    let (found, own, _) = of(&[endpoint, apart]);
    assert_eq!(found, traces);
    assert_eq!(own, "http://localhost:9090/otlp");
    let (found, own, _) = of(&[apart]);
    assert_eq!((found.as_str(), own.as_str()), ("", apart.1));
    let (found, own, _) = of(&[apart, endpoint, (DISABLED_VARIABLE, "true")]);
    assert_eq!((found.as_str(), own.as_str()), ("", ""));
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
