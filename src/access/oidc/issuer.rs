//! Fetches the issuer's discovery document, its keys and its tokens, over TLS or on this machine, without redirects, and with
//! limits of time and size.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, RequestBuilder, Response, StatusCode, Url, header};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::IssuerError;
use super::keys::KeySet;
use config::OidcSection;
use config::oidc::trusted_address;

/// Limits for connecting, and for one complete request.
const CONNECT_MAX: Duration = Duration::from_secs(3);
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(5);
/// Discovery documents have a few kilobytes, keys with their certificates some tens.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

pub(super) struct Issuer {
    http: Client,
    name: String,
    description: Url,
}

/// The relevant fields of the discovery document.
#[derive(Deserialize)]
struct Description {
    issuer: String,
    jwks_uri: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// The addresses for signing in and for exchanging a code for a token.
#[derive(Clone)]
pub(super) struct Endpoints {
    pub authorization: Url,
    pub token: Url,
    /// True if the client's secret is sent by HTTP basic authentication, false for the form.
    pub takes_basic: bool,
}

/// The JSON of a response with any status.
pub(super) struct TokenResponse {
    pub status: u16,
    pub is_success: bool,
    pub body: Map<String, Value>,
}

impl Issuer {
    pub async fn new(section: &OidcSection) -> Result<Issuer, IssuerError> {
        let address = |why: String| IssuerError::Address {
            address: section.issuer.clone(),
            why,
        };
        trusted_address(&section.issuer).map_err(address)?;
        let description = format!(
            "{}/.well-known/openid-configuration",
            section.issuer.trim_end_matches('/')
        );
        let description = trusted_address(&description).map_err(address)?;
        // An error means that the same provider is already installed.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder()
            .connect_timeout(CONNECT_MAX)
            .timeout(RESPONSE_TIME_MAX)
            .redirect(Policy::none())
            .referer(false)
            .user_agent(concat!("model-pool/", env!("CARGO_PKG_VERSION")));
        if description.scheme() == "http" {
            // Requests to this machine must not go through a proxy.
            client = client.no_proxy();
        }
        if let Some(path) = &section.ca_file {
            client = client.tls_certs_merge(authorities(path).await?);
        }
        let http = client.build().map_err(|error| IssuerError::Client {
            why: root_of(&error),
        })?;
        Ok(Issuer {
            http,
            name: section.issuer.clone(),
            description,
        })
    }

    /// The host where people sign in, for display.
    pub fn host(&self) -> String {
        let host = self.description.host_str().unwrap_or_default();
        match self.description.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    /// The address of the keys, if the document belongs to the configured issuer.
    pub async fn describe(&self) -> Result<Url, IssuerError> {
        let found = self.document().await?;
        self.trusted("jwks_uri", &found.jwks_uri)
    }

    /// The addresses for browsers.
    pub async fn endpoints(&self) -> Result<Endpoints, IssuerError> {
        let found = self.document().await?;
        let needed = |name: &'static str, text: &Option<String>| {
            let missing = || IssuerError::NoBrowsers {
                address: self.description.to_string(),
                name,
            };
            self.trusted(name, text.as_deref().ok_or_else(missing)?)
        };
        let methods = &found.token_endpoint_auth_methods_supported;
        let has = |method: &str| methods.iter().flatten().any(|known| known == method);
        Ok(Endpoints {
            authorization: needed("authorization_endpoint", &found.authorization_endpoint)?,
            token: needed("token_endpoint", &found.token_endpoint)?,
            takes_basic: has("client_secret_basic") || !has("client_secret_post"),
        })
    }

