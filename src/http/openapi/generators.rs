//! Rewrites the document for client generators, which support only a part of JSON Schema. The rewritten document accepts the same
//! values or more. tests/outside runs the generators.

use serde_json::{Map, Value, json};

const SCHEMAS: &str = "#/components/schemas/";
const UNIONS: [&str; 2] = ["oneOf", "anyOf"];
/// Keys whose values are data rather than schemas.
const DATA: [&str; 4] = ["example", "examples", "default", "enum"];
/// The component for an object with any keys.
const ANY_OBJECT: &str = "AnyObject";

pub(crate) fn simplify(document: &mut Value) {
    let schemas = document.pointer_mut("/components/schemas");
    let Some(Value::Object(mut schemas)) = schemas.map(Value::take) else {
        return;
    };
    let mut paths = document["paths"].take();
    let names: Vec<String> = schemas.keys().cloned().collect();
    for name in &names {
        let mut schema = schemas[name].take();
        hoist(&mut schema, &mut schemas);
        schemas[name] = schema;
    }
    hoist(&mut paths, &mut schemas);
    // The first pass flattens nested unions; the second flattens the unions that contained them.
    for _ in 0..2 {
        let known = schemas.clone();
        schemas
            .values_mut()
            .for_each(|schema| spread(schema, &known));
        spread(&mut paths, &known);
    }
    for name in nested(&schemas, &paths) {
        if let Some(schema) = schemas.get_mut(&name).and_then(Value::as_object_mut)
            && let Some(branches) = schema.shift_remove("oneOf")
        {
            schema.insert("anyOf".to_owned(), branches);
        }
    }
    for schema in schemas.values_mut().filter(|schema| !is_free(schema)) {
        name_free_objects(schema);
    }
    name_free_objects(&mut paths);
    schemas.insert(
        ANY_OBJECT.to_owned(),
        json!({"type": "object", "description": "An object with any keys.", "additionalProperties": true}),
    );
    document["paths"] = paths;
    document["components"]["schemas"] = Value::Object(schemas);
}

/// The direct subschemas of a value.
fn within(value: &mut Value) -> Box<dyn Iterator<Item = &mut Value> + '_> {
    match value {
        Value::Array(list) => Box::new(list.iter_mut()),
        Value::Object(map) => {
            let fields = map.iter_mut();
            let fields = fields.filter(|(key, _)| !DATA.contains(&key.as_str()));
            Box::new(fields.map(|(_, value)| value))
        }
        _ => Box::new(std::iter::empty()),
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("{SCHEMAS}{name}")})
}

/// The name of the component that a schema refers to.
fn name_in(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix(SCHEMAS)
}

fn branches(schema: &Value) -> Option<&Vec<Value>> {
    UNIONS
        .iter()
        .find_map(|union| schema.get(union)?.as_array())
}

/// Turns titled objects of unions into components: generators name inline objects twice, or drop the types that contain them.
fn hoist(value: &mut Value, schemas: &mut Map<String, Value>) {
    for union in UNIONS {
        let list = value.get_mut(union).and_then(Value::as_array_mut);
        for branch in list.into_iter().flatten() {
            let Some(fields) = branch.as_object_mut() else {
                continue;
            };
            let is_object = fields.get("type").is_some_and(|kind| kind == "object");
            let is_hoisted = is_object || fields.contains_key("allOf");
            let Some(Value::String(title)) = fields.get("title").cloned() else {
                continue;
            };
            if fields.contains_key("$ref") {
                fields.shift_remove("title");
            } else if is_hoisted {
                fields.shift_remove("title");
                hoist(branch, schemas);
                let mut name = title;
                while schemas.get(&name).is_some_and(|known| known != branch) {
                    name.push_str("Variant");
                }
                let schema = std::mem::replace(branch, reference(&name));
                schemas.insert(name, schema);
            }
        }
    }
    within(value).for_each(|inner| hoist(inner, schemas));
}

/// Strings, numbers, and lists of them.
fn is_plain(schema: &Value) -> bool {
    match schema.get("type").and_then(Value::as_str) {
        Some("string" | "integer" | "number" | "boolean") => true,
        Some("array") => schema.get("items").is_some_and(is_plain),
        _ => false,
    }
}

/// Flattens a union of plain values within another union, directly or as list items: `text | [text | number]` becomes `text |
/// [text] | [number]`.
fn spread(value: &mut Value, known: &Map<String, Value>) {
    let resolve = |schema: &Value| {
        let named = name_in(schema).and_then(|name| known.get(name));
        let branches = branches(named.unwrap_or(schema))?;
        branches.iter().any(is_plain).then(|| branches.clone())
    };
    for union in UNIONS {
        let Some(list) = value.get(union).and_then(Value::as_array) else {
            continue;
        };
        let mut written = Vec::new();
        let mut is_changed = false;
        for branch in list {
            let items = branch.get("items").and_then(resolve);
            let named = name_in(branch).and_then(|_| resolve(branch));
            is_changed |= items.is_some() || named.is_some();
            match (items, named) {
                (Some(inner), _) => {
                    let lists = inner.into_iter();
                    written.extend(lists.map(|inner| json!({"type": "array", "items": inner})));
                }
                (None, Some(inner)) => written.extend(inner),
                (None, None) => written.push(branch.clone()),
            }
        }
        if is_changed && let Some(fields) = value.as_object_mut() {
            fields.shift_remove(union);
            // An empty list matches every variant.
            fields.insert("anyOf".to_owned(), Value::Array(written));
            break;
        }
    }
    within(value).for_each(|inner| spread(inner, known));
}

