//! Artifacts in OCI registries: CNCF's ModelPack, Docker's models, and files that `oras push` uploads. Reads the manifest, whose
//! layers are the files of the model, and the files from an offset on. Every byte is verified by its SHA-256 digest.

mod challenge;
mod manifest;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, RANGE};
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use sha1::Digest as _;

use super::error::{SourceError, root_of};
use super::http_status::{is_transient, retry_after, send_in_time};
use super::part::{ListedParts, OpenedPart, Part, PartProblem};
use super::part_writer::hex;
use catalog::{Fetch, OciReference, OciVersion};
use challenge::Scheme;
use manifest::{INDEX_TYPES, MANIFEST_TYPES, Manifest, ManifestError};

const MANIFEST_BYTES_MAX: usize = 4 << 20;
const TOKEN_BYTES_MAX: usize = 64 << 10;
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(60);
/// The variables with the account at a registry.
const USER: &str = "OCI_USERNAME";
const PASSWORD: &str = "OCI_PASSWORD";
/// The registry for which the account in the pool's environment is meant.
const REGISTRY: &str = "OCI_REGISTRY";
const CHECK_REFERENCE: &str = "check engine_config.oci_artifact";

/// A repository in a registry.
pub(super) struct Registry {
    http: reqwest::Client,
    reference: OciReference,
    account: Option<(String, String)>,
    /// The bearer token that the registry's token server issued last.
    token: Mutex<Option<String>>,
}

/// Omits the account and the token.
impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("reference", &self.reference)
            .field("has_account", &self.account.is_some())
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct IssuedToken {
    token: Option<String>,
    access_token: Option<String>,
}

/// The reason why a request failed.
enum Failure {
    Passing {
        why: String,
        after: Option<Duration>,
    },
    Lasting(SourceError),
}

/// The account in the pool's environment, if it is meant for this registry: another one must not receive it.
fn shared_account(
    shared: Option<(String, String)>,
    meant: Option<&str>,
    registry: &str,
) -> Option<(String, String)> {
    shared.filter(|_| meant == Some(registry))
}

impl Registry {
    pub fn new(reference: &OciReference, wanted: &Fetch, http: reqwest::Client) -> Registry {
        let own = wanted.own_variable(USER).zip(wanted.own_variable(PASSWORD));
        let shared = wanted.variable(USER).zip(wanted.variable(PASSWORD));
        let meant = wanted.variable(REGISTRY);
        let account = own.or(shared_account(
            shared,
            meant.as_deref(),
            &reference.registry,
        ));
        Registry {
            http,
            reference: reference.clone(),
            account,
            token: Mutex::default(),
        }
    }

    /// The reference, for display.
    pub fn shown(&self) -> String {
        self.reference.to_string()
    }

    fn problem(&self, why: impl Into<String>, advice: &'static str, lasting: bool) -> SourceError {
        SourceError::Bucket {
            uri: self.shown(),
            why: why.into(),
            advice,
            lasting,
        }
    }

    fn url(&self, kind: &str, name: &str) -> String {
        let (address, repository) = (self.reference.address(), &self.reference.repository);
        format!("{address}/v2/{repository}/{kind}/{name}")
    }

    fn token(&self) -> Option<String> {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        token.clone()
    }

    /// Sends a request, and again with a token if the registry demands one.
    async fn send(&self, request: impl Fn() -> RequestBuilder) -> Result<Response, Failure> {
        let passing = |error: reqwest::Error| Failure::Passing {
            why: root_of(&error.without_url()),
            after: None,
        };
        let with = |request: RequestBuilder, token: Option<&str>| match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let token = self.token();
        let response = send_in_time(|| with(request(), token.as_deref())).await;
        let response = response.map_err(passing)?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        match (Scheme::choose(response.headers()), &self.account) {
            (Scheme::Bearer(parameters), _) => {
                let token = self.issue_token(&parameters).await?;
                let again = send_in_time(|| with(request(), Some(&token))).await;
                let again = again.map_err(passing)?;
                *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
                Ok(again)
            }
            (Scheme::Basic, Some((user, password))) => {
                let again = send_in_time(|| request().basic_auth(user, Some(password))).await;
                again.map_err(passing)
            }
            (Scheme::Basic | Scheme::Unknown, _) => Ok(response),
        }
    }

