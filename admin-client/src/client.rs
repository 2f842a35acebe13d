//! HTTP client of the admin API for single requests and event streams. Adds the key, and distinguishes a pool's refusal from other
//! failures.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{CommandError, Refusal};
use crate::settings::Settings;
use crate::sse;

/// Time limit for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// For requests that the server answers without waiting: 30 s.
    Short,
    /// For polls that are repeated soon: 2 s.
    Glance,
    /// For loads and drains: no limit here, because the server enforces their deadlines.
    Long,
}

/// A successful response.
#[derive(Debug)]
pub struct ApiResponse {
    path: String,
    /// The body, unchanged.
    pub text: String,
}

impl ApiResponse {
    /// Parses the body as `T`.
    ///
    /// # Errors
    /// `CommandError::Shape` if the body does not match `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, CommandError> {
        serde_json::from_str(&self.text).map_err(|source| CommandError::Shape {
            path: self.path.clone(),
            source,
        })
    }
}

/// A connection to one pool.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    settings: Settings,
}

impl Client {
    /// # Errors
    /// `CommandError::Request` if the HTTP client cannot be created, for example without root certificates.
    pub fn new(settings: Settings) -> Result<Client, CommandError> {
        let mut builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .user_agent(concat!("admin-client/", env!("CARGO_PKG_VERSION")));
        if settings.local {
            // A proxy cannot reach the loopback interface of this machine.
            builder = builder.no_proxy();
        }
        if let Some(file) = &settings.ca_file {
            let config = terminal::trust::client_config(file).map_err(CommandError::Usage)?;
            builder = builder.tls_backend_preconfigured(config);
        }
        let http = builder.build().map_err(|source| CommandError::Request {
            server: settings.base.clone(),
            source,
        })?;
        Ok(Client { http, settings })
    }

    /// # Errors
    /// As `call`.
    pub async fn get(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<ApiResponse, CommandError> {
        self.call(Method::GET, path, query, None, Patience::Short)
            .await
    }

    /// # Errors
    /// As `call`.
    pub async fn post(&self, path: &str, body: &Value) -> Result<ApiResponse, CommandError> {
        self.call(Method::POST, path, &[], Some(body), Patience::Long)
            .await
    }

    /// Sends one request and waits for the complete response. `path` is relative to the base path,
    /// such as `admin/models`.
    ///
    /// # Errors
    /// `Unreachable` without a response, `Refused` for an error object, `NotThePool` for any other
    /// failure or a body that is not JSON.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
        patience: Patience,
    ) -> Result<ApiResponse, CommandError> {
        let (status, _, text) = self.sent(method, path, query, body, patience).await?;
        if serde_json::from_str::<serde::de::IgnoredAny>(&text).is_err() {
            return Err(self.not_the_pool(path, status, &text));
        }
        Ok(ApiResponse {
            path: path.to_owned(),
            text,
        })
    }

    /// Gets a text of this media type.
    ///
    /// # Errors
    /// As `call`.
    pub async fn get_text(
        &self,
        path: &str,
        query: &[(&str, &str)],
        media_type: &str,
    ) -> Result<String, CommandError> {
        let sent = self.sent(Method::GET, path, query, None, Patience::Short);
        let (status, has, text) = sent.await?;
        if has.starts_with(media_type) {
            Ok(text)
        } else {
            Err(self.not_the_pool(path, status, &text))
        }
    }