    /// Sends a form. Errors of the issuer are responses as well.
    pub async fn post(
        &self,
        address: &Url,
        form: String,
        authorization: Option<String>,
    ) -> Result<TokenResponse, IssuerError> {
        let mut request = self.http.post(address.clone()).body(form);
        request = request
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json");
        if let Some(text) = authorization {
            request = request.header(header::AUTHORIZATION, text);
        }
        let response = self.send(address, request).await?;
        let status = response.status();
        if status.is_redirection() || status.is_server_error() {
            return Err(IssuerError::Status {
                address: address.to_string(),
                status: status.as_u16(),
            });
        }
        let body = self.body(address, response).await?;
        let body = serde_json::from_slice(&body).map_err(|error| self.shape(address, error))?;
        Ok(TokenResponse {
            status: status.as_u16(),
            is_success: status == StatusCode::OK,
            body,
        })
    }

    async fn document(&self) -> Result<Description, IssuerError> {
        let bytes = self.read(&self.description).await?;
        let found: Description =
            serde_json::from_slice(&bytes).map_err(|error| self.shape(&self.description, error))?;
        if found.issuer != self.name {
            return Err(IssuerError::OtherIssuer {
                address: self.description.to_string(),
                found_issuer: found.issuer.chars().take(200).collect(),
            });
        }
        Ok(found)
    }

    /// Parses an address of the document. An issuer with TLS may only name addresses with TLS.
    fn trusted(&self, name: &'static str, text: &str) -> Result<Url, IssuerError> {
        let untrusted = |why: String| IssuerError::NamedAddress {
            name,
            address: text.chars().take(200).collect(),
            why,
        };
        let address = trusted_address(text).map_err(untrusted)?;
        if self.description.scheme() == "https" && address.scheme() != "https" {
            return Err(untrusted("the issuer itself is https".to_owned()));
        }
        Ok(address)
    }

    pub async fn keys(&self, address: &Url) -> Result<KeySet, IssuerError> {
        let bytes = self.read(address).await?;
        let keys = KeySet::read(&bytes).map_err(|error| self.shape(address, error))?;
        if keys.is_empty() {
            Err(IssuerError::NoKeys {
                address: address.to_string(),
            })
        } else {
            Ok(keys)
        }
    }

    fn shape(&self, address: &Url, error: serde_json::Error) -> IssuerError {
        IssuerError::Shape {
            address: address.to_string(),
            why: error.to_string(),
        }
    }

    async fn read(&self, address: &Url) -> Result<Vec<u8>, IssuerError> {
        let response = self.send(address, self.http.get(address.clone())).await?;
        // A redirect, which is not a success either, would lead to another server.
        if response.status() != StatusCode::OK {
            return Err(IssuerError::Status {
                address: address.to_string(),
                status: response.status().as_u16(),
            });
        }
        self.body(address, response).await
    }

    async fn send(&self, address: &Url, request: RequestBuilder) -> Result<Response, IssuerError> {
        let sent = request.send().await;
        sent.map_err(|error| unreachable(address, error))
    }

    async fn body(&self, address: &Url, response: Response) -> Result<Vec<u8>, IssuerError> {
        let mut body = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            body.extend_from_slice(&chunk.map_err(|error| unreachable(address, error))?);
            if body.len() > RESPONSE_BYTES_MAX {
                return Err(IssuerError::TooLarge {
                    address: address.to_string(),
                    limit: RESPONSE_BYTES_MAX,
                });
            }
        }
        Ok(body)
    }
}

fn unreachable(address: &Url, error: reqwest::Error) -> IssuerError {
    IssuerError::Unreachable {
        address: address.to_string(),
        why: root_of(&error.without_url()),
    }
}

async fn authorities(path: &Path) -> Result<Vec<Certificate>, IssuerError> {
    let unusable = |why: String| IssuerError::Authorities {
        path: path.to_owned(),
        why,
    };
    let text = tokio::fs::read(path).await;
    let text = text.map_err(|error| unusable(error.to_string()))?;
    let found = Certificate::from_pem_bundle(&text).map_err(|error| unusable(root_of(&error)))?;
    if found.is_empty() {
        Err(unusable("it contains no PEM certificate".to_owned()))
    } else {
        Ok(found)
    }
}

/// The last cause of an error, which is usually the actionable one.
fn root_of(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
