//! Checks JSON against the schemas of an OpenAPI document. Panics on unknown keywords instead of ignoring them.
//! tests/clients/openapi_document.py checks patterns.

use serde_json::{Map, Value};

/// Keywords without effect on validation.
const NOTES: [&str; 16] = [
    "title",
    "description",
    "default",
    "example",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "format",
    "discriminator",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "pattern",
    "propertyNames",
    "xml",
];

/// An OpenAPI document.
pub struct Document(pub Value);

impl Document {
    /// # Panics
    /// If the text is not JSON.
    pub fn read(text: &str) -> Document {
        Document(serde_json::from_str(text).expect("the document is JSON"))
    }

    /// The schema of an operation's request body, if any.
    pub fn request(&self, method: &str, path: &str, kind: &str) -> Option<&Value> {
        let content = &self.operation(method, path)?["requestBody"]["content"];
        content.get(kind)?.get("schema")
    }

    /// The schema of an operation's response.
    pub fn response_schema(
        &self,
        method: &str,
        path: &str,
        status: u16,
        kind: &str,
    ) -> Option<&Value> {
        let responses = &self.operation(method, path)?["responses"];
        let response = self.resolved(responses.get(status.to_string())?);
        response["content"].get(kind)?.get("schema")
    }

    fn operation(&self, method: &str, path: &str) -> Option<&Value> {
        self.0["paths"].get(path)?.get(method.to_lowercase())
    }

    /// Resolves a reference.
    pub fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        let Some(reference) = value.get("$ref").and_then(Value::as_str) else {
            return value;
        };
        let pointer = reference.trim_start_matches('#');
        let found = self.0.pointer(pointer);
        self.resolved(found.unwrap_or_else(|| panic!("{reference} leads nowhere")))
    }

    /// # Errors
    /// The position in the value, and the problem there.
    pub fn check(&self, schema: &Value, value: &Value) -> Result<(), String> {
        self.check_at(schema, value, "$")
    }

    fn check_at(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let keywords = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Object(keywords) => keywords,
            other => panic!("{other} is not a schema"),
        };
        for (keyword, wanted) in keywords {
            self.keyword(keyword, wanted, keywords, value, at)?;
        }
        Ok(())
    }

    fn keyword(
        &self,
        keyword: &str,
        wanted: &Value,
        all: &Map<String, Value>,
        value: &Value,
        at: &str,
    ) -> Result<(), String> {
        let number =
            |holds: fn(f64, f64) -> bool, found: Option<f64>| match (found, wanted.as_f64()) {
                (Some(found), Some(bound)) => holds(found, bound),
                _ => true,
            };
        let is_at_least: fn(f64, f64) -> bool = |found, bound| found >= bound;
        let is_at_most: fn(f64, f64) -> bool = |found, bound| found <= bound;
        #[expect(clippy::cast_precision_loss, reason = "lengths are short")]
        let length = |count: Option<usize>| count.map(|count| count as f64);
        let letters = || length(value.as_str().map(|text| text.chars().count()));
        let elements = || length(value.as_array().map(Vec::len));
        let fields = || length(value.as_object().map(Map::len));
        let holds = match keyword {
            note if NOTES.contains(&note) || note.starts_with("x-") => true,
            "$ref" => {
                let reference = serde_json::json!({"$ref": wanted});
                return self.check_at(self.resolved(&reference), value, at);
            }
            "type" => match wanted {
                Value::Array(types) => types.iter().any(|one| is_of(one, value)),
                one => is_of(one, value),
            },
            "enum" => wanted.as_array().is_some_and(|all| all.contains(value)),
            "const" => wanted == value,
            "minimum" => number(is_at_least, value.as_f64()),
            "maximum" => number(is_at_most, value.as_f64()),
            "exclusiveMinimum" => number(|found, bound| found > bound, value.as_f64()),
            "exclusiveMaximum" => number(|found, bound| found < bound, value.as_f64()),
            "minLength" => number(is_at_least, letters()),
            "maxLength" => number(is_at_most, letters()),
            "minItems" => number(is_at_least, elements()),
            "maxItems" => number(is_at_most, elements()),
            "uniqueItems" => {
                let all = value.as_array().into_iter().flatten().enumerate();
                let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
                wanted != true || all.into_iter().all(|(nth, one)| !list[..nth].contains(one))
            }
            "minProperties" => number(is_at_least, fields()),
            "maxProperties" => number(is_at_most, fields()),
            "required" => return required(wanted, value, at),
            "properties" => {
                for (name, schema) in wanted.as_object().into_iter().flatten() {
                    if let Some(field) = value.get(name) {
                        self.check_at(schema, field, &format!("{at}.{name}"))?;
                    }
                }
                true
            }
            "additionalProperties" => return self.additional(wanted, all, value, at),
            "items" => {
                for (nth, element) in value.as_array().into_iter().flatten().enumerate() {
                    self.check_at(wanted, element, &format!("{at}[{nth}]"))?;
                }
                true
            }
            "allOf" => {
                for schema in wanted.as_array().into_iter().flatten() {
                    self.check_at(schema, value, at)?;
                }
                true
            }
            "oneOf" | "anyOf" => return self.choice(keyword, wanted, value, at),
            unknown => panic!("the keyword {unknown} is not known here"),
        };
        if holds {
            Ok(())
        } else {
            Err(format!("{at}: {keyword} is {wanted}, not {}", short(value)))
        }
    }

    fn additional(
        &self,
        wanted: &Value,
        all: &Map<String, Value>,
        value: &Value,
        at: &str,
    ) -> Result<(), String> {
        let known = all.get("properties").and_then(Value::as_object);
        let is_known = |name: &str| known.is_some_and(|known| known.contains_key(name));
        for (name, field) in value.as_object().into_iter().flatten() {
            match wanted {
                _ if is_known(name) => {}
                Value::Bool(false) => return Err(format!("{at}: {name} is not allowed")),
                schema => self.check_at(schema, field, &format!("{at}.{name}"))?,
            }
        }
        Ok(())
    }

    fn choice(&self, keyword: &str, all: &Value, value: &Value, at: &str) -> Result<(), String> {
        let schemas = all.as_array().into_iter().flatten();
        let results: Vec<_> = schemas
            .map(|schema| self.check_at(schema, value, at))
            .collect();
        let fitting = results.iter().filter(|result| result.is_ok()).count();
        match fitting {
            1 => Ok(()),
            0 => {
                // The deepest error is the most informative.
                let problems = results.into_iter().filter_map(Result::err);
                let deepest =
                    problems.max_by_key(|problem| problem.split(':').next().map_or(0, str::len));
                Err(deepest.unwrap_or_else(|| format!("{at}: {keyword} is empty")))
            }
            _ if keyword == "anyOf" => Ok(()),
            several => Err(format!("{at}: {several} of oneOf fit {}", short(value))),
        }
    }
}

fn is_of(kind: &Value, value: &Value) -> bool {
    match kind.as_str().unwrap_or_default() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => {
            value.is_i64()
                || value.is_u64()
                || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is not a type"),
    }
}

fn required(wanted: &Value, value: &Value, at: &str) -> Result<(), String> {
    let Some(fields) = value.as_object() else {
        return Ok(());
    };
    let mut names = wanted
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    match names.find(|name| !fields.contains_key(*name)) {
        None => Ok(()),
        Some(name) => Err(format!("{at}: {name} is missing in {}", short(value))),
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(300).collect()
}
