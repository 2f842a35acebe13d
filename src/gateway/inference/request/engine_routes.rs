//! The optional routes of a model's engine. Requests for other routes are refused before anything is loaded for them.

use api_types::error::{ErrorKind, Failure};
use catalog::{ENGINES, EngineKind, ExtraRoute, ModelTask, Recipe};
use controller::Route;

/// Refuses a route that the model's engine does not have.
pub fn check_has(route: &Route, extra: ExtraRoute) -> Result<(), Failure> {
    let recipe = &route.entry.recipe;
    if recipe.has(extra) {
        return Ok(());
    }
    let having = ENGINES
        .iter()
        .filter(|engine| engine.routes.contains(&extra));
    let mut having: Vec<&str> = having.map(|engine| engine.name()).collect();
    if let Some(model) = embedded_with(extra) {
        having.push(model);
    }
    having.push("CommandEngine");
    Err(has_not(route, extra.path(), &having))
}

/// Refuses generation requests if the model does not generate text.
pub fn check_generates(route: &Route, path: &str) -> Result<(), Failure> {
    if route.entry.recipe.generates() {
        return Ok(());
    }
    let having = ENGINES
        .iter()
        .filter(|engine| engine.kind != EngineKind::Tei);
    let mut having: Vec<&str> = having.map(|engine| engine.name()).collect();
    having.insert(0, "CandleEngine with a model that writes texts");
    Err(has_not(route, path, &having))
}

/// The kind of embedded model that has the route.
fn embedded_with(extra: ExtraRoute) -> Option<&'static str> {
    match extra {
        ExtraRoute::Embeddings => Some("CandleEngine with a model for embeddings"),
        ExtraRoute::Rerank | ExtraRoute::Score => Some("CandleEngine with a model for ranks"),
        ExtraRoute::Transcriptions | ExtraRoute::Translations => {
            Some("CandleEngine with a Whisper model")
        }
        _ => None,
    }
}

fn has_not(route: &Route, path: &str, having: &[&str]) -> Failure {
    let engine = match &route.entry.recipe {
        Recipe::Server(server) => format!("{}, which does not have", server.engine.name()),
        Recipe::Candle(candle) => match candle.serves {
            Some(ModelTask::Embeddings) => {
                "the embedded engine for embeddings, which does not have".to_owned()
            }
            Some(ModelTask::Ranks) => {
                "the embedded engine for ranks, which does not have".to_owned()
            }
            Some(ModelTask::Speech) => {
                "the embedded engine for speech, which does not have".to_owned()
            }
            Some(ModelTask::Texts) | None => "the embedded engine, which does not have".to_owned(),
        },
        Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => {
            "its engine, which does not have".to_owned()
        }
    };
    Failure::new(
        ErrorKind::NotImplemented,
        "not_implemented",
        format!(
            "{} runs on {engine} {path}; model types that may have it: {}",
            route.entry.name,
            having.join(", ")
        ),
    )
}
