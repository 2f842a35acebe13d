//! `POST /api/show`: a model's details, from its file and the headers of its weights.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::{Map, Value, json};

use super::cards::{Cards, details};
use super::listing::modified_at;
use api_types::error::Failure;
use api_types::schemas::ollama::OllamaModelRequest;
use catalog::{Entry, ExtraRoute, ModelCard};
use dialect::RequestFields;
use dialect::ollama::{bare_name, name_of, tagged};
use gateway::auth::User;
use gateway::inference::admission;
use gateway::inference::request::receiving;
use gateway::openapi::OllamaErrors;
use gateway::state::App;

/// Describe a model (Ollama)
///
/// The content of the model's file and of the headers of its weights. Nothing is loaded for this.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/api/show", tag = "ollama", operation_id = "ollama_show", security(("user_key" = [])),
    request_body(content = OllamaModelRequest, example = json!({"model": "tiny-chat"})),
    responses((status = 200, description = "The model", body = Object, example = json!({
        "modelfile": "FROM tiny-chat:latest\n", "parameters": "", "modified_at": "2026-01-01T00:00:00.000Z",
        "details": {"parent_model": "", "format": "safetensors", "family": "llama", "families": ["llama"],
            "parameter_size": "745K", "quantization_level": "F16"},
        "model_info": {"general.architecture": "llama", "llama.context_length": 512},
        "capabilities": ["completion"]
    })), OllamaErrors)
)]
pub(super) async fn show(
    State(app): State<App>,
    user: User,
    Extension(cards): Extension<Arc<Cards>>,
    request: Request<Body>,
) -> Result<Response, Failure> {
    let body = receiving::read(&app, request.into_body()).await;
    let body = body.map_err(|(_, failure)| failure)?;
    let bytes = body.len();
    let name = move || name_of(&mut RequestFields::parse(&body)?);
    let named = app.reading.run(bytes, name).await?;
    let found = find(&app, &user, &named)?;
    let started = app.started_unix_seconds;
    let read = move |cards: &Cards| describe(&found, &cards.card(&found.entry), started);
    Ok(Json(cards.read(read).await?).into_response())
}

/// A model that the caller may use.
pub(super) struct Found {
    pub name: String,
    pub entry: Arc<Entry>,
}

/// Finds a model by name, with or without Ollama's default tag.
pub(super) fn find(app: &App, user: &User, named: &str) -> Result<Found, Failure> {
    let of_name = |name: &str| app.handle.route(name).map(|route| (name.to_owned(), route));
    let found = of_name(named).or_else(|| of_name(bare_name(named)));
    let (name, route) = found.ok_or_else(|| admission::unknown(app, user, named))?;
    admission::allowed(app, user, &name, &route.entry)?;
    let entry = Arc::clone(&route.entry);
    Ok(Found { name, entry })
}

fn describe(found: &Found, card: &ModelCard, started: u64) -> Value {
    let Found { name, entry } = found;
    let parent = match entry.adapter(name) {
        Some(_) => tagged(&entry.name),
        None => String::new(),
    };
    let parameters = parameters(entry);
    let lines = parameters
        .iter()
        .map(|(name, value)| format!("PARAMETER {name} {value}\n"));
    let modelfile = format!("FROM {}\n{}", tagged(name), lines.collect::<String>());
    let shown = parameters
        .iter()
        .map(|(name, value)| format!("{name:<30} {value}"));
    json!({
        "modelfile": modelfile,
        "parameters": shown.collect::<Vec<String>>().join("\n"),
        "modified_at": modified_at(card, started),
        "details": details(card, &parent),
        "model_info": model_info(card, entry),
        "capabilities": capabilities(entry),
    })
}

