//! Finds out whether compiling a grammar is cheap whatever it says, from its form alone. What is not certain to be cheap is
//! tried in another process first.

use super::Grammar;
use serde_json::{Map, Value};

/// Expressions of so many bytes are read at once; longer ones may name thousands of classes of letters.
const EXPRESSION_BYTES: usize = 256;
/// Words that constrain nothing.
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
/// Words whose cost does not grow with their number.
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
/// JSON has seven types, and each of a list is compiled apart.
const TYPES_MAX: usize = 7;
/// Words whose parts the compiler combines with all that stands beside them.
const COMBINED: &[&str] = &["$ref", "anyOf", "const", "enum"];

/// Whether its cost is bounded by its length: it has nothing that is intersected or multiplied.
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

/// Beside a word whose parts are combined with all others: itself, and what adds nothing to combine.
fn may_stand_beside(word: &str, is_root: bool) -> bool {
    let is_definition = is_root && matches!(word, "$defs" | "definitions");
    COMBINED.contains(&word) || NOTES.contains(&word) || word == "type" || is_definition
}

fn is_plain_word(word: &str, value: &Value, is_root: bool) -> bool {
    let all = |schemas: &Map<String, Value>| schemas.values().all(|it| is_plain_schema(it, false));
    match word {
        "properties" => value.as_object().is_some_and(all),
        "$defs" | "definitions" => is_root && value.as_object().is_some_and(all),
        "items" | "additionalProperties" => is_plain_schema(value, false),
        "anyOf" => {
            let options = value.as_array();
            options.is_some_and(|options| options.iter().all(|it| is_plain_schema(it, false)))
        }
        // Any other place may be one that is no schema, and was not looked at.
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
    fn the_schemas_of_ordinary_types_are_plain() {
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
    fn what_may_multiply_is_not_plain_wherever_it_stands() {
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
