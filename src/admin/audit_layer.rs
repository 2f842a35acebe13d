//! Records every change requested through an admin route, whether it was made or refused: sender, origin, request and outcome. The
//! row is stored before the response is sent. Only fields from a fixed list are recorded; keys, documents and reasons never are.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::request::Parts;
use axum::http::{Method, Request, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde_json::{Map, Value};

use super::order_origin::{MCP, OrderOrigin};
use api_types::error::Failure;
use config::groups;
use gateway::auth::actor::{ActorSlot, RequestId};
use gateway::auth::identity::note_administrator;
use gateway::state::App;
use pool::KeyId;
use store::AuditEntry;

/// Fields of a body or query that are recorded if they are a string, number, boolean or null.
const KEPT: [&str; 28] = [
    "model",
    "replica",
    "priority",
    "replicas",
    "gpus",
    "keep_hot",
    "lease",
    "force",
    "wait",
    "now",
    "device",
    "preview",
    "mode",
    "name",
    "role",
    "expires",
    "id",
    "model_name",
    "num_replicas",
    "gpus_per_replica",
    "parent",
    "weight",
    "reserved_permille",
    "class_max",
    "priority_max",
    "group",
    "paused",
    "rank",
];
/// Longer texts are cut.
const TEXT_MAX: usize = 200;
/// Orders are short. For longer bodies, only the query is recorded.
const BODY_READ_MAX: usize = 64 << 10;
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// The client disconnected before the response.
const CLIENT_LEFT: u16 = 499;

/// Middleware around the admin routes.
pub async fn record(State(app): State<App>, request: Request<Body>, next: Next) -> Response {
    if matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    ) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    note_administrator(&parts, &app).await;
    let read = tokio::time::timeout(BODY_WITHIN, Beginning::new(body)).await;
    let Ok(beginning) = read else {
        let message = format!(
            "the body did not arrive within {} s; send the request again",
            BODY_WITHIN.as_secs()
        );
        return Failure::invalid(None, message).into_response();
    };
    let actor = ActorSlot::default();
    parts.extensions.insert(actor.clone());
    let mut pending = Pending::new(
        app,
        &parts,
        what(&parts.uri, beginning.complete_bytes()),
        actor,
    );
    let request = Request::from_parts(parts, beginning.into_body());
    let response = next.run(request).await;
    pending.end(response.status()).await;
    response
}

/// The beginning of a body, and the rest of it.
struct Beginning {
    bytes: Vec<u8>,
    /// The frame that ended the reading early, and the frames after it.
    rest: Option<(Result<Bytes, axum::Error>, axum::body::BodyDataStream)>,
}

impl Beginning {
    async fn new(body: Body) -> Beginning {
        // A long body is not read before its sender is authenticated.
        let most = hyper::body::Body::size_hint(&body).upper();
        if most.is_some_and(|most| most > BODY_READ_MAX as u64) {
            let rest = Some((Ok(Bytes::new()), body.into_data_stream()));
            return Beginning {
                bytes: Vec::new(),
                rest,
            };
        }
        let mut bytes = Vec::new();
        let mut frames = body.into_data_stream();
        while let Some(frame) = frames.next().await {
            match frame {
                Ok(frame) if bytes.len() + frame.len() <= BODY_READ_MAX => {
                    bytes.extend_from_slice(&frame);
                }
                more => {
                    let rest = Some((more, frames));
                    return Beginning { bytes, rest };
                }
            }
        }
        Beginning { bytes, rest: None }
    }

    /// The complete body if it was short, otherwise nothing.
    fn complete_bytes(&self) -> &[u8] {
        match self.rest {
            None => &self.bytes,
            Some(_) => &[],
        }
    }

    /// The body as it was sent.
    fn into_body(self) -> Body {
        match self.rest {
            None => Body::from(self.bytes),
            Some((more, frames)) => {
                let first = stream::iter([Ok(Bytes::from(self.bytes)), more]);
                Body::from_stream(first.chain(frames))
            }
        }
    }
}

