//! Reads the schemas of arguments from the OpenAPI document.

use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;

/// References in references are followed this far.
const DEPTH_MAX: usize = 8;

pub(crate) struct Schemas(Value);

impl Schemas {
    pub fn new(document: &OpenApi) -> Schemas {
        Schemas(serde_json::to_value(document).unwrap_or_default())
    }

    /// The parameters in the query of a `GET` route, as an object.
    pub fn query(&self, path: &str) -> JsonObject {
        let parameters = self.0["paths"][path]["get"]["parameters"].as_array();
        let mut properties = Map::new();
        let mut required = Vec::new();
        for parameter in parameters.into_iter().flatten() {
            let Some(name) = parameter["name"]
                .as_str()
                .filter(|_| parameter["in"] == "query")
            else {
                continue;
            };
            let mut schema = self.resolved(&parameter["schema"], 0);
            if let (Value::Object(schema), Some(text)) = (&mut schema, parameter.get("description"))
            {
                schema.insert("description".to_owned(), text.clone());
            }
            properties.insert(name.to_owned(), schema);
            if parameter["required"] == true {
                required.push(name);
            }
        }
        let mut schema = JsonObject::new();
        schema.insert("type".to_owned(), json!("object"));
        schema.insert("properties".to_owned(), Value::Object(properties));
        if !required.is_empty() {
            schema.insert("required".to_owned(), json!(required));
        }
        schema
    }

    /// A schema of the document with all that it refers to.
    pub fn component(&self, name: &str) -> JsonObject {
        let schema = &self.0["components"]["schemas"][name];
        match self.resolved(schema, 0) {
            Value::Object(schema) => schema,
            _ => JsonObject::new(),
        }
    }

    fn resolved(&self, schema: &Value, depth: usize) -> Value {
        match schema {
            Value::Object(object) => {
                let target = object.get("$ref").and_then(Value::as_str);
                let found = target.and_then(|target| self.0.pointer(target.strip_prefix('#')?));
                if let Some(found) = found {
                    return if depth < DEPTH_MAX {
                        self.resolved(found, depth + 1)
                    } else {
                        json!({})
                    };
                }
                let fields = object.iter();
                let fields =
                    fields.map(|(name, field)| (name.clone(), self.resolved(field, depth)));
                Value::Object(fields.collect())
            }
            Value::Array(items) => {
                let items = items.iter().map(|item| self.resolved(item, depth));
                Value::Array(items.collect())
            }
            other => other.clone(),
        }
    }
}
