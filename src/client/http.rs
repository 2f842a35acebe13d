//! Sends requests with the key, and distinguishes a pool's refusal from other failures.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response, header};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::error::{ClientError, Refusal, chain, error_of};
use crate::response::{ApiResponse, Patience};
use crate::settings::{Key, Settings};
use crate::stream::Stream;
use crate::trust;
use crate::urls;

const CONNECT_MAX: Duration = Duration::from_secs(5);
const PROBE_MAX: Duration = Duration::from_secs(2);
/// Text of the TLS library's error for bytes that are not TLS.
const NOT_TLS: &str = "InvalidContentType";

/// A client of one pool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    settings: Settings,
}

impl Client {
    /// `program` is the user agent.
    ///
    /// # Errors
    /// If TLS cannot be set up, for example without any trusted certificates.
    pub fn new(settings: Settings, program: &str) -> Result<Client, ClientError> {
        // The TLS library has no default provider. An error means that one is installed already, which is fine.
        let _installed = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_MAX)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .user_agent(format!("{program}/{}", env!("CARGO_PKG_VERSION")));
        if settings.is_local {
            // A proxy cannot reach the loopback interface of this machine.
            builder = builder.no_proxy();
        }
        if let Some(file) = &settings.ca_file {
            let config = trust::client_config(file).map_err(ClientError::Usage)?;
            builder = builder.tls_backend_preconfigured(config);
        }
        let http = builder.build().map_err(|source| ClientError::Request {
            server: settings.base.clone(),
            source,
        })?;
        Ok(Client { http, settings })
    }

    /// The same client with another key.
    pub fn with_key(&self, key: Option<Key>) -> Client {
        let mut other = self.clone();
        other.settings.key = key;
        other
    }

    /// The server's URL with the base path.
    pub fn server(&self) -> &str {
        &self.settings.base
    }

    /// # Errors
    /// As `call`.
    pub async fn get(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<ApiResponse, ClientError> {
        self.call(Method::GET, path, query, None, Patience::Short)
            .await
    }

    /// # Errors
    /// As `call`.
    pub async fn post(&self, path: &str, body: &Value) -> Result<ApiResponse, ClientError> {
        self.call(Method::POST, path, &[], Some(body), Patience::Long)
            .await
    }

    /// Like `post`, for requests that the server answers without waiting.
    ///
    /// # Errors
    /// As `call`.
    pub async fn create(&self, path: &str, body: &Value) -> Result<ApiResponse, ClientError> {
        self.call(Method::POST, path, &[], Some(body), Patience::Short)
            .await
    }

    /// # Errors
    /// As `call`.
    pub async fn patch(
        &self,
        path: &str,
        query: &[(&str, &str)],
        body: &Value,
    ) -> Result<ApiResponse, ClientError> {
        self.call(Method::PATCH, path, query, Some(body), Patience::Short)
            .await
    }

    /// # Errors
    /// As `call`.
    pub async fn delete(
        &self,
        path: &str,
        query: &[(&str, &str)],
        patience: Patience,
    ) -> Result<ApiResponse, ClientError> {
        self.call(Method::DELETE, path, query, None, patience).await
    }

    /// Polls what is polled again soon.
    ///
    /// # Errors
    /// As `call`.
    pub async fn glance(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<ApiResponse, ClientError> {
        self.call(Method::GET, path, query, None, Patience::Glance)
            .await
    }

    /// Sends one request and waits for the complete response. `path` is relative to the base path, such as `admin/models`.
    ///
    /// # Errors
    /// `Unreachable` without a response, `Refused` for an error object, `NotThePool` for any other failure or a body that is not
    /// JSON.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
        patience: Patience,
    ) -> Result<ApiResponse, ClientError> {
        let (status, _, text) = self.text(method, path, query, body, patience).await?;
        if serde_json::from_str::<IgnoredAny>(&text).is_err() {
            return Err(self.not_the_pool(path, status, &text));
        }
        let path = path.to_owned();
        Ok(ApiResponse { path, text })
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
    ) -> Result<String, ClientError> {
        let sent = self.text(Method::GET, path, query, None, Patience::Short);
        let (status, has, text) = sent.await?;
        if has.starts_with(media_type) {
            Ok(text)
        } else {
            Err(self.not_the_pool(path, status, &text))
        }
    }

    /// Returns the status, media type and body of a successful response.
    async fn text(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
        patience: Patience,
    ) -> Result<(u16, String, String), ClientError> {
        let mut request = self.request(method, path, query)?;
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(limit) = patience.limit() {
            request = request.timeout(limit);
        }
        let response = self.send(path, request).await?;
        let status = response.status().as_u16();
        let media_type = text_of(&response, "content-type").unwrap_or_default();
        let text = response.text().await.map_err(|error| self.lost(error))?;
        Ok((status, media_type, text))
    }

    /// Opens a stream of the server's own events. `last_event_id` is the event after which it continues.
    ///
    /// # Errors
    /// As `call`.
    pub async fn stream(
        &self,
        path: &str,
        query: &[(&str, &str)],
        last_event_id: Option<&str>,
    ) -> Result<Stream, ClientError> {
        let mut request = self.request(Method::GET, path, query)?;
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        self.events(path, request).await
    }

    /// Sends a request whose response is a stream of events.
    ///
    /// # Errors
    /// As `call`.
    pub async fn post_for_stream(&self, path: &str, body: &Value) -> Result<Stream, ClientError> {
        let request = self.request(Method::POST, path, &[])?.json(body);
        self.events(path, request).await
    }

    async fn events(&self, path: &str, request: RequestBuilder) -> Result<Stream, ClientError> {
        const MEDIA_TYPE: &str = "text/event-stream";
        let request = request.header(header::ACCEPT, MEDIA_TYPE);
        let response = self.send(path, request).await?;
        let media_type = text_of(&response, "content-type").unwrap_or_default();
        if !media_type.starts_with(MEDIA_TYPE) {
            let status = response.status().as_u16();
            let excerpt = format!("a response of the type {media_type:?}");
            return Err(self.not_the_pool(path, status, &excerpt));
        }
        Ok(Stream::new(response, self.clone()))
    }

    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<RequestBuilder, ClientError> {
        let url = urls::url_of(&self.settings.base, path, query)?;
        let request = self.http.request(method, url);
        Ok(match &self.settings.key {
            Some(key) => request.bearer_auth(&key.0),
            None => request,
        })
    }

    /// Sends the request and returns a successful response.
    pub(crate) async fn send(
        &self,
        path: &str,
        request: RequestBuilder,
    ) -> Result<Response, ClientError> {
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Err(self.lost_or_misled(error).await),
        };
        if response.status().is_success() {
            return Ok(response);
        }
        if self.redirects_to_tls(&response) {
            return Err(self.wrong_scheme());
        }
        let status = response.status().as_u16();
        let request_id = text_of(&response, "x-request-id");
        let retry_after = text_of(&response, "retry-after");
        let body = response.text().await.map_err(|error| self.lost(error))?;
        let error = serde_json::from_str(&body);
        let Some((message, code)) = error.ok().as_ref().and_then(error_of) else {
            return Err(self.not_the_pool(path, status, &body));
        };
        Err(ClientError::Refused(Box::new(Refusal {
            status,
            message,
            code,
            request_id,
            retry_after: retry_after.and_then(|seconds| seconds.parse().ok()),
            key_story: self.settings.key_story.clone(),
            body,
        })))
    }

    pub(crate) fn lost(&self, source: reqwest::Error) -> ClientError {
        let server = self.settings.base.clone();
        if source.is_builder() {
            return ClientError::Request { server, source };
        }
        if let Some(problem) = trust::problem(&source) {
            return ClientError::Untrusted { server, problem };
        }
        ClientError::Unreachable {
            server,
            refused: source.is_connect(),
            // `server` already contains the address.
            source: source.without_url(),
        }
    }

    /// Classifies a request that got no response. The URL may have the wrong scheme.
    async fn lost_or_misled(&self, error: reqwest::Error) -> ClientError {
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
        match probe.timeout(PROBE_MAX).send().await {
            Ok(_) => true,
            Err(error) => chain_contains(&error, "certificate"),
        }
    }

    fn redirects_to_tls(&self, response: &Response) -> bool {
        let is_redirect = !self.is_tls() && response.status().is_redirection();
        let location = text_of(response, "location").filter(|_| is_redirect);
        location.is_some_and(|location| location.starts_with("https://"))
    }

    fn is_tls(&self) -> bool {
        self.settings.base.starts_with("https:")
    }

    fn wrong_scheme(&self) -> ClientError {
        ClientError::WrongScheme {
            server: self.settings.base.clone(),
            speaks_tls: !self.is_tls(),
        }
    }

    fn not_the_pool(&self, path: &str, status: u16, text: &str) -> ClientError {
        let line = text.lines().next().unwrap_or_default().trim();
        ClientError::NotThePool {
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

/// Returns true if a cause of the error contains this text.
fn chain_contains(error: &reqwest::Error, text: &str) -> bool {
    chain(error).any(|cause| cause.to_string().contains(text))
}

fn text_of(response: &Response, header: &str) -> Option<String> {
    let value = response.headers().get(header)?.to_str().ok()?;
    Some(value.to_owned())
}
