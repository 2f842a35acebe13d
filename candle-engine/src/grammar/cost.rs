//! Recognises grammars that are cheap to compile by their form alone. All others are tried in another process first.

use super::Grammar;
use serde_json::{Map, Value};

/// Expressions up to this length compile quickly; longer ones may contain thousands of character classes.
const EXPRESSION_BYTES: usize = 256;
/// Keywords without constraints.
const NOTES: &[&str] = &[
    "$comment",
    "$schema",
    "default",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
];
/// Keywords whose cost does not depend on their value.
const BOUNDS: &[&str] = &[
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "required",
];
/// JSON has seven types, and the types of a list are compiled separately.
const TYPES_MAX: usize = 7;
/// Keywords whose parts the compiler combines with all sibling keywords.
const COMBINED: &[&str] = &["$ref", "anyOf", "const", "enum"];

/// Returns true if the compilation cost is bounded by the grammar's length, because nothing is intersected or multiplied.
pub(super) fn is_plain(grammar: &Grammar) -> bool {
    match grammar {
        Grammar::Json { schema, .. } => is_plain_schema(schema, true),
        Grammar::Choice(_) => true,
        Grammar::Regex(expression) => expression.len() <= EXPRESSION_BYTES,
        Grammar::Lark(_) => false,
    }
}

fn is_plain_schema(schema: &Value, is_root: bool) -> bool {
    let Value::Object(words) = schema else {
        return schema.is_boolean();
    };
    let combined = words
        .keys()
        .filter(|word| COMBINED.contains(&word.as_str()));
    let is_kept_apart = match combined.count() {
        0 => true,
        1 => words.keys().all(|word| may_stand_beside(word, is_root)),
        _ => false,
    };
    is_kept_apart
        && words
            .iter()
            .all(|(word, value)| is_plain_word(word, value, is_root))
}

/// Returns true if a keyword may occur together with a combined keyword: the keyword itself, and keywords that add nothing to
/// combine.
fn may_stand_beside(word: &str, is_root: bool) -> bool {
    let is_definition = is_root && matches!(word, "$defs" | "definitions");
    COMBINED.contains(&word) || NOTES.contains(&word) || word == "type" || is_definition
}

fn is_plain_word(word: &str, value: &Value, is_root: bool) -> bool {
    let all = |schemas: &Map<String, Value>| {
        schemas
            .values()
            .all(|schema| is_plain_schema(schema, false))
    };
    match word {
        "properties" => value.as_object().is_some_and(all),
        "$defs" | "definitions" => is_root && value.as_object().is_some_and(all),
        "items" | "additionalProperties" => is_plain_schema(value, false),
        "anyOf" => {
            let options = value.as_array();
            options
                .is_some_and(|options| options.iter().all(|option| is_plain_schema(option, false)))
        }
        // Any other location might not be a schema, and was not checked.
        "$ref" => value.as_str().is_some_and(|place| {
            let name = place
                .strip_prefix("#/$defs/")
                .or_else(|| place.strip_prefix("#/definitions/"));
            place == "#" || name.is_some_and(|name| !name.contains(['/', '~', '%']))
        }),
        "type" => value
            .as_array()
            .is_none_or(|types| types.len() <= TYPES_MAX),
        "const" | "enum" => true,
        _ => NOTES.contains(&word) || BOUNDS.contains(&word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn is_plain_json(schema: Value) -> bool {
        is_plain(&Grammar::Json {
            schema,
            lenient: true,
        })
    }

    #[test]
    fn schemas_of_ordinary_types_are_cheap() {
        assert!(is_plain_json(json!({"type": "object"})));
        assert!(is_plain_json(json!({
            "title": "Order", "type": "object", "required": ["id"], "additionalProperties": false,
            "properties": {
                "id": {"type": "integer", "minimum": 1},
                "kind": {"enum": ["a", "b"], "type": "string", "description": "which"},
                "note": {"anyOf": [{"type": "string", "maxLength": 80}, {"type": "null"}], "default": null},
                "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}, "maxItems": 5}
            },
            "$defs": {"part": {"type": "object", "properties": {"of": {"$ref": "#"}}}}
        })));
        assert!(is_plain(&Grammar::Choice(vec!["yes".to_owned()])));
        assert!(is_plain(&Grammar::Regex(r"\d{4}".to_owned())));
    }

    #[test]
    fn an_expensive_schema_keyword_is_recognized_at_any_depth() {
        for hostile in [
            json!({"allOf": [{"type": "string"}]}),
            json!({"type": "integer", "multipleOf": 7}),
            json!({"type": "string", "pattern": "a"}),
            json!({"type": "string", "format": "email"}),
            json!({"oneOf": [{"type": "string"}]}),
            json!({"patternProperties": {"a": {}}}),
            json!({"anyOf": [true, true], "properties": {"a": {}}}),
            json!({"enum": [1, 2], "anyOf": [{"type": "integer"}]}),
            json!({"$ref": "#/$defs/a", "minLength": 2, "$defs": {"a": {}}}),
            json!({"$ref": "#/default", "default": {"pattern": "a"}}),
            json!({"$ref": "other.json"}),
            json!({"type": vec!["object"; 8], "properties": {"a": {}}}),
            json!({"$id": "http://a.b/", "type": "string"}),
            json!({"x-guidance": {}, "type": "string"}),
        ] {
            assert!(!is_plain_json(hostile.clone()), "{hostile}");
            let inner =
                json!({"type": "object", "properties": {"a": {"type": "array", "items": hostile}}});
            assert!(!is_plain_json(inner.clone()), "{inner}");
        }
        assert!(!is_plain(&Grammar::Regex("a".repeat(300))));
        assert!(!is_plain(&Grammar::Lark("start: \"a\"".to_owned())));
    }
}
