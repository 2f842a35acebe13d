//! The files to fetch: names, sizes and digests.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;

use super::error::SourceError;

/// Connecting takes two round trips; a server that sends nothing for this long has stalled.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);
pub(super) const STALL_MAX: Duration = Duration::from_secs(30);

/// One file of a model.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The path in the model's folder, separated by `/`.
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// The name of the content in the cache.
    pub blob: String,
    pub check: Check,
    /// Bytes of the file already included in the progress.
    pub counted: u64,
    /// The bucket's tag, to detect a change during the download.
    pub etag: Option<String>,
}

/// The files of a model at one revision, as their source lists them.
#[derive(Clone, Debug)]
pub(super) struct ListedParts {
    /// The revision: the hub's commit, or the content of the bucket's `hash` file.
    pub commit: String,
    pub parts: Vec<Part>,
}

/// The digest that the content must have, in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Only its size is checked.
    Size,
    Sha256(String),
    /// SHA-1 of git's header and the content.
    GitSha1(String),
    Md5(String),
}

impl Check {
    /// The form in manifests and listings; `None` without a digest.
    pub fn name(&self) -> Option<String> {
        match self {
            Check::Size => None,
            Check::Sha256(digest) => Some(format!("sha256:{digest}")),
            Check::GitSha1(digest) => Some(format!("git:{digest}")),
            Check::Md5(digest) => Some(format!("md5:{digest}")),
        }
    }

    /// Parses that form; `None` for unknown digests.
    pub fn parse(name: &str) -> Option<Check> {
        let (kind, digest) = name.split_once(':')?;
        let digest = digest.to_lowercase();
        let is_hex = digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        match (kind, digest.len()) {
            ("sha256", 64) if is_hex => Some(Check::Sha256(digest)),
            ("git", 40) if is_hex => Some(Check::GitSha1(digest)),
            ("md5", 32) if is_hex => Some(Check::Md5(digest)),
            _ => None,
        }
    }
}

/// The reason why a file could not be opened, or was interrupted.
#[derive(Debug)]
pub(super) enum PartProblem {
    /// A retry may succeed, but no earlier than the server's delay, if given.
    Passing {
        why: String,
        after: Option<Duration>,
    },
    Lasting(SourceError),
}

/// An opened file.
pub(super) struct OpenedPart {
    /// 0 if the server does not support ranges.
    pub offset: u64,
    pub body: BoxStream<'static, Result<Bytes, String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_parses_from_its_formatted_name_and_other_names_are_refused() {
        for check in [
            Check::Sha256("ab".repeat(32)),
            Check::GitSha1("ab".repeat(20)),
            Check::Md5("ab".repeat(16)),
        ] {
            let name = check.name().expect("it has a digest");
            assert_eq!(Check::parse(&name), Some(check));
        }
        assert_eq!(Check::Size.name(), None);
        for wrong in ["", "sha256:", "sha256:zz", "crc:abcd", "md5:../../etc"] {
            assert_eq!(Check::parse(wrong), None, "{wrong}");
        }
    }
}