/// The recorded fields of the query and the body. The body takes precedence.
fn what(uri: &Uri, body: &[u8]) -> Map<String, Value> {
    let mut kept = Map::new();
    let query = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|query| query.0);
    for (name, text) in query.unwrap_or_default() {
        keep(&mut kept, &name, &Value::String(text));
    }
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else {
        return kept;
    };
    for (name, value) in &body {
        keep(&mut kept, name, value);
    }
    // A document that registers a model has the name in `engine_config`.
    let named = body
        .get("engine_config")
        .and_then(|section| section.get("model_id"));
    if let Some(name) = named.filter(|_| !kept.contains_key("model")) {
        keep(&mut kept, "model", name);
    }
    kept
}

fn keep(kept: &mut Map<String, Value>, name: &str, value: &Value) {
    if !KEPT.contains(&name) {
        return;
    }
    let value = match value {
        Value::String(text) if is_secret(text) => Value::from("(hidden)"),
        Value::String(text) => Value::from(text.chars().take(TEXT_MAX).collect::<String>()),
        Value::Number(_) | Value::Bool(_) | Value::Null => value.clone(),
        Value::Array(_) | Value::Object(_) => return,
    };
    kept.insert(name.to_owned(), value);
}

/// The path of the group of a key or person.
fn path_of(app: &App, caller: KeyId) -> Option<String> {
    let mut paths = app.keys.groups().paths_of(std::iter::once(caller));
    paths.remove(&caller).map(|path| path.to_string())
}

/// The path of the group of the key that a request creates or changes.
fn key_group(app: &App, path: &str, what: &Map<String, Value>) -> Option<String> {
    if !path.ends_with("/admin/keys") {
        return None;
    }
    if let Some(name) = what.get("group").and_then(Value::as_str) {
        let section = app.keys.groups().section();
        let is_known = section.contains_key(name);
        return is_known.then(|| groups::path(&section, name));
    }
    path_of(app, key_of(what.get("id")?.as_str()?)?)
}

/// The key with an id such as `k3`.
fn key_of(id: &str) -> Option<KeyId> {
    id.strip_prefix('k')?.parse().ok().map(KeyId)
}

/// Detects a key or a token in place of a name.
fn is_secret(text: &str) -> bool {
    let is_key = |rest: &str| {
        let letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        rest.bytes().take_while(letter).count() >= 20
    };
    let has_key = text.split("mp-").skip(1).any(is_key);
    has_key || text.contains("eyJ")
}

/// A change in progress. Also recorded if it is dropped early, because its effects continue after the client has disconnected.
struct Pending {
    app: App,
    actor: ActorSlot,
    /// `None` once written.
    entry: Option<AuditEntry>,
}

impl Pending {
    fn new(app: App, parts: &Parts, what: Map<String, Value>, actor: ActorSlot) -> Pending {
        let mut what = what;
        let origin = parts.extensions.get::<OrderOrigin>();
        if origin.is_some_and(|origin| origin.by_mcp) {
            what.insert("via".to_owned(), Value::from(MCP));
        }
        let client = edge::record::client();
        let request = parts.extensions.get::<RequestId>();
        let request = request.and_then(|id| id.0.to_str().ok()).unwrap_or("");
        let entry = AuditEntry {
            at: app.handle.clock().now(),
            key: None,
            subject: None,
            name: None,
            group: None,
            key_group: key_group(&app, parts.uri.path(), &what),
            client: client.map_or_else(String::new, |client| client.address.to_string()),
            method: parts.method.to_string(),
            path: parts.uri.path().chars().take(TEXT_MAX).collect(),
            what,
            status: CLIENT_LEFT,
            request: request.to_owned(),
        };
        Pending {
            app,
            actor,
            entry: Some(entry),
        }
    }

    async fn end(&mut self, status: StatusCode) {
        if let Some(entry) = self.take(status.as_u16()) {
            // The write completes even if the client disconnects.
            let _ = begin_to_write(&self.app, entry).await;
        }
    }

