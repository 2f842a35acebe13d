//! Calls of the API server, with the address and the credentials of the pod's service account, deadlines, and the meaning of its
//! responses. A server that does not respond says nothing about its pods.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Method, StatusCode, Url};
use serde::de::DeserializeOwned;

use super::super::ClusterError;
use super::objects::ApiStatus;
use super::reasons::{Call, missing_rule, short};
use config::KubernetesSection;

const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";
/// A page of pods is the longest response.
const BODY_BYTES_MAX: usize = 16 << 20;
/// Tokens have some hundred bytes, certificate authorities some thousand.
const FILE_BYTES_MAX: u64 = 1 << 20;

pub(super) struct Api {
    section: KubernetesSection,
    token_file: PathBuf,
    ca_file: PathBuf,
    /// The client, and the certificate authorities it was created with.
    client: Mutex<Option<(Vec<u8>, Client)>>,
}

/// The failures of a call that callers distinguish.
#[derive(Debug)]
pub(super) enum CallError {
    /// The object does not exist.
    NotFound,
    /// The object was changed after it was read.
    Conflict,
    /// Any other failure.
    Other(ClusterError),
}

impl From<ClusterError> for CallError {
    fn from(error: ClusterError) -> CallError {
        CallError::Other(error)
    }
}

impl Api {
    pub fn new(section: &KubernetesSection) -> Api {
        let of_account = |file: &Option<PathBuf>, name: &str| {
            let own = || Path::new(ACCOUNT).join(name);
            file.clone().unwrap_or_else(own)
        };
        Api {
            token_file: of_account(&section.token_file, "token"),
            ca_file: of_account(&section.ca_file, "ca.crt"),
            section: section.clone(),
            client: Mutex::new(None),
        }
    }

    /// The namespace of the Deployments.
    pub fn namespace(&self) -> Result<String, ClusterError> {
        if let Some(namespace) = &self.section.namespace {
            return Ok(namespace.clone());
        }
        let file = Path::new(ACCOUNT).join("namespace");
        let advice =
            "set cluster.kubernetes.namespace where this program runs outside of the cluster";
        let text = read(&file, advice)?;
        Ok(String::from_utf8_lossy(&text).trim().to_owned())
    }

    /// The address of the API server.
    pub fn server(&self) -> Result<Url, ClusterError> {
        let text = match &self.section.server {
            Some(server) => server.clone(),
            None => {
                let of = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
                let (Some(host), Some(port)) = (of(HOST), of(PORT)) else {
                    return Err(setup(format!(
                        "{HOST} and {PORT} are not set, so this program does not run in a pod; set cluster.kubernetes.server to the address of the API server, and set token_file and ca_file next to it"
                    )));
                };
                address(&host, &port)
            }
        };
        Url::parse(&text).map_err(|error| setup(format!("{text} is not a URL: {error}")))
    }

    /// Calls the API server and returns the object. `path` is the segments of the URL's path, `query` its parameters.
    pub async fn call<T: DeserializeOwned>(
        &self,
        call: &Call,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<String>,
    ) -> Result<T, CallError> {
        let server = self.server()?;
        let mut url = server.clone();
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.pop_if_empty().extend(path);
        }
        for (key, value) in query {
            url.query_pairs_mut().append_pair(key, value);
        }
        let mut request = self
            .client()?
            .request(method, url)
            .timeout(self.section.timeout.duration())
            .header(ACCEPT, "application/json");
        if let Some(token) = self.token(&server)? {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(body) = body {
            request = request
                .header(reqwest::header::CONTENT_TYPE, "application/json")
                .body(body);
        }
        let unreachable = |message: String| ClusterError::Unreachable {
            program: format!("the API server {server}"),
            message,
        };
        let failed = |error: reqwest::Error| {
            if error.is_timeout() {
                unreachable(format!(
                    "no response within {} (cluster.kubernetes.timeout)",
                    self.section.timeout
                ))
            } else {
                unreachable(root_of(&error.without_url()))
            }
        };
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(failed)? {
            if body.len() + piece.len() > BODY_BYTES_MAX {
                return Err(unusable(format!("it is longer than {BODY_BYTES_MAX} bytes")).into());
            }
            body.extend_from_slice(&piece);
        }
        if !status.is_success() {
            return Err(self.refusal(call, status, &body, unreachable));
        }
        serde_json::from_slice(&body).map_err(|error| unusable(error.to_string()).into())
    }

