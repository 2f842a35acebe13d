//! Dynamic LoRA adapters. The adapter is looked up by name before the request takes a seat; at the seat, the engine loads it if it
//! has not loaded it yet. The pool decides which adapter is unloaded to make room.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use http_body_util::{BodyExt, Limited};
use hyper::Method;
use serde_json::{Value, json};

use crate::auth::User;
use crate::inference::in_flight::{JSON, limited};
use crate::state::App;
use api_types::error::{ErrorKind, Failure};
use catalog::{AdapterRoutes, Entry};
use controller::{AdapterError, AdapterFound, AdapterLoad, AdapterTurn, Lease, LookupCaller};
use pool::Span;

/// Longest time an engine may take to load an adapter.
const LOAD_WITHIN: Duration = Duration::from_secs(120);
/// Longest time a request waits at its seat for another adapter to become unused.
const WAIT_WITHIN: Span = Span::from_secs(60);
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Largest accepted response to `GET /v1/models` of an engine.
const LIST_BYTES_MAX: usize = 1 << 20;
/// Retries, because an engine may report an adapter as in use shortly after its last request ended.
const UNLOAD_TRIES: usize = 10;
/// Texts by which engines report an adapter they do not have. They use different statuses for it.
const NOT_THERE: [&str; 3] = ["cannot be found", "not loaded", "does not exist"];
const UNLOAD_AGAIN: Duration = Duration::from_millis(50);

/// Finds the dynamic adapter called `name`. `None` if `name` is the model itself or a statically configured adapter; an error if no
/// such adapter exists.
pub async fn find(
    app: &App,
    user: &User,
    entry: &Arc<Entry>,
    name: &str,
) -> Result<Option<Arc<AdapterFound>>, Failure> {
    if entry.adapter_id(name).is_none() || entry.adapters.iter().any(|known| known == name) {
        return Ok(None);
    }
    let caller = LookupCaller(user.account.id());
    let found = app.handle.adapter(entry, name, &caller).await;
    found.map(Some).map_err(|error| failure(&error))
}

fn failure(error: &AdapterError) -> Failure {
    let message = error.to_string();
    let mut failure = match error {
        AdapterError::Unknown { .. } => Failure::new(
            ErrorKind::NotFound,
            "model_not_found",
            format!("{message}; GET /v1/models lists the models and the adapters that are known"),
        ),
        AdapterError::Unusable { .. } => {
            Failure::new(ErrorKind::Invalid, "adapter_unusable", message)
        }
        AdapterError::NotNow { retry, .. } => {
            Failure::new(ErrorKind::TooMany, "adapter_lookup_limited", message).again_in(*retry)
        }
        AdapterError::Unreachable { retry, .. } => {
            Failure::new(ErrorKind::Unavailable, "adapter_unreachable", message).again_in(*retry)
        }
    };
    failure.body.error.param = Some("model".to_owned());
    failure
}

/// Has the engine load the adapter if needed and marks the lease as using it.
pub(crate) async fn enter(
    app: &App,
    entry: &Entry,
    found: &AdapterFound,
    lease: &mut Lease,
) -> Result<(), Failure> {
    let Some(routes) = entry.recipe.adapter_routes() else {
        return Err(Failure::internal(format!(
            "the engine of {} takes no adapters",
            entry.name
        )));
    };
    let engine = Engine { app, entry, routes };
    engine.enter(found, lease).await
}

/// 503: every loaded adapter is in use, so none can be unloaded.
fn full(entry: &Entry) -> Failure {
    let room = entry
        .dynamic_adapters
        .as_ref()
        .map_or(0, |adapters| adapters.room.count);
    let message = format!(
        "all {room} adapters that a replica of {} has room for are in use; ask again, or have lora_config.max_num_adapters_per_replica raised",
        entry.name
    );
    let failure = Failure::new(ErrorKind::Unavailable, "adapters_full", message);
    failure.again_in(Span::from_secs(1))
}

/// The engine behind a seat, with its adapter routes.
struct Engine<'a> {
    app: &'a App,
    entry: &'a Entry,
    routes: AdapterRoutes,
}

