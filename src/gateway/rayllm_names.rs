//! Model names and model objects as clients of Aviary and RayLLM know them.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::state::App;
use controller::Route;

/// Resolves an unknown name with `--` for `/`. Returns the model's name and route.
pub fn route(app: &App, name: &str) -> Option<(String, Arc<Route>)> {
    let named = app.config().compat.rayllm.then(|| with_slash(name))?;
    let route = app.handle.route(&named)?;
    Some((named, route))
}

/// Names have at most one slash, and the part after it may contain `--`.
pub fn with_slash(name: &str) -> String {
    name.replacen("--", "/", 1)
}

/// Adds the fields that Aviary's and RayLLM's clients read to OpenAI's object.
pub(crate) fn described(app: &App, name: &str, mut object: Value) -> Value {
    let compat = &app.config().compat;
    if compat.aviary || compat.rayllm {
        // Aviary's client also requires this field.
        object["permission"] = json!([]);
    }
    if !compat.rayllm {
        return object;
    }
    let document = app
        .handle
        .route(name)
        .map(|route| route.entry.to_document());
    let engine = document.map(|mut document| document["engine_config"].take());
    object["rayllm_metadata"] = metadata(name, &engine.unwrap_or_default());
    object
}

/// The keys of `engine_config` that RayLLM showed.
fn metadata(name: &str, engine: &Value) -> Value {
    let is_embedding = engine["type"] == "EmbeddingEngine";
    let kind = if is_embedding {
        "embedding"
    } else {
        "text-generation"
    };
    let mut parts = Map::new();
    parts.insert("model_type".to_owned(), json!(kind));
    for key in ["model_url", "model_description", "max_total_tokens"] {
        parts.insert(key.to_owned(), engine[key].clone());
    }
    json!({"model_id": name, "engine_config": parts})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_two_dashes_become_a_slash() {
        assert_eq!(with_slash("org--name"), "org/name");
        assert_eq!(with_slash("org--my--name"), "org/my--name");
        assert_eq!(with_slash("name"), "name");
    }

    #[test]
    fn model_metadata_has_only_the_keys_that_rayllm_published() {
        let engine =
            json!({"type": "EmbeddingEngine", "max_total_tokens": 512, "env": {"TOKEN": "x"}});
        let parts = metadata("a/b", &engine);
        assert_eq!(parts["model_id"], "a/b");
        assert_eq!(
            parts["engine_config"],
            json!({"model_type": "embedding", "model_url": null, "model_description": null, "max_total_tokens": 512})
        );
    }
}