    /// The error for a response with a status other than success.
    fn refusal(
        &self,
        call: &Call,
        status: StatusCode,
        body: &[u8],
        unreachable: impl Fn(String) -> ClusterError,
    ) -> CallError {
        let failure: ApiStatus = serde_json::from_slice(body).unwrap_or_default();
        let message = match short(&failure.message) {
            message if message.is_empty() => format!("it answered {status}"),
            message => message,
        };
        let advice = match status {
            StatusCode::CONFLICT => return CallError::Conflict,
            StatusCode::NOT_FOUND if failure.reason == "NotFound" => return CallError::NotFound,
            StatusCode::UNAUTHORIZED => format!(
                ": it does not accept the token in {} (401); the token has expired, or belongs to another cluster",
                self.token_file.display()
            ),
            // A webhook may refuse with the same status.
            StatusCode::FORBIDDEN if message.contains(" cannot ") => {
                let namespace = self.namespace().unwrap_or_default();
                missing_rule(call, &namespace)
            }
            // The server may have carried out the call.
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return unreachable(format!("{message} ({status})")).into();
            }
            _ => String::new(),
        };
        CallError::Other(ClusterError::Refused {
            program: "the API server".to_owned(),
            message,
            advice,
        })
    }

    /// The token is replaced before it expires, so each call reads it. Over plain HTTP, which only reaches a proxy on this machine,
    /// the token is optional.
    fn token(&self, server: &Url) -> Result<Option<HeaderValue>, ClusterError> {
        if server.scheme() == "http" && self.section.token_file.is_none() {
            return Ok(None);
        }
        let advice =
            "name the file with the token of a service account in cluster.kubernetes.token_file";
        let text = read(&self.token_file, advice)?;
        let text = String::from_utf8_lossy(&text);
        let value = HeaderValue::from_str(&format!("Bearer {}", text.trim()));
        let mut value = value.map_err(|_| {
            setup(format!(
                "{} does not hold a token; {advice}",
                self.token_file.display()
            ))
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Returns the client, and creates a new one when the certificate authorities have changed.
    fn client(&self) -> Result<Client, ClusterError> {
        let is_plain = self.server()?.scheme() == "http";
        let advice = "name the file with the certificate authorities of the API server in cluster.kubernetes.ca_file";
        let authorities = if is_plain {
            Vec::new()
        } else {
            read(&self.ca_file, advice)?
        };
        let mut kept = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, client)) = kept.as_ref()
            && *of == authorities
        {
            return Ok(client.clone());
        }
        // Only the first call of a process installs one.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .user_agent(concat!("model-pool/", env!("CARGO_PKG_VERSION")));
        let wrong = |error: reqwest::Error| {
            let file = self.ca_file.display();
            setup(format!("{file}: {}; {advice}", root_of(&error)))
        };
        if !is_plain {
            let certificates = Certificate::from_pem_bundle(&authorities).map_err(wrong)?;
            if certificates.is_empty() {
                let file = self.ca_file.display();
                return Err(setup(format!("{file} has no certificate in PEM; {advice}")));
            }
            builder = builder.tls_certs_only(certificates);
        }
        let client = builder.build().map_err(wrong)?;
        *kept = Some((authorities, client.clone()));
        Ok(client)
    }
}

/// Kubernetes gives a pod the server's address as IPv4 or IPv6.
fn address(host: &str, port: &str) -> String {
    if host.contains(':') {
        format!("https://[{host}]:{port}")
    } else {
        format!("https://{host}:{port}")
    }
}

fn setup(message: String) -> ClusterError {
    ClusterError::Setup { message }
}

fn unusable(message: String) -> ClusterError {
    ClusterError::Output {
        program: "the API server".to_owned(),
        message,
    }
}

fn read(file: &Path, advice: &str) -> Result<Vec<u8>, ClusterError> {
    use std::io::Read as _;
    let shown = file.display();
    let failed =
        |error: std::io::Error| setup(format!("{shown} cannot be read: {error}; {advice}"));
    let opened = std::fs::File::open(file).map_err(failed)?;
    let mut bytes = Vec::new();
    let read = opened.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(failed)?;
    if bytes.is_empty() {
        Err(setup(format!("{shown} is empty; {advice}")))
    } else {
        Ok(bytes)
    }
}

/// The innermost cause has the details; the outer errors only say that a request failed.
fn root_of(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_server_address_may_be_ipv4_or_ipv6() {
        assert_eq!(address("10.96.0.1", "443"), "https://10.96.0.1:443");
        assert_eq!(address("fd00::1", "443"), "https://[fd00::1]:443");
        assert!(Url::parse(&address("fd00::1", "443")).is_ok());
    }
}