/// Unions that other unions refer to, directly or as list items. TypeScript generators use type guards there, but write none for
/// `oneOf`.
fn nested(schemas: &Map<String, Value>, paths: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Vec<&Value> = schemas.values().chain([paths]).collect();
    while let Some(value) = open.pop() {
        for branch in branches(value).into_iter().flatten() {
            for schema in [Some(branch), branch.get("items")].into_iter().flatten() {
                if let Some(name) = name_in(schema)
                    && schemas
                        .get(name)
                        .is_some_and(|target| target.get("oneOf").is_some())
                {
                    found.push(name.to_owned());
                }
            }
        }
        match value {
            Value::Array(list) => open.extend(list),
            Value::Object(map) => {
                let fields = map.iter().filter(|(key, _)| !DATA.contains(&key.as_str()));
                open.extend(fields.map(|(_, value)| value));
            }
            _ => {}
        }
    }
    found
}

/// Returns true for an object schema without properties.
fn is_free(schema: &Value) -> bool {
    let Some(fields) = schema.as_object() else {
        return false;
    };
    let is_object = match fields.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => *kinds == ["object", "null"],
        _ => false,
    };
    let known = [
        "type",
        "description",
        "additionalProperties",
        "propertyNames",
    ];
    let more = fields.get("additionalProperties");
    is_object
        && fields.keys().all(|key| known.contains(&key.as_str()))
        && more.is_none_or(|more| *more == json!(true) || *more == json!({}))
}

/// Replaces inline objects with arbitrary keys by one shared component: generators create a type for each, sometimes with equal
/// names.
fn name_free_objects(value: &mut Value) {
    for inner in within(value) {
        if !is_free(inner) {
            name_free_objects(inner);
            continue;
        }
        let mut named = if inner["type"].is_array() {
            json!({"oneOf": [reference(ANY_OBJECT), {"type": "null"}]})
        } else {
            reference(ANY_OBJECT)
        };
        if let Some(description) = inner.get("description") {
            named["description"] = description.clone();
        }
        *inner = named;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simplified(schemas: Value) -> Value {
        let mut document = json!({"paths": {}, "components": {"schemas": schemas}});
        simplify(&mut document);
        document["components"]["schemas"].take()
    }

    #[test]
    fn titled_objects_of_unions_become_components() {
        let text = json!({"type": "object", "title": "TextPart", "properties": {"text": {"type": "string"}}});
        let other = json!({"type": "object", "title": "TextPart", "properties": {"other": {"type": "string"}}});
        let schemas = simplified(json!({
            "Part": {"oneOf": [text, {"$ref": "#/components/schemas/Image", "title": "ImagePart"}]},
            "Same": {"oneOf": [text]},
            "Other": {"oneOf": [other]},
        }));
        let part = json!({"oneOf": [{"$ref": "#/components/schemas/TextPart"}, {"$ref": "#/components/schemas/Image"}]});
        assert_eq!(schemas["Part"], part);
        assert_eq!(schemas["TextPart"]["properties"]["text"]["type"], "string");
        assert_eq!(schemas["Same"]["oneOf"][0], schemas["Part"]["oneOf"][0]);
        assert_eq!(
            schemas["Other"]["oneOf"][0]["$ref"],
            "#/components/schemas/TextPartVariant"
        );
    }

    #[test]
    fn nested_unions_are_flattened_or_become_any_of() {
        let schemas = simplified(json!({
            "Element": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "Prompt": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/components/schemas/Element"}}]},
            "Part": {"oneOf": [{"type": "object", "title": "A", "properties": {"a": {"type": "string"}}}]},
            "Content": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/components/schemas/Part"}}]},
        }));
        let prompt = json!([{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "integer"}}]);
        assert_eq!(schemas["Prompt"]["anyOf"], prompt);
        assert!(
            schemas["Part"].get("anyOf").is_some() && schemas["Content"].get("oneOf").is_some()
        );
    }

    #[test]
    fn objects_with_arbitrary_keys_share_one_component() {
        let schemas = simplified(json!({"A": {"type": "object", "properties": {
            "free": {"type": "object", "description": "d"}, "null": {"type": ["object", "null"]},
            "map": {"type": "object", "additionalProperties": {"type": "string"}}}}}));
        let fields = &schemas["A"]["properties"];
        let any = "#/components/schemas/AnyObject";
        assert_eq!(fields["free"], json!({"$ref": any, "description": "d"}));
        assert_eq!(
            fields["null"],
            json!({"oneOf": [{"$ref": any}, {"type": "null"}]})
        );
        assert_eq!(fields["map"]["additionalProperties"]["type"], "string");
    }
}
