//! Tests of `models.rs`.

use super::*;
use pool::{Override, Span};

fn patch(json: &str) -> Result<ModelPatch, Failure> {
    ModelPatch::read(&mut Fields::parse(json.as_bytes())?)
}

#[test]
fn absent_fields_keep_their_value_and_null_clears_it() {
    let over = Override {
        priority: Some(Priority(3)),
        keep_hot: Some(Span::from_secs(60)),
        expires: Some(Time(5_000)),
    };
    let change = patch(r#"{"priority":null,"lease":"2h"}"#).unwrap();
    let newer = changed(&change, Time(1_000)).on(&over);
    let expected = Override {
        priority: None,
        keep_hot: over.keep_hot,
        expires: Some(Time(7_201_000)),
    };
    assert_eq!(newer, expected);
    let cleared = patch(r#"{"keep_hot":null,"lease":null}"#).unwrap();
    let expected = Override {
        priority: Some(Priority(3)),
        keep_hot: None,
        expires: None,
    };
    assert_eq!(changed(&cleared, Time(1_000)).on(&over), expected);
}

#[test]
fn an_empty_change_is_refused() {
    assert!(
        patch("{}")
            .expect_err("empty")
            .body
            .error
            .message
            .contains("nothing to change")
    );
}

#[test]
fn a_document_with_a_key_given_twice_is_refused() {
    let twice = br#"{"engine_config":{},"engine_config":{}}"#;
    assert!(
        document(twice)
            .expect_err("twice")
            .body
            .error
            .message
            .contains("given twice")
    );
    assert!(document(b"[1]").is_err());
}
