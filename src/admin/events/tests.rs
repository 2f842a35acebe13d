//! Tests of `events.rs`.

use super::*;

#[test]
fn a_lost_stream_goes_on_where_it_was() {
    let with = |value: &str| {
        HeaderMap::from_iter([("last-event-id".parse().unwrap(), value.parse().unwrap())])
    };
    assert_eq!(last_event(&HeaderMap::new()).unwrap(), None);
    assert_eq!(last_event(&with("")).unwrap(), None);
    assert_eq!(last_event(&with("118")).unwrap(), Some(118));
    for wrong in ["-1", "abc", "1.5", "99999999999999999999"] {
        assert!(last_event(&with(wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn a_kind_that_does_not_exist_is_refused_with_those_that_do() {
    let read = |json: &str| EventsQuery::read(&mut Fields::of_json(json.as_bytes()).unwrap());
    for kind in RecordKind::ALL.map(RecordKind::name) {
        let query = format!(r#"{{"kind":"{kind}"}}"#);
        assert_eq!(read(&query).unwrap().kind, Some(kind));
    }
    let message = read(r#"{"kind":"evicted"}"#)
        .expect_err("no kind")
        .body
        .error
        .message;
    assert!(
        message.contains("load_failed") && message.contains("lease_ended"),
        "{message}"
    );
    assert!(read(r#"{"limit":1001}"#).is_err());
    assert!(read(r#"{"after":-1}"#).is_err());
}