impl Engine<'_> {
    async fn enter(&self, found: &AdapterFound, lease: &mut Lease) -> Result<(), Failure> {
        let known = || self.ask_what_it_has(lease);
        lease
            .adapters()
            .listed_by_engine
            .get_or_try_init(known)
            .await?;
        let clock = self.app.handle.clock();
        let began = clock.now();
        loop {
            let mut changes = lease.adapters().changes();
            match lease.ask_adapter(&found.name, found.mark) {
                AdapterTurn::Enter(seat) => {
                    lease.use_adapter(seat);
                    return Ok(());
                }
                AdapterTurn::Wait if clock.now().since(began) > WAIT_WITHIN => {
                    return Err(full(self.entry));
                }
                AdapterTurn::Wait => {
                    // Also polls, because requests of an earlier controller that end are not signaled.
                    let _ = tokio::time::timeout(ASK_AGAIN, changes.changed()).await;
                }
                AdapterTurn::Load(load) => {
                    if let Some(seat) = self.load(load, found, lease).await? {
                        lease.use_adapter(seat);
                        return Ok(());
                    }
                }
            }
        }
    }

    /// `None` if the adapter to unload turned out to be in use; try again.
    async fn load(
        &self,
        mut load: AdapterLoad,
        found: &AdapterFound,
        lease: &Lease,
    ) -> Result<Option<controller::AdapterSeat>, Failure> {
        // No tokens are expected from a replica while it loads an adapter.
        lease.hold();
        if let Some(victim) = load.leaves() {
            let victim = victim.to_owned();
            if !self.unload(&victim, lease).await? {
                tracing::info!(
                    model = self.entry.name,
                    adapter = victim,
                    "the engine keeps an adapter"
                );
                tokio::time::sleep(ASK_AGAIN).await;
                return Ok(None);
            }
            tracing::info!(
                model = self.entry.name,
                adapter = victim,
                replica = lease.replica().0,
                "adapter unloaded"
            );
            load.unloaded();
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let name = self.name_there(&found.name);
            let body = json!({"lora_name": name, "lora_path": found.folder});
            let (status, reply) = self.post(self.routes.load, &body, lease).await?;
            if status.is_success() {
                break;
            }
            // Another request loaded an adapter of this name and was cancelled before the engine responded. Its files may differ.
            if tries == 1 && reply.contains("already") && self.unload(&found.name, lease).await? {
                continue;
            }
            load.refused();
            let mut failure = Failure::new(
                ErrorKind::Invalid,
                "adapter_refused",
                format!(
                    "the engine refused to load the adapter {}: {reply}; save the adapter again for {}",
                    found.name, self.entry.name
                ),
            );
            failure.body.error.param = Some("model".to_owned());
            return Err(failure);
        }
        tracing::info!(
            model = self.entry.name,
            adapter = found.name,
            replica = lease.replica().0,
            rank = found.rank,
            bytes = found.bytes.0,
            "adapter loaded"
        );
        lease.resume();
        self.app.metrics.adapter_loaded(&self.entry.name);
        Ok(Some(load.loaded()))
    }

    /// Returns true once the engine no longer has the adapter loaded.
    async fn unload(&self, name: &str, lease: &Lease) -> Result<bool, Failure> {
        let body = json!({"lora_name": self.name_there(name)});
        for _ in 0..UNLOAD_TRIES {
            let (status, reply) = self.post(self.routes.unload, &body, lease).await?;
            let is_gone = status == ErrorKind::NotFound.status()
                || NOT_THERE.iter().any(|text| reply.contains(text));
            if status.is_success() || is_gone {
                return Ok(true);
            }
            tokio::time::sleep(UNLOAD_AGAIN).await;
        }
        Ok(false)
    }

    /// Records the adapters that the engine loaded under an earlier controller.
    async fn ask_what_it_has(&self, lease: &Lease) -> Result<(), Failure> {
        let nothing = (&JSON, Bytes::new());
        let upstream = &self.app.upstream;
        let sent = upstream.send(lease, Method::GET, "/v1/models", nothing);
        let response = self.within(sent).await?;
        let body = Limited::new(response.into_body(), LIST_BYTES_MAX)
            .collect()
            .await;
        let body = body.map_err(|error| Failure::engine(&self.entry.name, error))?;
        let listed: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        let names = listed["data"].as_array().into_iter().flatten();
        let names = names.filter_map(|model| model["id"].as_str());
        let names = names.map(|name| {
            if self.routes.names_without_base {
                format!("{}:{name}", self.entry.name)
            } else {
                name.to_owned()
            }
        });
        let is_dynamic = |name: &String| {
            self.entry.adapter_id(name).is_some() && !self.entry.adapters.contains(name)
        };
        lease.adapters().found(names.filter(is_dynamic));
        Ok(())
    }

    fn name_there<'n>(&self, name: &'n str) -> &'n str {
        if self.routes.names_without_base {
            self.entry.adapter_id(name).unwrap_or(name)
        } else {
            name
        }
    }

    async fn post(
        &self,
        path: &str,
        body: &Value,
        lease: &Lease,
    ) -> Result<(StatusCode, String), Failure> {
        let body = Bytes::from(body.to_string());
        let body = (&JSON, body);
        let sent = self.app.upstream.send(lease, Method::POST, path, body);
        let response = self.within(sent).await?;
        let status = response.status();
        let body = limited(response.into_body()).await;
        Ok((status, message_of(&body)))
    }

    async fn within<T, E: std::fmt::Display>(
        &self,
        sent: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(LOAD_WITHIN, sent).await {
            Ok(response) => response.map_err(|error| Failure::engine(&self.entry.name, error)),
            Err(_) => Err(Failure::engine(
                &self.entry.name,
                format!(
                    "no answer about an adapter within {} s",
                    LOAD_WITHIN.as_secs()
                ),
            )),
        }
    }
}

/// Extracts the message from an engine's error body, in any of the known formats.
fn message_of(body: &Bytes) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let places = [
        &value["error"]["message"],
        &value["message"],
        &value["error_message"],
    ];
    let reply = places.into_iter().find_map(Value::as_str);
    let text = String::from_utf8_lossy(body);
    reply.unwrap_or(&text).chars().take(1000).collect()
}
