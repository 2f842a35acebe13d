//! Tests of `events.rs`.

use super::*;

#[test]
fn the_last_event_id_is_parsed_and_invalid_ids_are_refused() {
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
fn an_unknown_event_kind_is_refused_with_the_existing_kinds() {
    let read = |json: &str| EventsQuery::read(&mut Fields::parse(json.as_bytes()).unwrap());
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

#[test]
fn a_group_longer_than_the_document_allows_is_refused_with_its_length() {
    let read = |characters: usize| {
        let query = format!(r#"{{"group":"{}"}}"#, "é".repeat(characters));
        EventsQuery::read(&mut Fields::parse(query.as_bytes()).unwrap())
    };
    assert!(read(GROUP_CHARS_MAX).is_ok());
    let error = read(GROUP_CHARS_MAX + 1).expect_err("too long").body.error;
    assert_eq!(error.param.as_deref(), Some("group"));
    assert!(
        error.message.contains("1001 characters"),
        "{}",
        error.message
    );
}
