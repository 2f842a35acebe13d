//! The HTTP client: single requests, event streams, and the server's errors.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::{Method, RequestBuilder, Response, Url};
use serde_json::Value;

use super::args::Key;
use super::error::{CommandError, Refusal};
use super::events::{Event, Parser};
use super::settings::Settings;
use super::trust;

const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Timeout of requests that the server answers immediately.
const SHORT: Duration = Duration::from_secs(30);
/// Timeout of registrations, which look up the model on the hub.
const REGISTER_MAX: Duration = Duration::from_secs(90);

#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    settings: Settings,
}

impl Client {
    /// # Errors
    /// If TLS cannot be set up, for example without any trusted certificates.
    pub fn new(settings: Settings) -> Result<Client, CommandError> {
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_MAX)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .user_agent(concat!("model-pool/", env!("CARGO_PKG_VERSION")));
        if settings.is_local {
            // A proxy cannot reach this machine's loopback interface.
            builder = builder.no_proxy();
        }
        if let Some(file) = &settings.ca_file {
            let config = trust::client_config(file).map_err(CommandError::Usage)?;
            builder = builder.tls_backend_preconfigured(config);
        }
        let http = builder.build();
        let http = http.map_err(|error| lost(&settings.base, error))?;
        Ok(Client { http, settings })
    }

    pub fn server(&self) -> &str {
        &self.settings.base
    }

    pub fn has_admin_key(&self) -> bool {
        self.settings.admin_key.is_some()
    }

    /// Returns the names of the models that the key may use.
    pub async fn models(&self) -> Result<Vec<String>, CommandError> {
        let request = self.request(Method::GET, "v1/models", None)?;
        let response = self.value(request.timeout(SHORT)).await?;
        let models = response["data"].as_array();
        let names = models.into_iter().flatten();
        let names = names.filter_map(|model| Some(model["id"].as_str()?.to_owned()));
        Ok(names.collect())
    }

    /// Fails if the server does not have the model. Loads nothing.
    pub async fn find(&self, model: &str) -> Result<(), CommandError> {
        let path = format!("v1/models/{}", encoded(model));
        let request = self.request(Method::GET, &path, None)?;
        self.value(request.timeout(SHORT)).await.map(drop)
    }

    /// Registers a model of the hub with the admin key. Returns the model as the admin API describes it.
    pub async fn register(&self, model: &str) -> Result<Value, CommandError> {
        let key = self.settings.admin_key.clone();
        let path = format!("admin/models?model={}", encoded(model));
        let request = self.request(Method::PUT, &path, key)?;
        self.value(request.timeout(REGISTER_MAX)).await
    }

    /// Returns the server's complete response as text. Takes as long as the model does.
    pub async fn complete(&self, body: &Value) -> Result<String, CommandError> {
        let request = self.request(Method::POST, "v1/chat/completions", None)?;
        self.text(request.json(body)).await
    }

    /// Starts a streaming response.
    pub async fn stream(&self, body: &Value) -> Result<Stream, CommandError> {
        let request = self.request(Method::POST, "v1/chat/completions", None)?;
        let request = request.header("accept", "text/event-stream").json(body);
        let response = self.accepted(request).await?;
        let kind = response.headers().get("content-type");
        let kind = kind
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            let status = response.status().as_u16();
            return Err(self.not_the_pool(status, &format!("an answer of the type {kind:?}")));
        }
        Ok(Stream {
            pieces: response
                .bytes_stream()
                .map(|piece| piece.map(Vec::from))
                .boxed(),
            parser: Parser::default(),
            ready: Vec::new().into_iter(),
            server: self.settings.base.clone(),
        })
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        key: Option<Key>,
    ) -> Result<RequestBuilder, CommandError> {
        let address = format!("{}/{path}", self.settings.base);
        let url = Url::parse(&address)
            .map_err(|error| CommandError::Usage(format!("{address:?} is not a URL: {error}")))?;
        let request = self.http.request(method, url);
        Ok(match key.or_else(|| self.settings.key.clone()) {
            Some(key) => request.bearer_auth(&key.0),
            None => request,
        })
    }

    async fn accepted(&self, request: RequestBuilder) -> Result<Response, CommandError> {
        let response = request.send().await.map_err(|error| self.lost(error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let header = |name: &str| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let request_id = header("x-request-id");
        let retry_after = header("retry-after").and_then(|value| value.parse().ok());
        let body = response.text().await.map_err(|error| self.lost(error))?;
        let Some((message, code)) = Refusal::read(&body) else {
            return Err(self.not_the_pool(status, &body));
        };
        Err(CommandError::Refused(Box::new(Refusal {
            status,
            message,
            code,
            request_id,
            retry_after,
            key_story: self.settings.key_story.clone(),
            advice: None,
            body,
        })))
    }

    async fn text(&self, request: RequestBuilder) -> Result<String, CommandError> {
        let response = self.accepted(request).await?;
        response.text().await.map_err(|error| self.lost(error))
    }

    async fn value(&self, request: RequestBuilder) -> Result<Value, CommandError> {
        let text = self.text(request).await?;
        serde_json::from_str(&text).map_err(|_| self.not_the_pool(200, &text))
    }

    fn not_the_pool(&self, status: u16, text: &str) -> CommandError {
        let first = text.lines().next().unwrap_or_default().trim();
        CommandError::NotThePool {
            server: self.settings.base.clone(),
            status,
            excerpt: match first {
                "" => "an empty body".to_owned(),
                first => first.chars().take(120).collect(),
            },
        }
    }

    fn lost(&self, error: reqwest::Error) -> CommandError {
        lost(&self.settings.base, error)
    }
}

/// A streaming response. Dropping it cancels the request.
pub struct Stream {
    pieces: BoxStream<'static, Result<Vec<u8>, reqwest::Error>>,
    parser: Parser,
    ready: std::vec::IntoIter<Event>,
    server: String,
}

impl Stream {
    /// Returns the next event, or `None` if the server has closed the stream. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Event>, CommandError> {
        loop {
            if let Some(event) = self.ready.next() {
                return Ok(Some(event));
            }
            match self.pieces.next().await {
                Some(Ok(piece)) => {
                    let events = self.parser.push(&piece);
                    let events = events.map_err(|_| CommandError::Cut {
                        message: "an event is longer than 16 MiB".to_owned(),
                    })?;
                    self.ready = events.into_iter();
                }
                Some(Err(error)) => return Err(lost(&self.server, error)),
                None => return Ok(None),
            }
        }
    }
}

/// Percent-encodes a name in a path or a query, except for its slash.
fn encoded(name: &str) -> String {
    let mut path = String::new();
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                path.push(char::from(byte));
            }
            byte => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

fn lost(server: &str, error: reqwest::Error) -> CommandError {
    let refused = error.is_connect();
    let timed_out = error.is_timeout();
    // `server` already has the address.
    let error = error.without_url();
    if let Some(problem) = trust::problem(&error) {
        return CommandError::Untrusted {
            server: server.to_owned(),
            problem,
        };
    }
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    CommandError::Unreachable {
        server: server.to_owned(),
        refused,
        why: if timed_out {
            "it did not answer in time".to_owned()
        } else {
            cause.to_string()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_safe_in_a_path() {
        assert_eq!(encoded("org/m:Q4_K_M"), "org/m:Q4_K_M");
        assert_eq!(encoded("a b?#%ü"), "a%20b%3F%23%25%C3%BC");
    }
}