/// The model file's defaults for requests, under Ollama's names.
fn parameters(entry: &Entry) -> Vec<(String, String)> {
    let generation = &entry.generation;
    let named = |field: &String| match field.as_str() {
        "max_tokens" => "num_predict".to_owned(),
        "repetition_penalty" => "repeat_penalty".to_owned(),
        other => other.to_owned(),
    };
    let numbers = generation.defaults.iter();
    let numbers = numbers.map(|(field, value)| (named(field), value.to_string()));
    let stops = generation.stops.iter();
    let stops = stops.map(|stop| ("stop".to_owned(), json!(stop).to_string()));
    let context = entry.recipe.context();
    let context = context.map(|tokens| ("num_ctx".to_owned(), tokens.to_string()));
    context.into_iter().chain(numbers).chain(stops).collect()
}

/// Properties of the architecture, under GGUF's keys.
fn model_info(card: &ModelCard, entry: &Entry) -> Value {
    let mut entries = Map::new();
    entries.insert("general.basename".to_owned(), json!(entry.name));
    if let Some(count) = card.parameters {
        entries.insert("general.parameter_count".to_owned(), json!(count));
    }
    let family = card.family.as_deref();
    if let Some(family) = family {
        entries.insert("general.architecture".to_owned(), json!(family));
        for (name, number) in [
            ("context_length", card.context),
            ("embedding_length", card.hidden),
            ("block_count", card.layers),
        ] {
            if let Some(number) = number {
                entries.insert(format!("{family}.{name}"), json!(number));
            }
        }
    }
    Value::Object(entries)
}

/// Capabilities from the engine's routes and the model's file.
fn capabilities(entry: &Entry) -> Vec<String> {
    let mut entries = Vec::new();
    if entry.recipe.generates() {
        entries.push("completion".to_owned());
    } else if entry.recipe.has(ExtraRoute::Embeddings) {
        entries.push("embedding".to_owned());
    }
    for word in entry.capabilities() {
        if !entries.iter().any(|known| known == word) {
            entries.push(word.to_owned());
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::{Reference, Source};
    use config::Config;

    fn described(document: Value) -> Value {
        let (config, reference) = (Config::default(), Reference::default());
        let read = Entry::from_document(&document, Source::Registered, &config, &reference);
        let entry = Arc::new(read.unwrap().0);
        let card = ModelCard {
            family: Some("llama".to_owned()),
            context: Some(8192),
            parameters: Some(1_500_000_000),
            ..ModelCard::default()
        };
        let name = entry.name.clone();
        describe(&Found { name, entry }, &card, 0)
    }

    #[test]
    fn a_model_is_described_by_its_file_and_its_card() {
        let document = json!({"engine_config": {"model_id": "org/m", "type": "LlamaCppEngine", "model_path": "/m.gguf",
                "max_total_tokens": 4096,
                "generation": {"generate_kwargs": {"temperature": 0.5, "repeat_penalty": 1.1, "max_new_tokens": 64},
                    "stopping_sequences": ["</s>"]}},
            "pool_config": {"labels": {"capabilities": "tools, vision"}}});
        let entries = described(document);
        let file = entries["modelfile"].as_str().unwrap();
        assert!(
            file.starts_with("FROM org/m:latest\nPARAMETER num_ctx 4096\n"),
            "{file}"
        );
        for line in [
            "temperature 0.5",
            "repeat_penalty 1.1",
            "num_predict 64",
            "stop \"</s>\"",
        ] {
            assert!(file.contains(&format!("PARAMETER {line}\n")), "{file}");
        }
        assert_eq!(
            entries["capabilities"],
            json!(["completion", "tools", "vision"])
        );
        assert_eq!(entries["details"]["parameter_size"], "1.5B");
        assert_eq!(entries["model_info"]["llama.context_length"], 8192);
        assert_eq!(entries["details"]["quantization_level"], "");
    }

    #[test]
    fn an_embedding_model_has_the_embedding_capability() {
        let document = json!({"engine_config": {"model_id": "e", "type": "EmbeddingEngine", "model_path": "/e"}});
        assert_eq!(described(document)["capabilities"], json!(["embedding"]));
    }
}
