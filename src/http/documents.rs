//! Serves the API document. Request examples name models of the running catalogue that the caller may use, which makes "Try it out"
//! work without edits. Other callers see the names of the demo models.

use std::cmp::Reverse;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::Value;
use utoipa::openapi::OpenApi;
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::openapi::purposes::Purpose;
use crate::openapi::{document, event_streams, generators};
use api_types::error::Failure;
use catalog::Entry;
use config::InferenceAuth;
use edge::forwarded_prefix;
use gateway::auth::User;
use gateway::auth::sight::Sight;
use gateway::state::App;
use pool::ModelState;

/// Encloses a purpose in the document's text. A private-use character, which never occurs in it.
const MARK: char = '\u{e000}';

/// The text of the document, in pieces.
#[derive(Debug)]
struct Document(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Text(String),
    /// A name, or `otherwise` if the caller may see none.
    Name {
        purpose: Purpose,
        otherwise: String,
    },
}

/// A document that is created on first use.
type Lazy = Arc<LazyLock<Document, Box<dyn FnOnce() -> Document + Send>>>;

impl Document {
    fn lazy(api: impl FnOnce() -> OpenApi + Send + 'static) -> Lazy {
        let write: Box<dyn FnOnce() -> Document + Send> = Box::new(|| Document::new(&api()));
        Arc::new(LazyLock::new(write))
    }

    fn new(api: &OpenApi) -> Document {
        let mut value = serde_json::to_value(api).unwrap_or_default();
        event_streams::describe(&mut value);
        generators::simplify(&mut value);
        let mut purposes = Vec::new();
        if let Some(url) = value.pointer_mut("/servers/0/url") {
            let otherwise = url.as_str().unwrap_or_default().to_owned();
            *url = Value::String(format!("{MARK}0{MARK}"));
            purposes.push((Purpose::Server, otherwise));
        }
        for (path, methods) in value["paths"].as_object_mut().into_iter().flatten() {
            let Some((field, purpose)) = Purpose::of_path(path) else {
                continue;
            };
            for (_, operation) in methods.as_object_mut().into_iter().flatten() {
                for name in names_in(operation, field) {
                    let otherwise = name.as_str().unwrap_or_default().to_owned();
                    // An example may remove the model that another example registers.
                    if !otherwise.starts_with("org") {
                        *name = Value::String(format!("{MARK}{}{MARK}", purposes.len()));
                        purposes.push((purpose, otherwise));
                    }
                }
            }
        }
        let text = value.to_string();
        let pieces = text.split(MARK).enumerate().map(|(nth, piece)| {
            let named = piece.parse::<usize>().ok().filter(|_| nth % 2 == 1);
            match named.and_then(|at| purposes.get(at)) {
                Some((purpose, otherwise)) => Piece::Name {
                    purpose: *purpose,
                    otherwise: otherwise.clone(),
                },
                None => Piece::Text(piece.to_owned()),
            }
        });
        Document(pieces.collect())
    }

    /// The document with a name for each purpose.
    fn written(&self, name: impl Fn(Purpose) -> Option<String>) -> String {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Name { purpose, otherwise } => {
                    let name = name(*purpose).unwrap_or_else(|| otherwise.clone());
                    let quoted = Value::String(name).to_string();
                    // The surrounding pieces contain the quotes.
                    text.push_str(&quoted[1..quoted.len() - 1]);
                }
            }
        }
        text
    }
}

/// The values of a field in the examples of an operation's bodies and parameters.
fn names_in<'a>(operation: &'a mut Value, field: &str) -> Vec<&'a mut Value> {
    let mut found = Vec::new();
    for (part, value) in operation.as_object_mut().into_iter().flatten() {
        match part.as_str() {
            "requestBody" => {
                let contents = value["content"].as_object_mut().into_iter().flatten();
                for (_, content) in contents {
                    found.extend(bodies(content).filter_map(|body| body.get_mut(field)));
                }
            }
            "parameters" => {
                let all = value.as_array_mut().into_iter().flatten();
                let named = all.filter(|parameter| parameter["name"] == field);
                found.extend(named.filter_map(|parameter| parameter.get_mut("example")));
            }
            _ => {}
        }
    }
    found
}

