//! Tests of `limits`.

use super::*;

#[test]
fn all_addresses_of_an_ipv6_network_count_as_one() {
    let place = |text: &str| place_of(text.parse().unwrap());
    assert_eq!(place("2001:db8:1:2:3:4:5:6"), place("2001:db8:1:2:ffff::1"));
    assert_ne!(place("2001:db8:1:2::1"), place("2001:db8:1:3::1"));
    assert_eq!(place("::ffff:192.0.2.7"), "192.0.2.7");
    assert_eq!(place("::1"), "::1");
}

#[tokio::test]
async fn limits_changed_at_run_time_apply_immediately() {
    let of = |requests| LimitsSection {
        default: Limit {
            requests_per_minute: Some(requests),
            ..Limit::default()
        },
        models: [("org/*".to_owned(), Limit::default())].into(),
        ..LimitsSection::default()
    };
    let limits = Arc::new(Limits::new(of(9), chrono_tz::UTC, || Time(0)).unwrap());
    let ask = || {
        let bucket = Bucket {
            id: "key:1".to_owned(),
            description: "the key k1".to_owned(),
            limit: limits.default_limit(),
        };
        limits.admit(vec![bucket], 0)
    };
    ask().await.unwrap();
    assert!(limits.of_model("org/a").is_some());
    limits.set(
        LimitsSection {
            models: [].into(),
            ..of(1)
        },
        chrono_tz::Tz::Asia__Tokyo,
    );
    assert_eq!(limits.of_model("org/a"), None);
    assert_eq!(limits.anonymous_limit().requests_per_minute, Some(1));
    ask().await.unwrap();
    let refused = ask().await.unwrap_err().to_string();
    assert!(
        refused.contains("limit of 1 requests per minute"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_bucket_without_a_limit_is_not_counted() {
    let limits = Limits::new(LimitsSection::default(), chrono_tz::UTC, || Time(0)).unwrap();
    let limits = Arc::new(limits);
    let bucket = Bucket {
        id: "key:1".to_owned(),
        description: "the key k1".to_owned(),
        limit: Limit::default(),
    };
    let admitted = limits.admit(vec![bucket], 10).await.unwrap();
    assert_eq!(admitted.standing(), RemainingLimits::default());
    assert_eq!(admitted.counted, CountLocation::Nowhere);
    let admission = Admission::from(admitted);
    admission.took(5);
    assert_eq!(admission.estimate(), 10);
    assert!(!admission.is_limited_by_tokens());
    assert_eq!(limits.of_model("a"), None);
}

#[tokio::test]
async fn a_limited_request_is_released_with_its_last_clone() {
    let limits = Limits::new(LimitsSection::default(), chrono_tz::UTC, || Time(0)).unwrap();
    let limits = Arc::new(limits);
    let one = || {
        let bucket = Bucket {
            id: "key:1".to_owned(),
            description: "the key k1".to_owned(),
            limit: Limit {
                concurrent_requests: Some(1),
                tokens_per_minute: Some(100),
                ..Limit::default()
            },
        };
        limits.admit(vec![bucket], 10)
    };
    let admission = Admission::from(one().await.unwrap());
    assert!(admission.is_limited_by_tokens());
    let shared = admission.clone();
    drop(admission);
    assert!(one().await.is_err());
    drop(shared);
    assert!(one().await.is_ok());
}
