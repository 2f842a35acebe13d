//! Tests of `admission.rs`.

use super::*;

fn patience(name: &'static str, value: &str) -> Result<Deadlines, Failure> {
    let value = HeaderValue::from_str(value).unwrap();
    let head = HeaderMap::from_iter([(HeaderName::from_static(name), value)]);
    Deadlines::of(&head, Time(0))
}

#[test]
fn lengths_of_time_are_written_as_openai_does() {
    let texts = [
        (0, "0ms"),
        (120, "120ms"),
        (1_000, "1s"),
        (1_500, "1.5s"),
        (360_000, "6m0s"),
        (25_920_000, "7h12m0s"),
    ];
    for (milliseconds, text) in texts {
        assert_eq!(short(Span(milliseconds)), text);
    }
    assert_eq!(short(Span(10_120)), "10.12s");
}

#[test]
fn a_client_says_how_long_it_waits_in_seconds_or_with_a_unit() {
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
