//! The Hugging Face hub, or a server with the same API: lists a repository at a revision, and reads its files from an offset on.
//! Uses the same responses as `huggingface_hub`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::header::{ACCEPT_ENCODING, RANGE};
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::Deserialize;

use super::error::{SourceError, root_of};
use super::http_status::{is_transient, retry_after, send_in_time};
use super::part::{Check, ListedParts, OpenedPart, Part, PartProblem};

/// A listing usually takes a few hundred kilobytes.
const LISTING_MAX: usize = 64 << 20;
const LISTING_TIME_MAX: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(super) struct Hub {
    pub http: reqwest::Client,
    /// The address without a trailing slash. It may contain a password: use `shown` for display.
    pub endpoint: String,
    pub token: Option<String>,
    /// For errors: the folder where files can be placed by hand.
    pub cache: PathBuf,
}

/// Omits the token.
impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("endpoint", &self.shown())
            .field("has_token", &self.token.is_some())
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Repository {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

impl Hub {
    /// The address without its user and password.
    pub fn shown(&self) -> String {
        match self.endpoint.split_once("://") {
            Some((scheme, rest)) => {
                let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
                format!("{scheme}://{host}")
            }
            None => self.endpoint.clone(),
        }
    }

    pub fn get(&self, url: &str) -> RequestBuilder {
        let request = self.http.get(url).header(ACCEPT_ENCODING, "identity");
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub async fn list(&self, id: &str, revision: &str) -> Result<ListedParts, SourceError> {
        let url = format!(
            "{}/api/models/{id}/revision/{}?blobs=true",
            self.endpoint,
            quoted(revision, "")
        );
        let unreachable = |error: reqwest::Error| SourceError::Unreachable {
            endpoint: self.shown(),
            why: root_of(&error.without_url()),
            cache: self.cache.clone(),
        };
        let response = send_in_time(|| self.get(&url).timeout(LISTING_TIME_MAX)).await;
        let response = response.map_err(unreachable)?;
        if !response.status().is_success() {
            return Err(self.refused(id, revision, response).await);
        }
        let no_hub = |why: String| self.no_hub(id, why);
        let mut body = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            body.extend_from_slice(&chunk.map_err(unreachable)?);
            if body.len() > LISTING_MAX {
                return Err(no_hub(format!("it is longer than {LISTING_MAX} bytes")));
            }
        }
        self.listing(id, &body)
    }

    /// Parses a listing in the hub's format.
    pub fn listing(&self, id: &str, body: &[u8]) -> Result<ListedParts, SourceError> {
        let no_hub = |why: String| self.no_hub(id, why);
        let read: Repository =
            serde_json::from_slice(body).map_err(|error| no_hub(error.to_string()))?;
        let is_commit =
            read.sha.len() <= 64 && read.sha.bytes().all(|byte| byte.is_ascii_hexdigit());
        if read.sha.is_empty() || !is_commit {
            return Err(no_hub("its sha is not a commit".to_owned()));
        }
        let parts = read.siblings.into_iter().map(|file| {
            part(file).map_err(|name| no_hub(format!("it has no size or digest for {name}")))
        });
        Ok(ListedParts {
            parts: parts.collect::<Result<_, _>>()?,
            commit: read.sha,
        })
    }

    fn no_hub(&self, id: &str, why: String) -> SourceError {
        SourceError::NoHub {
            what: format!("{}/api/models/{id}", self.shown()),
            why,
        }
    }

    pub async fn open(
        &self,
        id: &str,
        commit: &str,
        part: &Part,
        offset: u64,
    ) -> Result<OpenedPart, PartProblem> {
        let url = format!(
            "{}/{id}/resolve/{commit}/{}",
            self.endpoint,
            quoted(&part.path, "/")
        );
        let mut request = self.get(&url);
        if offset > 0 {
            request = request.header(RANGE, format!("bytes={offset}-"));
        }
        let response = request.send().await.map_err(|error| PartProblem::Passing {
            why: root_of(&error.without_url()),
            after: None,
        })?;
        let offset = match response.status() {
            StatusCode::PARTIAL_CONTENT => offset,
            status if status.is_success() => 0,
            // The local file is longer than the remote one is now.
            StatusCode::RANGE_NOT_SATISFIABLE => {
                return Err(PartProblem::Lasting(SourceError::Refused {
                    what: format!("{}/{id}, {}", self.shown(), part.path),
                    status: 416,
                    message: "the file differs from the one that the hub listed".to_owned(),
                }));
            }
            status if is_transient(status) => {
                return Err(PartProblem::Passing {
                    why: format!("{} answers {}", self.shown(), status.as_u16()),
                    after: retry_after(response.headers()),
                });
            }
            _ => {
                return Err(PartProblem::Lasting(
                    self.refused(id, commit, response).await,
                ));
            }
        };
        let body = response.bytes_stream();
        Ok(OpenedPart {
            offset,
            body: body
                .map(|chunk| chunk.map_err(|error| root_of(&error.without_url())))
                .boxed(),
        })
    }

    /// The hub gives the reason in a header. A missing repository looks the same as a private one.
    async fn refused(&self, id: &str, revision: &str, response: Response) -> SourceError {
        let status = response.status().as_u16();
        let header = |name: &str| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.chars().take(300).collect::<String>())
        };
        let (id, endpoint) = (id.to_owned(), self.shown());
        let has_token = self.token.is_some();
        let message = header("x-error-message").unwrap_or_default();
        let code = header("x-error-code").filter(|_| !is_transient(response.status()));
        match (code.as_deref(), status) {
            (Some("GatedRepo"), _) => SourceError::Gated {
                id,
                endpoint,
                has_token,
            },
            (Some("RevisionNotFound"), _) => SourceError::NoRevision {
                id,
                revision: revision.to_owned(),
                endpoint,
            },
            (_, 401) if has_token && message.contains("Invalid") => {
                SourceError::BadToken { endpoint }
            }
            (Some("RepoNotFound"), _) | (None, 401 | 404) => SourceError::NoRepository {
                id,
                endpoint,
                has_token,
            },
            _ => SourceError::Refused {
                what: format!("{endpoint}/{id}"),
                status,
                message,
            },
        }
    }
}

