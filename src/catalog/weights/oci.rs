//! References to artifacts in OCI registries: `oci://registry/repository:tag` or `…@sha256:digest`.

use std::fmt;

use serde::{Deserialize, Serialize};

const LENGTH_MAX: usize = 512;
const TAG_MAX: usize = 128;
const SCHEME: &str = "oci://";

/// An artifact in a registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OciReference {
    /// Host, and port if given.
    pub registry: String,
    pub repository: String,
    pub version: OciVersion,
}

/// The manifest of an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OciVersion {
    Tag(String),
    /// The SHA-256 digest in lower-case hexadecimal.
    Digest(String),
}

impl OciVersion {
    /// The form in the path of a request.
    pub fn path(&self) -> String {
        match self {
            OciVersion::Tag(tag) => tag.clone(),
            OciVersion::Digest(digest) => format!("sha256:{digest}"),
        }
    }
}

impl fmt::Display for OciReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.version {
            OciVersion::Tag(_) => ':',
            OciVersion::Digest(_) => '@',
        };
        let OciReference {
            registry,
            repository,
            version,
        } = self;
        write!(f, "{SCHEME}{registry}/{repository}{mark}{}", version.path())
    }
}

impl OciReference {
    /// Parses a reference; the tag `latest` is the default. Errors describe the problem with the text.
    pub(crate) fn parse(text: &str) -> Result<OciReference, String> {
        let shown = text.escape_debug();
        let wrong = |problem: &str| {
            format!(
                "`{shown}` {problem}; write oci://registry/repository:tag or oci://registry/repository@sha256:digest"
            )
        };
        let rest = text.strip_prefix(SCHEME);
        let rest = rest.ok_or_else(|| wrong("does not begin with oci://"))?;
        if text.len() > LENGTH_MAX {
            return Err(format!("is longer than {LENGTH_MAX} bytes"));
        }
        let (registry, path) = rest
            .split_once('/')
            .ok_or_else(|| wrong("has no repository"))?;
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:[]".contains(&byte);
        if registry.is_empty() || !registry.bytes().all(is_host) {
            return Err(wrong("has no valid registry"));
        }
        let (path, digest) = match path.split_once('@') {
            Some((path, digest)) => (path, Some(digest)),
            None => (path, None),
        };
        let (repository, tag) = match path.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        let is_name =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        let is_part = |part: &str| {
            part.starts_with(|first: char| first.is_ascii_alphanumeric())
                && part.bytes().all(is_name)
        };
        if !repository.split('/').all(is_part) {
            return Err(wrong(
                "has an invalid repository, which has lower-case letters, digits and `-_./`",
            ));
        }
        let version = match (digest, tag) {
            (Some(digest), _) => {
                let hex = digest.strip_prefix("sha256:").unwrap_or_default();
                let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                if hex.len() != 64 || !hex.bytes().all(is_hex) {
                    return Err(wrong("has an invalid digest"));
                }
                OciVersion::Digest(hex.to_owned())
            }
            (None, tag) => {
                let tag = tag.unwrap_or("latest");
                let is_tag = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
                let is_wrong = tag.is_empty() || tag.len() > TAG_MAX || tag.starts_with(['-', '.']);
                if is_wrong || !tag.bytes().all(is_tag) {
                    return Err(wrong("has an invalid tag"));
                }
                OciVersion::Tag(tag.to_owned())
            }
        };
        Ok(OciReference {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            version,
        })
    }

    /// The address of the registry. Registries on this machine are called without TLS.
    pub fn address(&self) -> String {
        let host = match self.registry.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => &self.registry,
        };
        let is_local = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
        let scheme = if is_local { "http" } else { "https" };
        // Docker's name for its hub is not the address of its registry.
        let registry = match self.registry.as_str() {
            "docker.io" => "registry-1.docker.io",
            registry => registry,
        };
        format!("{scheme}://{registry}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_with_tags_and_digests_are_parsed_and_shown_in_the_same_form() {
        let digest = "ab".repeat(32);
        for text in [
            "oci://registry.example.org/models/llama:8b-q4".to_owned(),
            "oci://localhost:5000/m:1.0".to_owned(),
            format!("oci://ghcr.io/lab/tuned@sha256:{digest}"),
        ] {
            let parsed = OciReference::parse(&text).unwrap();
            assert_eq!(parsed.to_string(), text);
        }
        let latest = OciReference::parse("oci://docker.io/ai/smollm2").unwrap();
        assert_eq!(latest.version, OciVersion::Tag("latest".to_owned()));
        assert_eq!(latest.address(), "https://registry-1.docker.io");
        let both = format!("oci://r.org/m:1@sha256:{digest}");
        let both = OciReference::parse(&both).unwrap();
        assert_eq!(both.version, OciVersion::Digest(digest));
        let local = OciReference::parse("oci://127.0.0.1:5000/m").unwrap();
        assert_eq!(local.address(), "http://127.0.0.1:5000");
    }

    #[test]
    fn a_malformed_reference_is_refused_with_the_form_to_write() {
        for text in [
            "registry.example.org/m:1",
            "oci://registry.example.org",
            "oci:///m:1",
            "oci://user:secret@r.org/m:1",
            "oci://r.org/../m:1",
            "oci://r.org/M:1",
            "oci://r.org/m:",
            "oci://r.org/m:a b",
            "oci://r.org/m@sha256:zz",
            "oci://r.org/m@md5:00",
        ] {
            let problem = OciReference::parse(text).unwrap_err();
            assert!(
                problem.contains("oci://registry/repository:tag"),
                "{problem}"
            );
        }
        assert!(OciReference::parse(&format!("oci://r.org/{}", "m".repeat(600))).is_err());
    }
}