    /// Takes the row if it is to be recorded.
    fn take(&mut self, status: u16) -> Option<AuditEntry> {
        let mut entry = self.entry.take()?;
        entry.status = status;
        let actor = self.actor.actor();
        if let Some(actor) = actor {
            entry.key = actor.key;
            entry.subject = actor.subject.clone();
            entry.name = Some(actor.name.clone());
            entry.group = path_of(&self.app, actor.caller);
        }
        if self.actor.is_admin() {
            return Some(entry);
        }
        // Requests with a wrong method, or with a token that cannot be verified now, are not attempts.
        let was_sent_away = actor.is_some() || matches!(status, 401 | 403);
        (was_sent_away && self.app.strangers.has_room(entry.at)).then_some(entry)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Some(entry) = self.take(CLIENT_LEFT) else {
            return;
        };
        // Without a runtime the process is about to end.
        if tokio::runtime::Handle::try_current().is_ok() {
            drop(begin_to_write(&self.app, entry));
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "one small write that must complete even if no task waits for it"
)]
fn begin_to_write(app: &App, entry: AuditEntry) -> tokio::task::JoinHandle<()> {
    let app = app.clone();
    tokio::spawn(async move { write(&app, &entry).await })
}

async fn write(app: &App, entry: &AuditEntry) {
    let store = app.handle.store();
    match store.add_audit(entry).await {
        Ok(_) => {}
        Err(fault) => {
            let (name, method, path) = (&entry.name, &entry.method, &entry.path);
            tracing::error!(%fault, name, %method, %path, status = entry.status, "could not record an administrator's action in the audit log");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kept(query: &str, body: Value) -> Value {
        let uri: Uri = format!("/admin/load?{query}").parse().unwrap();
        Value::Object(what(&uri, body.to_string().as_bytes()))
    }

    #[test]
    fn only_listed_short_fields_are_audited() {
        let body = json!({"model": "tiny", "priority": 2, "force": true, "lease": null, "key": "x", "token": "y",
            "reason": "z", "name": "é".repeat(300), "gpus": [1, 2], "pool_config": {"priority": 1}});
        assert_eq!(
            kept("id=k3&key=x&preview=true", body),
            json!({"id": "k3", "preview": "true", "model": "tiny", "priority": 2, "force": true, "lease": null,
                "name": "é".repeat(TEXT_MAX)})
        );
        let document = json!({"engine_config": {"model_id": "org/m", "environment": {"A": "b"}}});
        assert_eq!(kept("", document), json!({"model": "org/m"}));
        assert_eq!(kept("", json!(["model"])), json!({}));
        assert_eq!(what(&"/admin/reset".parse().unwrap(), b"no json").len(), 0);
    }

    #[test]
    fn keys_are_named_by_their_ids() {
        assert_eq!(key_of("k31"), Some(KeyId(31)));
        assert_eq!(key_of("31"), None);
        assert_eq!(key_of("keys"), None);
    }

    #[test]
    fn a_key_given_as_a_name_is_redacted() {
        let key = format!("mp-{}", "aB3_-".repeat(8));
        for secret in [
            key.clone(),
            format!("key={key}"),
            "eyJhbGciOiJSUzI1NiJ9.e30.c2ln".to_owned(),
        ] {
            assert_eq!(
                kept("", json!({"name": secret})),
                json!({"name": "(hidden)"})
            );
        }
        for name in ["mp-course", "temp-mp-a", "course 4711"] {
            assert_eq!(kept("", json!({"name": name})), json!({"name": name}));
        }
    }

    #[tokio::test]
    async fn a_body_reaches_the_handler_unchanged_whether_or_not_it_was_audited() {
        for (frames, size, is_read) in [(3, 10, true), (3, 40 << 10, false), (0, 0, true)] {
            let frame = Bytes::from(vec![b'x'; size]);
            let sent =
                stream::iter(std::iter::repeat_n(frame, frames).map(Ok::<_, std::io::Error>));
            let beginning = Beginning::new(Body::from_stream(sent)).await;
            let all = if is_read { frames * size } else { 0 };
            assert_eq!(beginning.complete_bytes().len(), all);
            let arrived = axum::body::to_bytes(beginning.into_body(), usize::MAX);
            assert_eq!(arrived.await.unwrap().len(), frames * size);
        }
        let broken = stream::iter([Ok(Bytes::from("{}")), Err(std::io::Error::other("left"))]);
        let beginning = Beginning::new(Body::from_stream(broken)).await;
        assert!(beginning.complete_bytes().is_empty());
        let arrived = axum::body::to_bytes(beginning.into_body(), usize::MAX).await;
        assert!(
            arrived.is_err(),
            "the handler sees that the body is incomplete"
        );
    }
}
