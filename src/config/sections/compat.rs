//! Enables routes for clients of older systems (docs/reference/compatibility.md). All are off by default.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problems::Problem;

/// Routes of older systems, for clients that cannot be changed yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CompatSection {
    /// Aviary up to 0.1: `query`, `query/batch`, `stream` and `metadata` with the model's name in the path, and `models`.
    pub aviary: bool,
    /// NCSA's LLM Serving: `admin/get_model` and similar routes below the base path, with the key in the body.
    pub ncsa: bool,
    /// Ollama's API below `/api/`, with and without the base path (docs/guides/ollama.md).
    pub ollama: bool,
    /// RayLLM: names with `--` for `/` in `/v1/models/{id}`, DELETE on it, and `/v1/health_check`.
    pub rayllm: bool,
    /// The GPT-J pipeline: `POST run` and `GET pending` below the base path.
    pub run: bool,
    /// The model for `run` requests that name none; null: the only model of the catalogue.
    pub run_model: Option<String>,
}

impl CompatSection {
    pub(crate) fn problem(&self) -> Option<Problem> {
        let is_empty = self.run_model.as_ref()?.trim().is_empty();
        is_empty.then(|| {
            let message =
                "is empty; name a model of the catalogue such as tiny-chat, or write null";
            Problem::new("compat.run_model", message)
        })
    }

    pub(crate) fn notice(&self) -> Option<String> {
        let idle = self.run_model.is_some() && !self.run;
        idle.then(|| "compat.run_model has no effect while compat.run is false".to_owned())
    }
}
