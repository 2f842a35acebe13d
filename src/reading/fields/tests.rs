//! Tests of `fields.rs`.

use super::*;
use crate::{shortened, unknown_fields};
use serde_json::json;

#[derive(Debug)]
enum Plain {}

/// Errors are a path and a message.
impl FieldErrors for Plain {
    type Error = (String, String);

    fn parse(body: &[u8]) -> Result<Map<String, Value>, Self::Error> {
        serde_json::from_slice(body).map_err(|error| (String::new(), error.to_string()))
    }

    fn invalid(path: String, message: String) -> Self::Error {
        (path, message)
    }

    fn unknown(paths: &[String], near: Option<String>, _: &[&'static str]) -> Self::Error {
        let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        (paths[0].clone(), unknown_fields(paths) + &near)
    }
}

fn fields_at(at: &str, value: Value) -> Fields<Plain> {
    Fields::new(at, value).unwrap()
}

#[test]
fn an_invalid_missing_or_unknown_field_is_reported_with_its_full_path() {
    let value = json!({"a": 1, "n": null, "x": true, "y": 0, "z": {"b": 1.5}});
    let mut fields = fields_at("messages[2]", value);
    assert_eq!(fields.text("a").unwrap_err().0, "messages[2].a");
    assert_eq!(fields.text("n").unwrap(), None);
    assert_eq!(fields.need_text("b").unwrap_err().0, "messages[2].b");
    assert_eq!(fields.count("y").unwrap_err().0, "messages[2].y");
    let mut inner = fields.object("z").unwrap().unwrap();
    assert_eq!(inner.integer("b", 0..=9).unwrap_err().0, "messages[2].z.b");
    assert!(fields.finish().unwrap_err().1.contains("messages[2].x"));
    assert!(Fields::<Plain>::new("z", json!([])).is_err());
    assert!(Fields::<Plain>::parse(b"[]").is_err());
}

#[test]
fn integers_may_be_written_as_floats_without_a_fraction() {
    let value = json!({"a": 2.0, "b": 2.5, "c": -2.0, "d": 1e300, "e": u64::MAX, "f": 0.0});
    let read = |name| fields_at("", value.clone()).count(name);
    assert_eq!(read("a").unwrap(), Some(2));
    for name in ["b", "c", "d", "e", "f"] {
        assert!(read(name).is_err(), "{name}");
    }
    let mut fields = fields_at("", value);
    assert_eq!(fields.integer("f", 0..=20).unwrap(), Some(0));
    assert_eq!(fields.integer("c", -2..=-1).unwrap(), Some(-2));
    assert_eq!(fields.integer("e", 0..=u64::MAX).unwrap(), Some(u64::MAX));
}

#[test]
fn a_value_outside_the_range_or_the_choices_is_refused_with_what_is_allowed() {
    let value = json!({"a": 6, "b": 2.5, "c": "red", "d": [1], "e": 3});
    let mut fields = fields_at("", value);
    for (refusal, allowed) in [
        (fields.integer("a", 0..=5).map(drop), "from 0 to 5"),
        (fields.number_in("b", 0.0..=2.0).map(drop), "from 0 to 2"),
        (
            fields.one_of("c", &["green", "blue"]).map(drop),
            "one of green, blue",
        ),
        (fields.texts("d").map(drop), "a list of texts"),
        (fields.flag("e").map(drop), "true or false"),
    ] {
        let message = refusal.unwrap_err().1;
        assert!(message.contains(allowed), "{message}");
    }
}

#[test]
fn values_of_a_query_are_parsed_from_text() {
    let query = json!({"a": "7", "b": "true", "c": "x"});
    let mut fields = Fields::<Plain>::from_query(query.as_object().unwrap().clone());
    assert_eq!(fields.integer("a", 0..=9).unwrap(), Some(7));
    assert_eq!(fields.flag("b").unwrap(), Some(true));
    assert!(fields.flag("c").is_err());
    assert!(fields_at("", json!({"b": "true"})).flag("b").is_err());
}

#[test]
fn leftover_fields_are_reported_unless_their_value_is_empty() {
    let value = json!({"a": 1, "b": false, "c": "", "d": [], "e": {}, "f": null, "g": "x"});
    let mut fields = fields_at("options", value);
    fields.take("a");
    assert_eq!(fields.left(), ["options.g"]);
}

#[test]
fn unknown_fields_are_named_up_to_a_number_with_the_probable_name() {
    let mut fields = fields_at("", json!({"temprature": 1, "b": 2, "n": null}));
    fields.take("temperature");
    let expected = "unknown field: temprature, b; did you mean temperature?";
    assert_eq!(fields.finish().unwrap_err().1, expected);
    let many: Vec<String> = (0..10).map(|nth| "é".repeat(150 + nth)).collect();
    let message = unknown_fields(&many);
    assert!(message.ends_with(" and 2 more"), "{message}");
    assert!(message.len() < 2_000, "{message}");
}

#[test]
fn ignored_values_and_fields_are_reported_without_indices() {
    let value = json!({"type": "forever", "mine": {"a": 1}, "n": null, "e": []});
    let mut fields = fields_at("messages[12].content[3]", value);
    let mut ignored = IgnoredFields::default();
    assert_eq!(
        fields.hint("type", &["ephemeral"], &mut ignored).unwrap(),
        None
    );
    assert!(
        fields_at("", json!({"mine": {}}))
            .hint("mine", &["a"], &mut ignored)
            .is_err()
    );
    fields.drop_rest(&mut ignored);
    let mut again = fields_at("messages[9].content[0]", json!({"mine": 1}));
    assert_eq!(again.hint("n", &["a"], &mut ignored).unwrap(), None);
    again.drop_rest(&mut ignored);
    let expected = ["messages.content.type", "messages.content.mine"];
    assert_eq!(ignored.names(), expected);
}

#[test]
fn an_unsupported_field_is_refused_unless_its_value_has_no_effect() {
    let mut fields = fields_at("", json!({"a": "off", "b": "on"}));
    fields.refuse("a", &[json!("off")], "no").unwrap();
    let (_, message) = fields
        .refuse("b", &[json!("off")], "it has no place")
        .unwrap_err();
    assert!(message.contains("it has no place"));
}

#[test]
fn long_texts_are_shortened_at_a_character_boundary() {
    assert_eq!(shortened("short"), "short");
    assert_eq!(shortened(&"é".repeat(500)).chars().count(), 61);
}
