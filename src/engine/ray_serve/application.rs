//! The Ray Serve application of one replica: its name, its configuration, and the address of its requests.

use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::connection::{Endpoint, Remote};
use catalog::{RayPlace, RayServeRecipe, RemoteRecipe, RemoteUrl, ServeApplication};
use pool::ReplicaId;

/// Variables in the application's environment, from which a later controller recognises it.
pub(crate) const MODEL: &str = "MODEL_POOL_MODEL";
pub(crate) const ARGUMENTS: &str = "MODEL_POOL_ARGUMENTS";
const LLM: &str = "ray.serve.llm:build_openai_app";
/// The path of the OpenAI routes in nearly all applications.
const OPENAI: &str = "/v1";

pub(crate) fn name(place: &RayPlace, replica: ReplicaId) -> String {
    format!("{}{}", place.prefix(), replica.0)
}

/// The replica of an application with this name, if the name belongs to the pool.
pub(crate) fn replica_of(place: &RayPlace, name: &str) -> Option<ReplicaId> {
    let number = name.strip_prefix(&place.prefix())?;
    number.parse().ok().map(ReplicaId)
}

/// The configuration that Serve deploys.
///
/// # Errors
/// None in practice: all parts are JSON.
pub(crate) fn config(
    recipe: &RayServeRecipe,
    name: &str,
    model: &str,
    arguments: &str,
) -> Result<Box<RawValue>, serde_json::Error> {
    let env = recipe.env.iter();
    let env = env.map(|(name, value)| (name.clone(), Value::from(value.0.as_str())));
    let own = [(MODEL, model), (ARGUMENTS, arguments)];
    let own = own.map(|(name, value)| (name.to_owned(), Value::from(value)));
    let env: Map<String, Value> = env.chain(own).collect();
    let mut runtime_env = recipe.runtime_env.clone();
    runtime_env.insert("env_vars".to_owned(), Value::Object(env));
    let mut config = json!({
        "name": name,
        "route_prefix": route(name),
        "runtime_env": runtime_env,
    });
    match &recipe.application {
        ServeApplication::Llm {
            source,
            engine_kwargs,
            accelerator_type,
            seats,
        } => {
            let served = recipe.served_model_name.as_deref().unwrap_or(model);
            let mut llm = json!({
                "model_loading_config": {"model_id": served, "model_source": source},
                "engine_kwargs": engine_kwargs,
                // The pool scales by adding applications.
                "deployment_config": {"num_replicas": 1, "max_ongoing_requests": seats},
            });
            if let Some(kind) = accelerator_type {
                llm["accelerator_type"] = json!(kind);
            }
            config["import_path"] = json!(LLM);
            config["args"] = json!({"llm_configs": [llm]});
        }
        ServeApplication::Own {
            import_path,
            args,
            deployments,
        } => {
            config["import_path"] = json!(import_path);
            config["args"] = json!(args);
            if !deployments.is_empty() {
                config["deployments"] = json!(deployments);
            }
        }
    }
    to_raw_value(&config)
}

/// Each application has its own route: a request reaches one particular replica.
fn route(name: &str) -> String {
    format!("/{name}")
}

/// The endpoint of the application's requests. `port` is the port of Serve's proxies, unless the model file names another.
pub(crate) fn endpoint(
    recipe: &RayServeRecipe,
    name: &str,
    port: u16,
    key: Option<String>,
) -> Endpoint {
    let proxy = recipe.proxy.clone().unwrap_or_else(|| RemoteUrl {
        https: false,
        host: recipe.head.host.clone(),
        port,
        prefix: String::new(),
    });
    let url = RemoteUrl {
        prefix: format!("{}{}{OPENAI}", proxy.prefix, route(name)),
        ..proxy
    };
    let there = RemoteRecipe {
        url,
        served_model_name: recipe.served_model_name.clone(),
        key: recipe.key.clone(),
        health_path: recipe.health_path.clone(),
        headers: recipe.headers.clone(),
        context: recipe.context,
        only_loopback: false,
    };
    Endpoint::Remote(Arc::new(Remote::new(&there, key)))
}

#[cfg(test)]
mod tests;
