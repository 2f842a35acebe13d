//! Folders in buckets: `s3://bucket/folder` and `gs://bucket/folder`. Names no credentials, which come from the environment.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::units::{ParseValueError, written_as_text};

/// Names of objects have at most 1,024 bytes, of which files need some.
const PREFIX_BYTES_MAX: usize = 800;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scheme {
    S3,
    Gs,
}

/// `s3://bucket/prefix` or `gs://bucket/prefix`; the prefix has no slash at either end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketUri {
    pub scheme: Scheme,
    pub bucket: String,
    pub prefix: String,
}

impl fmt::Display for BucketUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::S3 => "s3",
            Scheme::Gs => "gs",
        };
        write!(f, "{scheme}://{}", self.bucket)?;
        match self.prefix.as_str() {
            "" => Ok(()),
            prefix => write!(f, "/{prefix}"),
        }
    }
}

impl BucketUri {
    /// Parses an address. Errors describe the problem with the text.
    pub fn parse(text: &str, schemes: &[Scheme]) -> Result<BucketUri, String> {
        let known = [("s3://", Scheme::S3), ("gs://", Scheme::Gs)];
        let allowed: Vec<&str> = known
            .iter()
            .filter(|(_, scheme)| schemes.contains(scheme))
            .map(|(name, _)| *name)
            .collect();
        let found = known
            .iter()
            .filter(|(_, scheme)| schemes.contains(scheme))
            .find_map(|(name, scheme)| Some((*scheme, text.strip_prefix(name)?)));
        let Some((scheme, rest)) = found else {
            let text = text.escape_debug();
            return Err(format!("`{text}` must begin with {}", allowed.join(" or ")));
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_matches('/');
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if bucket.is_empty() || !bucket.bytes().all(is_name) {
            return Err(format!("`{text}` names no bucket: s3://bucket/folder"));
        }
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        let plain = prefix.is_empty() || prefix.split('/').all(is_plain);
        if !plain || prefix.chars().any(char::is_control) {
            return Err(format!("`{text}` has an invalid folder"));
        }
        Ok(BucketUri {
            scheme,
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }
}

/// A folder in a bucket, as a value of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketFolder(pub BucketUri);

impl FromStr for BucketFolder {
    type Err = ParseValueError;

    /// The message never repeats a text that may have credentials.
    fn from_str(text: &str) -> Result<BucketFolder, ParseValueError> {
        let text = text.trim();
        if text.contains(['@', '?', '#']) {
            return Err(ParseValueError(
                "an address of a bucket has no `@`, `?` or `#`, and no credentials; write s3://bucket/folder or gs://bucket/folder, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or GOOGLE_APPLICATION_CREDENTIALS, in the environment".to_owned(),
            ));
        }
        let uri = BucketUri::parse(text, &[Scheme::S3, Scheme::Gs]).map_err(ParseValueError)?;
        let bytes = uri.prefix.len();
        if bytes > PREFIX_BYTES_MAX {
            return Err(ParseValueError(format!(
                "the folder has {bytes} bytes; allowed: {PREFIX_BYTES_MAX}"
            )));
        }
        Ok(BucketFolder(uri))
    }
}

impl fmt::Display for BucketFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

written_as_text!(
    BucketFolder,
    "a folder in a bucket such as \"s3://lab-batches/files\"",
    ["s3://lab-batches/files", "gs://lab-batches"]
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_a_bucket_prints_as_it_was_written_without_a_slash_at_its_end() {
        for (text, printed) in [
            ("s3://lab", "s3://lab"),
            ("s3://lab/", "s3://lab"),
            (" gs://lab-batches/a/b/ ", "gs://lab-batches/a/b"),
        ] {
            let folder: BucketFolder = text.parse().expect(text);
            assert_eq!(folder.to_string(), printed, "{text}");
            let again: BucketFolder = printed.parse().expect(printed);
            assert_eq!(again, folder);
        }
    }

    #[test]
    fn wrong_addresses_are_refused_and_credentials_are_not_repeated() {
        let long = format!("s3://lab/{}", "x".repeat(PREFIX_BYTES_MAX + 1));
        for (text, words) in [
            ("", "must begin with s3:// or gs://"),
            ("az://lab/files", "must begin with s3:// or gs://"),
            ("/data/files", "must begin with s3:// or gs://"),
            ("s3://", "names no bucket"),
            ("s3:///files", "names no bucket"),
            ("s3://lab/a//b", "invalid folder"),
            ("s3://lab/../b", "invalid folder"),
            ("s3://AKIA:secret@lab/files", "no credentials"),
            ("s3://lab/files?X-Amz-Signature=secret", "no credentials"),
            (long.as_str(), "allowed: 800"),
        ] {
            let error = text.parse::<BucketFolder>().expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
