//! Mistakes in the tracing configuration: the start is refused, and the error names the field without a secret.

use std::fs;

use support::servers::KEY;
use support::service::Pool;
use support::table::rows;

/// The section | parts of the message
const SECTIONS: &str = r#"
    {endpoint: "localhost:4318"} | telemetry.endpoint | http://127.0.0.1:4318 | line 1
    {endpoint: "http://localhost:4317"} | telemetry.endpoint | 4318
    {endpoint: "http://localhost:4318", protocol: grpc} | telemetry.protocol | http/protobuf
    {endpoint: "http://localhost:4318", sampling_ratio: 2} | telemetry.sampling_ratio | 0 to 1
    {endpoint: "http://localhost:4318", headers_file: no-such-file} | telemetry.headers_file | no-such-file
    {metrics_endpoint: "localhost:4318"} | telemetry.metrics_endpoint | http://127.0.0.1:4318/v1/metrics
    {endpoint: "http://localhost:4318", metrics_interval: 500ms} | telemetry.metrics_interval | 1s to 1h
    {endpont: "http://localhost:4318"} | endpont | endpoint
"#;

#[test]
fn telemetry_mistakes_are_reported_with_their_field() {
    for row in rows(SECTIONS) {
        let section = row[0];
        let (status, log) = Pool::refused(&format!("telemetry: {section}\n"));
        assert_eq!(status, Some(1), "{section}: {log}");
        support::assert_has(&log, &row[1..]);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headers");
    fs::write(&file, format!("x-team: lab\n{KEY}\n")).unwrap();
    let section = format!(
        "telemetry: {{endpoint: \"http://localhost:4318\", headers_file: {:?}}}\n",
        file.display().to_string()
    );
    let (status, log) = Pool::refused(&section);
    assert_eq!(status, Some(1), "{log}");
    assert!(
        log.contains("telemetry.headers_file") && log.contains("line 2"),
        "{log}"
    );
    assert!(!log.contains(KEY), "{log}");
}
