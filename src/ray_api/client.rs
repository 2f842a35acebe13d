//! Calls of Ray's dashboard over HTTP, and the meaning of its responses. If the dashboard does not respond or fails itself, the
//! state is unknown. Responses and errors never contain the token.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;

use super::RayError;
use super::text::{last_line, refusal};

/// Limit of a response. Each failed job may have 20,000 characters of its log in the list.
const RESPONSE_BYTES_MAX: usize = 32 << 20;
const CONNECT_MAX: Duration = Duration::from_secs(10);
const TOKEN_BYTES_MAX: u64 = 4096;

/// The address of Ray's dashboard, and its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RayAccess {
    pub address: String,
    /// `None`: the token is in `RAY_AUTH_TOKEN` or in the file that `RAY_AUTH_TOKEN_PATH` names, or Ray needs none.
    pub token_file: Option<PathBuf>,
    pub timeout: Duration,
    /// The section of the configuration, for errors: `cluster.ray` or `engine_config`.
    pub section: &'static str,
}

pub struct RayClient {
    address: String,
    timeout: Duration,
    section: &'static str,
    token: Token,
    http: Result<Client, String>,
}

/// The source of the token, read for each call. A new token needs no restart.
enum Token {
    None,
    /// The value of `RAY_AUTH_TOKEN`.
    Value(String),
    File(PathBuf),
}

impl RayClient {
    pub fn new(access: &RayAccess) -> RayClient {
        // An error means that the same provider is already installed.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let http = Client::builder()
            .connect_timeout(CONNECT_MAX)
            .timeout(access.timeout)
            .redirect(Policy::none())
            .referer(false)
            .user_agent(concat!("model-pool/", env!("CARGO_PKG_VERSION")))
            .build();
        RayClient {
            address: access.address.trim_end_matches('/').to_owned(),
            timeout: access.timeout,
            section: access.section,
            token: Token::new(access),
            http: http.map_err(|error| root_of(&error)),
        }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// The source of the token, or `None` if no token would be sent.
    pub fn token_source(&self) -> Option<String> {
        match &self.token {
            Token::None => None,
            Token::Value(_) => Some("RAY_AUTH_TOKEN".to_owned()),
            Token::File(path) => Some(path.display().to_string()),
        }
    }

    /// # Errors
    /// If Ray does not respond or refuses, or its response is not JSON.
    pub async fn get(&self, path: &str) -> Result<Value, RayError> {
        let text = self.call(Method::GET, path, None).await?;
        self.parsed(path, &text)
    }

    /// The response as text; `None` if Ray does not know the path's object.
    ///
    /// # Errors
    /// As above.
    pub async fn get_text(&self, path: &str) -> Result<Option<String>, RayError> {
        match self.send(Method::GET, path, None).await? {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, text) => self.judged(path, status, text).map(Some),
        }
    }