/// The examples of a body.
fn bodies(content: &mut Value) -> impl Iterator<Item = &mut Value> {
    let parts = content.as_object_mut().into_iter().flatten();
    parts.flat_map(|(part, value)| -> Vec<&mut Value> {
        match part.as_str() {
            "example" => vec![value],
            "examples" => {
                let examples = value.as_object_mut().into_iter().flatten();
                examples
                    .filter_map(|(_, example)| example.get_mut("value"))
                    .collect()
            }
            _ => Vec::new(),
        }
    })
}

/// Swagger UI and the document.
pub(crate) fn documentation(api: OpenApi, app: &App) -> Router<App> {
    let base = app.base().to_owned();
    // Documents for pools with and without anonymous access, since a configuration reload can change it. Both share the
    // description, which takes some megabytes, until they are created.
    let api = Arc::new(api);
    let documents = [false, true].map(|strangers| {
        let (api, base) = (Arc::clone(&api), base.clone());
        Document::lazy(move || document(Arc::unwrap_or_clone(api), &base, strangers))
    });
    let at = format!("{base}/openapi.json");
    // Relative to the page because a proxy may add a prefix.
    let page = Config::new([format!("../openapi.json?{RELATIVE}")])
        .persist_authorization(true)
        .try_it_out_enabled(true)
        .display_request_duration(true)
        .filter(true)
        .deep_linking(true)
        .doc_expansion("list")
        .default_models_expand_depth(0)
        // The validator badge would send this service's address to a server on the internet.
        .validator_url("none");
    let page = SwaggerUi::new(format!("{base}/docs")).config(page);
    Router::from(page)
        .route(
            &at,
            get(
                move |State(app): State<App>, parts: Parts, user: Result<User, Failure>| {
                    let strangers = app.config().auth.inference != InferenceAuth::Key;
                    let document = Arc::clone(&documents[usize::from(strangers)]);
                    async move { respond(&app, &parts, user, &document) }
                },
            ),
        )
        .layer(map_response(relative))
        .layer(map_response(with_viewport))
}

/// Swagger UI redirects to an absolute path, which breaks behind a proxy that adds a prefix.
async fn relative(mut response: Response) -> Response {
    let is_docs = |location: &HeaderValue| location.as_bytes().ends_with(b"/docs/");
    if response
        .headers()
        .get(header::LOCATION)
        .is_some_and(is_docs)
    {
        let location = HeaderValue::from_static("docs/");
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Adds the viewport that Swagger UI's page lacks: without it a phone draws the page as wide as a desktop's.
async fn with_viewport(response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html")) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(page) = to_bytes(body, SWAGGER_PAGE_MAX).await else {
        return Failure::internal("the page could not be read").into_response();
    };
    let page = String::from_utf8_lossy(&page).replacen("<head>", VIEWPORT, 1);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(page))
}

/// Maximum size of Swagger UI's page in bytes. The page only links its script and styles.
const SWAGGER_PAGE_MAX: usize = 64 * 1024;
const VIEWPORT: &str =
    "<head><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">";

/// Query parameter of Swagger UI's requests, for a document with a relative server URL.
const RELATIVE: &str = "relative";

/// The server of the document for this request.
fn server_of(app: &App, parts: &Parts) -> String {
    if parts.uri.query() == Some(RELATIVE) {
        return ".".to_owned();
    }
    let path = format!("{}{}", forwarded_prefix(parts), app.base());
    if path.is_empty() {
        "/".to_owned()
    } else {
        path
    }
}

fn respond(app: &App, parts: &Parts, user: Result<User, Failure>, document: &Document) -> Response {
    let names = user.map(|user| Names::new(app, &user.sight));
    let text = document.written(|purpose| match purpose {
        Purpose::Server => Some(server_of(app, parts)),
        purpose => names.as_ref().ok()?.choose(purpose),
    });
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        ),
        // The names depend on the key and change over time.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, text).into_response()
}