fn part(file: Sibling) -> Result<Part, String> {
    let known = match (file.lfs, file.blob_id, file.size) {
        (Some(lfs), ..) => Some((lfs.size, Check::Sha256(lfs.sha256.to_lowercase()))),
        (None, Some(blob), Some(size)) => Some((size, Check::GitSha1(blob.to_lowercase()))),
        _ => None,
    };
    let is_hex = |text: &str| {
        matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    match known {
        Some((size, check @ (Check::Sha256(_) | Check::GitSha1(_)))) => {
            let (Check::Sha256(blob) | Check::GitSha1(blob)) = &check else {
                return Err(file.rfilename);
            };
            if !is_hex(blob) {
                return Err(file.rfilename);
            }
            Ok(Part {
                blob: blob.clone(),
                path: file.rfilename,
                size,
                check,
                counted: 0,
                etag: None,
            })
        }
        _ => Err(file.rfilename),
    }
}

/// Percent-encodes everything except unreserved characters and the characters in `kept`.
pub(super) fn quoted(text: &str, kept: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for byte in text.bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if is_plain || kept.as_bytes().contains(&byte) {
            quoted.push(char::from(byte));
        } else {
            quoted.push_str(&format!("%{byte:02X}"));
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_characters_in_a_path_are_percent_encoded() {
        assert_eq!(quoted("refs/pr/1", ""), "refs%2Fpr%2F1");
        assert_eq!(quoted("a b/ü?.json", "/"), "a%20b/%C3%BC%3F.json");
    }
}