    /// # Errors
    /// As above.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, RayError> {
        let text = self
            .call(Method::POST, path, Some(body.to_string()))
            .await?;
        self.parsed(path, &text)
    }

    /// Sends JSON text. The response has no body.
    ///
    /// # Errors
    /// As above.
    pub async fn put(&self, path: &str, json: String) -> Result<(), RayError> {
        self.call(Method::PUT, path, Some(json)).await.map(drop)
    }

    /// Stops or deletes a job. Succeeds if Ray does not know it.
    ///
    /// # Errors
    /// As above.
    pub async fn end(&self, method: Method, path: &str) -> Result<(), RayError> {
        match self.send(method, path, None).await? {
            (StatusCode::NOT_FOUND, _) => Ok(()),
            (status, text) => self.judged(path, status, text).map(drop),
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        json: Option<String>,
    ) -> Result<String, RayError> {
        let (status, text) = self.send(method, path, json).await?;
        self.judged(path, status, text)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        json: Option<String>,
    ) -> Result<(StatusCode, String), RayError> {
        let client = self.http.as_ref().map_err(|why| self.refused(why, ""))?;
        let token = self
            .token
            .read(self.section)
            .map_err(|why| self.denied(&why, ""))?;
        let mut request = client.request(method, format!("{}{path}", self.address));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(json) = json {
            request = request.header(CONTENT_TYPE, "application/json").body(json);
        }
        let unreachable = |error: reqwest::Error| {
            if error.is_timeout() {
                self.unreachable(&format!(
                    "no response within {} s (cluster.ray.timeout)",
                    self.timeout.as_secs()
                ))
            } else {
                self.unreachable(&root_of(&error))
            }
        };
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(unreachable)? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > RESPONSE_BYTES_MAX {
                let message = format!(
                    "{path} has more than {} MiB; delete old jobs with `ray job delete`",
                    RESPONSE_BYTES_MAX >> 20
                );
                return Err(self.unusable(message));
            }
        }
        Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn judged(&self, path: &str, status: StatusCode, text: String) -> Result<String, RayError> {
        if status.is_success() {
            return Ok(text);
        }
        let section = self.section;
        match status {
            StatusCode::UNAUTHORIZED => Err(self.denied(
                "it wants a token (401)",
                &format!("; write it into the file of {section}.token_file, or set RAY_AUTH_TOKEN"),
            )),
            StatusCode::FORBIDDEN => Err(self.denied(
                &format!(
                    "it does not accept the token of {} (403)",
                    self.token_source().unwrap_or_default()
                ),
                "; write the token that Ray was started with (`ray get-auth-token` prints it)",
            )),
            StatusCode::NOT_FOUND => Err(self.refused(
                &format!("nothing found at {path} (404)"),
                &format!("; {section}.address has to be Ray's dashboard, of an installation with ray[default]"),
            )),
            status if status.is_redirection() => Err(self.refused(
                &format!("it redirects to another address ({status})"),
                "; write the address of Ray's dashboard itself",
            )),
            status if status.is_client_error() => Err(self.refused(&refusal(&text), "")),
            // The dashboard reports a refusal by its agent as its own error.
            _ if is_refusal(&text) => Err(self.refused(&last_line(&text), "")),
            status => Err(self.unreachable(&format!("{} ({status})", last_line(&text)))),
        }
    }

    fn parsed(&self, path: &str, text: &str) -> Result<Value, RayError> {
        serde_json::from_str(text)
            .map_err(|error| self.unusable(format!("{path} is not JSON: {error}")))
    }

    pub(super) fn program(&self) -> String {
        format!("Ray at {}", self.address)
    }

    pub fn refused(&self, message: &str, advice: &str) -> RayError {
        RayError::Refused {
            program: self.program(),
            message: message.to_owned(),
            advice: advice.to_owned(),
        }
    }

    fn denied(&self, message: &str, advice: &str) -> RayError {
        RayError::Denied {
            program: self.program(),
            message: message.to_owned(),
            advice: advice.to_owned(),
        }
    }

    fn unreachable(&self, message: &str) -> RayError {
        RayError::Unreachable {
            program: self.program(),
            message: message.to_owned(),
        }
    }

    pub fn unusable(&self, message: String) -> RayError {
        RayError::Output {
            program: self.program(),
            message,
        }
    }
}

impl Token {
    fn new(access: &RayAccess) -> Token {
        let variable = |name: &str| {
            std::env::var(name)
                .ok()
                .filter(|value| !value.trim().is_empty())
        };
        if let Some(file) = &access.token_file {
            Token::File(file.clone())
        } else if let Some(value) = variable("RAY_AUTH_TOKEN") {
            Token::Value(value.trim().to_owned())
        } else if let Some(path) = variable("RAY_AUTH_TOKEN_PATH") {
            Token::File(path.into())
        } else {
            Token::None
        }
    }

    fn read(&self, section: &str) -> Result<Option<String>, String> {
        let path = match self {
            Token::None => return Ok(None),
            Token::Value(value) => return Ok(Some(value.clone())),
            Token::File(path) => path,
        };
        let shown = path.display();
        let failed = |why: String| {
            format!("its token cannot be read from {shown}: {why}; correct {section}.token_file")
        };
        let size = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
        if size.len() > TOKEN_BYTES_MAX {
            return Err(failed("the file is too long for a token".to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        match text.trim() {
            "" => Err(failed("the file is empty".to_owned())),
            token if token.chars().all(|letter| letter.is_ascii_graphic()) => {
                Ok(Some(token.to_owned()))
            }
            _ => Err(failed("it has more than one word".to_owned())),
        }
    }
}

/// Returns true for Python errors that mean that the request itself is wrong.
fn is_refusal(text: &str) -> bool {
    let last = last_line(text);
    text.contains("Request failed with status code 400")
        || last.starts_with("ValueError:")
        || last.starts_with("TypeError:")
}

fn root_of(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