    /// Sends a request and returns the status, media type and body of a successful response.
    async fn sent(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
        patience: Patience,
    ) -> Result<(u16, String, String), CommandError> {
        let mut request = self.request(method, path, query)?;
        if let Some(body) = body {
            request = request.json(body);
        }
        request = match patience {
            Patience::Short => request.timeout(Duration::from_secs(30)),
            Patience::Glance => request.timeout(Duration::from_secs(2)),
            Patience::Long => request,
        };
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Err(self.lost_or_misled(error).await),
        };
        let ok = response.status().is_success();
        let (status, request_id) = facts(&response);
        if self.redirects_to_tls(&response) {
            return Err(self.wrong_scheme());
        }
        let media_type = response.headers().get(reqwest::header::CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok());
        let media_type = media_type.unwrap_or_default().to_owned();
        let text = response.text().await.map_err(|error| self.lost(error))?;
        if !ok {
            return Err(self.refused(path, status, &text, request_id));
        }
        Ok((status, media_type, text))
    }

    /// Opens a stream of server-sent events.
    ///
    /// # Errors
    /// As `call`.
    pub async fn stream(
        &self,
        path: &str,
        query: &[(&str, &str)],
        last_event_id: Option<&str>,
    ) -> Result<Stream, CommandError> {
        let mut request = self
            .request(Method::GET, path, query)?
            .header("accept", "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Err(self.lost_or_misled(error).await),
        };
        if !response.status().is_success() {
            let (status, request_id) = facts(&response);
            let text = response.text().await.map_err(|error| self.lost(error))?;
            return Err(self.refused(path, status, &text, request_id));
        }
        Ok(Stream {
            bytes: response
                .bytes_stream()
                .map(|chunk| chunk.map(Vec::from))
                .boxed(),
            parser: sse::Parser::default(),
            ready: Vec::new().into_iter(),
            server: self.settings.base.clone(),
        })
    }

    /// The server's URL with the base path.
    pub fn server(&self) -> &str {
        &self.settings.base
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<RequestBuilder, CommandError> {
        let address = format!("{}/{path}", self.settings.base);
        let mut url = Url::parse(&address)
            .map_err(|error| CommandError::Usage(format!("{address:?} is not a URL: {error}")))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.http.request(method, url);
        Ok(match &self.settings.key {
            Some(key) => request.bearer_auth(&key.0),
            None => request,
        })
    }

    fn lost(&self, source: reqwest::Error) -> CommandError {
        lost(&self.settings.base, source)
    }

    /// Classifies a request that got no response. The URL may have the wrong scheme.
    async fn lost_or_misled(&self, error: reqwest::Error) -> CommandError {
        if self.is_tls() {
            return if chain_contains(&error, NOT_TLS) {
                self.wrong_scheme()
            } else {
                self.lost(error)
            };
        }
        // A TLS port closes a connection that begins with plain HTTP, or responds with an alert.
        let is_dropped = !error.is_connect() && !error.is_timeout() && !error.is_builder();
        if is_dropped && self.speaks_tls().await {
            self.wrong_scheme()
        } else {
            self.lost(error)
        }
    }

    /// Returns true if a TLS handshake reaches the server's certificate. Does not send the key.
    async fn speaks_tls(&self) -> bool {
        let Some(rest) = self.settings.base.strip_prefix("http://") else {
            return false;
        };
        let probe = self.http.get(format!("https://{rest}/health"));
        match probe.timeout(PROBE_TIMEOUT).send().await {
            Ok(_) => true,
            Err(error) => chain_contains(&error, "certificate"),
        }
    }

    fn redirects_to_tls(&self, response: &Response) -> bool {
        let location = response.headers().get("location");
        let location = location
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        !self.is_tls() && response.status().is_redirection() && location.starts_with("https://")
    }

    fn is_tls(&self) -> bool {
        self.settings.base.starts_with("https:")
    }

    fn wrong_scheme(&self) -> CommandError {
        CommandError::WrongScheme {
            server: self.settings.base.clone(),
            speaks_tls: !self.is_tls(),
        }
    }

    fn refused(
        &self,
        path: &str,
        status: u16,
        text: &str,
        request_id: Option<String>,
    ) -> CommandError {
        match Refusal::read(status, text, request_id) {
            Some(refusal) => CommandError::Refused(Box::new(refusal)),
            None => self.not_the_pool(path, status, text),
        }
    }

    fn not_the_pool(&self, path: &str, status: u16, text: &str) -> CommandError {
        let line = text.lines().next().unwrap_or_default().trim();
        CommandError::NotThePool {
            server: self.settings.base.clone(),
            path: path.to_owned(),
            status,
            excerpt: match line {
                "" => "an empty body".to_owned(),
                line => line.chars().take(120).collect(),
            },
        }
    }
}

/// Text of the TLS library's error for bytes that are not TLS.
const NOT_TLS: &str = "InvalidContentType";
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns true if a cause of the error contains this text.
fn chain_contains(error: &reqwest::Error, text: &str) -> bool {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| {
        error.source()
    });
    causes
        .into_iter()
        .any(|cause| cause.to_string().contains(text))
}

fn facts(response: &Response) -> (u16, Option<String>) {
    let request_id = response
        .headers()
        .get("x-request-id")
        .and_then(|id| id.to_str().ok())
        .map(str::to_owned);
    (response.status().as_u16(), request_id)
}

/// A stream of server-sent events.
pub struct Stream {
    bytes: BoxStream<'static, Result<Vec<u8>, reqwest::Error>>,
    parser: sse::Parser,
    ready: std::vec::IntoIter<sse::Event>,
    server: String,
}

impl Stream {
    /// The next event, or `None` if the server has ended the stream.
    ///
    /// # Errors
    /// `Unreachable` if the connection broke.
    pub async fn next(&mut self) -> Result<Option<sse::Event>, CommandError> {
        self.next_within(None).await
    }

    /// Like `next`, for a stream with keep-alives. Returns `None` after `silence_max` without a byte, because a connection can
    /// disappear without an error.
    ///
    /// # Errors
    /// `Unreachable` if the connection broke.
    pub async fn next_within(
        &mut self,
        silence_max: Option<Duration>,
    ) -> Result<Option<sse::Event>, CommandError> {
        loop {
            if let Some(event) = self.ready.next() {
                return Ok(Some(event));
            }
            let chunk = match silence_max {
                None => self.bytes.next().await,
                Some(limit) => match tokio::time::timeout(limit, self.bytes.next()).await {
                    Ok(chunk) => chunk,
                    Err(_) => return Ok(None),
                },
            };
            match chunk {
                Some(Ok(chunk)) => self.ready = self.parser.push(&chunk).into_iter(),
                Some(Err(source)) => return Err(lost(&self.server, source)),
                None => return Ok(None),
            }
        }
    }
}

fn lost(server: &str, source: reqwest::Error) -> CommandError {
    let server = server.to_owned();
    if source.is_builder() {
        return CommandError::Request { server, source };
    }
    if let Some(problem) = terminal::trust::problem(&source) {
        return CommandError::Untrusted { server, problem };
    }
    CommandError::Unreachable {
        server,
        refused: source.is_connect(),
        // `server` already contains the address.
        source: source.without_url(),
    }
}