/// Names for a caller's examples.
struct Names {
    models: Vec<Candidate>,
    device: Option<String>,
}

/// A model that the caller may use.
struct Candidate {
    entry: Arc<Entry>,
    priority: u32,
    is_ready: bool,
}

impl Names {
    fn new(app: &App, sight: &Sight) -> Names {
        let snapshot = app.handle.snapshot();
        let candidate = |model: &pool::ModelView| {
            let entry = Arc::clone(&snapshot.models.get(&model.model)?.entry);
            sight.may_use_base(&entry).then(|| Candidate {
                entry,
                priority: model.priority.0,
                is_ready: model.state == ModelState::Ready,
            })
        };
        Names {
            models: snapshot.pool.models.iter().filter_map(candidate).collect(),
            device: snapshot
                .pool
                .devices
                .first()
                .map(|share| snapshot.device_name(share.device)),
        }
    }

    /// Prefers the best rank for the purpose, then ready models, then the highest priority. For orders the lowest priority is
    /// preferred because it disturbs least.
    fn choose(&self, purpose: Purpose) -> Option<String> {
        if purpose == Purpose::Device {
            return self.device.clone();
        }
        let key = |candidate: &&Candidate| {
            let priority = i64::from(candidate.priority);
            let (is_ready, priority) = match purpose {
                Purpose::Order => (false, -priority),
                _ => (candidate.is_ready, priority),
            };
            let name = Reverse(candidate.entry.name.clone());
            (purpose.rank(&candidate.entry), is_ready, priority, name)
        };
        let best = self.models.iter().max_by_key(key)?;
        Some(best.entry.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Document {
        let api = json!({
            "openapi": "3.1.0", "info": {"title": "t", "version": "1"},
            "paths": {
                "/v1/chat/completions": {"post": {"responses": {}, "requestBody": {"content": {"application/json": {
                    "examples": {"one": {"value": {"model": "tiny-guide"}}}}}}}},
                "/v1/models/{model}": {
                    "get": {"responses": {}, "parameters": [{"name": "model", "in": "path", "required": true, "example": "tiny-guide"}]},
                    "delete": {"responses": {}, "parameters": [{"name": "model", "in": "path", "required": true, "example": "org/mine"}]}},
                "/admin/devices/cordon": {"post": {"responses": {}, "requestBody": {"content": {"application/json": {
                    "example": {"device": "gpu3", "reason": "new fan"}}}}}},
            }
        });
        Document::new(&serde_json::from_value(api).unwrap())
    }

    fn written(name: impl Fn(Purpose) -> Option<String>) -> Value {
        serde_json::from_str(&document().written(name)).unwrap()
    }

    #[test]
    fn examples_use_the_names_of_the_catalogue_and_escape_them() {
        let value = written(|purpose| Some(format!("a \"{purpose:?}\" \\ 模型")));
        let paths = &value["paths"];
        let chat = "a \"Chat\" \\ 模型";
        let body = &paths["/v1/chat/completions"]["post"]["requestBody"]["content"];
        assert_eq!(
            body["application/json"]["examples"]["one"]["value"]["model"],
            chat
        );
        let one = &paths["/v1/models/{model}"];
        assert_eq!(one["get"]["parameters"][0]["example"], chat);
        assert_eq!(one["delete"]["parameters"][0]["example"], "org/mine");
        let body = &paths["/admin/devices/cordon"]["post"]["requestBody"]["content"];
        let example = &body["application/json"]["example"];
        assert_eq!(
            *example,
            json!({"device": "a \"Device\" \\ 模型", "reason": "new fan"})
        );
    }

    #[test]
    fn without_names_the_examples_are_unchanged() {
        let value = written(|_| None);
        let text = value.to_string();
        assert!(
            text.contains("tiny-guide") && text.contains("gpu3"),
            "{text}"
        );
        assert!(!text.contains(MARK), "{text}");
    }
}
