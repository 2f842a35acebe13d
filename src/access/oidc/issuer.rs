//! Fetches the issuer's discovery document and its keys: over TLS or on this machine, without redirects, with
//! limits of time and size.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Url};
use serde::Deserialize;

use super::fault::IssuerFault;
use super::keys::KeySet;
use config::OidcSection;
use config::oidc::trusted_address;

/// Limits for connecting, and for one complete request.
const CONNECT_MAX: Duration = Duration::from_secs(3);
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Discovery documents have a few kilobytes, keys with their certificates some tens.
const ANSWER_BYTES_MAX: usize = 1 << 20;

pub(super) struct Issuer {
    http: Client,
    name: String,
    description: Url,
}

/// The fields of the discovery document that are used.
#[derive(Deserialize)]
struct Description {
    issuer: String,
    jwks_uri: String,
}

impl Issuer {
    pub async fn new(section: &OidcSection) -> Result<Issuer, IssuerFault> {
        let address = |why: String| IssuerFault::Address {
            address: section.issuer.clone(),
            why,
        };
        trusted_address(&section.issuer).map_err(address)?;
        let description = format!(
            "{}/.well-known/openid-configuration",
            section.issuer.trim_end_matches('/')
        );
        let description = trusted_address(&description).map_err(address)?;
        // An earlier call has set the same provider.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder()
            .connect_timeout(CONNECT_MAX)
            .timeout(ANSWER_MAX)
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
        let http = client.build().map_err(|error| IssuerFault::Client {
            why: root_of(&error),
        })?;
        Ok(Issuer {
            http,
            name: section.issuer.clone(),
            description,
        })
    }

    /// The address of the keys, if the document belongs to the configured issuer.
    pub async fn describe(&self) -> Result<Url, IssuerFault> {
        let bytes = self.read(&self.description).await?;
        let found: Description =
            serde_json::from_slice(&bytes).map_err(|error| self.shape(&self.description, error))?;
        if found.issuer != self.name {
            return Err(IssuerFault::OtherIssuer {
                address: self.description.to_string(),
                found_issuer: found.issuer.chars().take(200).collect(),
            });
        }
        let untrusted = |why: String| IssuerFault::KeysAddress {
            address: found.jwks_uri.chars().take(200).collect(),
            why,
        };
        let keys = trusted_address(&found.jwks_uri).map_err(untrusted)?;
        if self.description.scheme() == "https" && keys.scheme() != "https" {
            return Err(untrusted("the issuer itself is https".to_owned()));
        }
        Ok(keys)
    }

    pub async fn keys(&self, address: &Url) -> Result<KeySet, IssuerFault> {
        let bytes = self.read(address).await?;
        let keys = KeySet::read(&bytes).map_err(|error| self.shape(address, error))?;
        match keys.is_empty() {
            true => Err(IssuerFault::NoKeys {
                address: address.to_string(),
            }),
            false => Ok(keys),
        }
    }

    fn shape(&self, address: &Url, error: serde_json::Error) -> IssuerFault {
        IssuerFault::Shape {
            address: address.to_string(),
            why: error.to_string(),
        }
    }

    async fn read(&self, address: &Url) -> Result<Vec<u8>, IssuerFault> {
        let unreachable = |error: reqwest::Error| IssuerFault::Unreachable {
            address: address.to_string(),
            why: root_of(&error.without_url()),
        };
        let sent = self.http.get(address.clone()).send().await;
        let answer = sent.map_err(unreachable)?;
        // A redirect, which is not a success either, would lead to another server.
        if answer.status() != reqwest::StatusCode::OK {
            return Err(IssuerFault::Status {
                address: address.to_string(),
                status: answer.status().as_u16(),
            });
        }
        let mut body = Vec::new();
        let mut chunks = answer.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            body.extend_from_slice(&chunk.map_err(unreachable)?);
            if body.len() > ANSWER_BYTES_MAX {
                return Err(IssuerFault::TooLarge {
                    address: address.to_string(),
                    limit: ANSWER_BYTES_MAX,
                });
            }
        }
        Ok(body)
    }
}

async fn authorities(path: &Path) -> Result<Vec<Certificate>, IssuerFault> {
    let unusable = |why: String| IssuerFault::Authorities {
        path: path.to_owned(),
        why,
    };
    let text = tokio::fs::read(path).await;
    let text = text.map_err(|error| unusable(error.to_string()))?;
    let found = Certificate::from_pem_bundle(&text).map_err(|error| unusable(root_of(&error)))?;
    match found.is_empty() {
        true => Err(unusable("it contains no PEM certificate".to_owned())),
        false => Ok(found),
    }
}

/// The last cause of an error, which people can usually act on.
fn root_of(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