    /// Requests a token from the server that the registry names in a challenge.
    async fn issue_token(&self, parameters: &BTreeMap<String, String>) -> Result<String, Failure> {
        const ADVICE: &str = "check OCI_USERNAME and OCI_PASSWORD";
        let lasting = |why: String| Failure::Lasting(self.problem(why, ADVICE, true));
        let realm = parameters.get("realm");
        let realm = realm.ok_or_else(|| lasting("it names no token server".to_owned()))?;
        let mut url = Url::parse(realm)
            .map_err(|error| lasting(format!("its token server is not a URL: {error}")))?;
        // The account must not travel in the clear.
        let is_plain = self.reference.address().starts_with("http://");
        if url.scheme() != "https" && !is_plain {
            return Err(lasting("its token server does not use https".to_owned()));
        }
        for name in ["service", "scope"] {
            if let Some(value) = parameters.get(name) {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        let request = || {
            let request = self.http.get(url.clone()).timeout(RESPONSE_TIME_MAX);
            match &self.account {
                Some((user, password)) => request.basic_auth(user, Some(password)),
                None => request,
            }
        };
        let passing = |why: String| Failure::Passing {
            why: format!("its token server: {why}"),
            after: None,
        };
        let response = send_in_time(request).await;
        let response = response.map_err(|error| passing(root_of(&error.without_url())))?;
        let status = response.status();
        if !status.is_success() {
            let why = format!("its token server answers {}", status.as_u16());
            if !is_transient(status) {
                return Err(lasting(why));
            }
            return Err(Failure::Passing {
                why,
                after: retry_after(response.headers()),
            });
        }
        let body = limited(response, TOKEN_BYTES_MAX).await.map_err(passing)?;
        // The response contains a token, so errors do not quote it.
        let issued: Option<IssuedToken> = serde_json::from_slice(&body).ok();
        issued
            .and_then(|issued| issued.token.or(issued.access_token))
            .ok_or_else(|| lasting("its token server sent no token".to_owned()))
    }

    /// Lists the files of the artifact.
    pub async fn list(&self) -> Result<ListedParts, SourceError> {
        let version = self.reference.version.clone();
        let (mut digest, mut body, mut kind) = self.manifest(&version).await?;
        let is_index =
            |kind: &str, body: &[u8]| INDEX_TYPES.contains(&kind) || manifest::is_index(body);
        if is_index(&kind, &body) {
            let only = manifest::only_of_index(&body).map_err(|error| self.unusable(error))?;
            (digest, body, kind) = self.manifest(&OciVersion::Digest(only)).await?;
            if is_index(&kind, &body) {
                return Err(self.unusable(ManifestError::NestedIndex));
            }
        }
        let manifest = Manifest::parse(&body).map_err(|error| self.unusable(error))?;
        let parts = manifest.parts().map_err(|error| self.unusable(error))?;
        Ok(ListedParts {
            commit: digest,
            parts,
        })
    }

    fn unusable(&self, error: ManifestError) -> SourceError {
        self.problem(error.to_string(), CHECK_REFERENCE, true)
    }

    /// Returns the digest, the body and the type of a manifest.
    async fn manifest(
        &self,
        version: &OciVersion,
    ) -> Result<(String, Vec<u8>, String), SourceError> {
        let url = self.url("manifests", &version.path());
        let accepted = [MANIFEST_TYPES.as_slice(), &INDEX_TYPES]
            .concat()
            .join(", ");
        let request = || {
            let request = self.http.get(&url).timeout(RESPONSE_TIME_MAX);
            request.header(ACCEPT, &accepted)
        };
        let network = "check the registry and this machine's network";
        let response = self.send(request).await.map_err(|failure| match failure {
            Failure::Passing { why, .. } => self.problem(why, network, false),
            Failure::Lasting(error) => error,
        })?;
        if !response.status().is_success() {
            return Err(self.refused(response.status()));
        }
        let kind = response.headers().get(reqwest::header::CONTENT_TYPE);
        let kind = kind
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let body = limited(response, MANIFEST_BYTES_MAX).await;
        let body = body.map_err(|why| self.problem(why, network, false))?;
        let digest = hex(&sha2::Sha256::digest(&body));
        match version {
            OciVersion::Digest(expected) if *expected != digest => Err(self.problem(
                format!("the manifest has the digest sha256:{digest}, not the requested one"),
                CHECK_REFERENCE,
                true,
            )),
            _ => Ok((digest, body, kind)),
        }
    }

    fn refused(&self, status: StatusCode) -> SourceError {
        let advice = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if self.account.is_none() => {
                "set OCI_USERNAME and OCI_PASSWORD in runtime_env.env_vars, or with OCI_REGISTRY in the pool's environment"
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                "check OCI_USERNAME and OCI_PASSWORD"
            }
            _ => CHECK_REFERENCE,
        };
        let why = format!("the registry answers {}", status.as_u16());
        self.problem(why, advice, !is_transient(status))
    }

    pub async fn open(&self, part: &Part, offset: u64) -> Result<OpenedPart, PartProblem> {
        let url = self.url("blobs", &format!("sha256:{}", part.blob));
        let request = || {
            let request = self.http.get(&url).header(ACCEPT_ENCODING, "identity");
            if offset > 0 {
                request.header(RANGE, format!("bytes={offset}-"))
            } else {
                request
            }
        };
        let response = self.send(request).await.map_err(|failure| match failure {
            Failure::Passing { why, after } => PartProblem::Passing { why, after },
            Failure::Lasting(error) => PartProblem::Lasting(error),
        })?;
        let offset = match response.status() {
            StatusCode::PARTIAL_CONTENT => offset,
            status if status.is_success() => 0,
            status if is_transient(status) => {
                return Err(PartProblem::Passing {
                    why: format!("the registry answers {}", status.as_u16()),
                    after: retry_after(response.headers()),
                });
            }
            status => return Err(PartProblem::Lasting(self.refused(status))),
        };
        let body = response.bytes_stream();
        Ok(OpenedPart {
            offset,
            body: body
                .map(|chunk| chunk.map_err(|error| root_of(&error.without_url())))
                .boxed(),
        })
    }
}

/// Reads a body up to a limit.
async fn limited(response: Response, most: usize) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        body.extend_from_slice(&chunk.map_err(|error| root_of(&error.without_url()))?);
        if body.len() > most {
            return Err(format!("its response is longer than {most} bytes"));
        }
    }
    Ok(body)
}

#[cfg(test)]
mod tests;
