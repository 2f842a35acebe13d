//! Tests of `admission.rs`.

use super::*;
use axum::http::HeaderValue;

fn patience(name: &'static str, value: &str) -> Result<Deadlines, Failure> {
    let value = HeaderValue::from_str(value).unwrap();
    let head = HeaderMap::from_iter([(HeaderName::from_static(name), value)]);
    Deadlines::from_headers(&head, Time(0))
}

#[test]
fn a_clients_patience_is_parsed_in_seconds_or_with_a_unit() {
    assert_eq!(
        patience("x-model-pool-wait", "false").unwrap().seat,
        Some(Duration::ZERO)
    );
    assert_eq!(patience("x-model-pool-wait", "true").unwrap().seat, None);
    assert_eq!(
        patience("x-model-pool-wait", "1m").unwrap().seat,
        Some(Duration::from_secs(60))
    );
    assert!(
        patience("x-request-timeout", "0.5")
            .unwrap()
            .deadline
            .is_some()
    );
    for (name, value) in [
        ("x-request-timeout", "0"),
        ("x-request-timeout", "-1"),
        ("x-request-timeout", "soon"),
        ("x-request-timeout", "NaN"),
        ("x-request-timeout", "100000"),
        ("x-model-pool-wait", "perhaps"),
    ] {
        let failure = patience(name, value).unwrap_err();
        assert_eq!(failure.body.error.param.as_deref(), Some(name), "{value}");
    }
}

#[test]
fn a_client_waiting_for_a_seat_gives_up_at_its_earliest_deadline() {
    let now = Time(5_000);
    assert_eq!(Deadlines::default().gives_up(now), None);
    let late = Deadlines {
        deadline: Some(Time(60_000)),
        seat: None,
    };
    assert_eq!(late.gives_up(now), Some(Time(60_000)));
    let soon = Deadlines {
        seat: Some(Duration::from_secs(2)),
        ..late
    };
    assert_eq!(soon.gives_up(now), Some(Time(7_000)));
}
