//! LoRA adapters without a file in the catalogue. A request names `base:suffix:id`, and the adapter is looked up below a path of
//! the base model, in a folder with that name or `suffix:id`, on this machine or in a bucket. This module defines the names and how
//! many adapters a replica holds; `controller` finds them, and the pool decides which to unload.

use std::path::PathBuf;

use pool::{Bytes, Span};

use super::source::{Fetch, Origin};
use config::BucketUri;

/// Maximum length of `suffix:id`, in bytes.
const ID_MAX: usize = 128;

/// The adapters that one replica can hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AdapterRoom {
    pub count: u32,
    /// The highest rank.
    pub rank: u32,
}

/// A base model's adapters that are found by name.
#[derive(Clone, Debug, PartialEq)]
pub struct DynamicAdapters {
    pub place: AdapterPlace,
    pub room: AdapterRoom,
    /// Maximum size of one adapter's files.
    pub bytes_max: Bytes,
    /// Names of the base model as adapters' configurations give it: the last component of each of its names.
    pub bases: Vec<String>,
    /// Time limit for fetching one adapter.
    pub timeout: Span,
}

/// The location of a model's adapters.
#[derive(Clone, Debug, PartialEq)]
pub enum AdapterPlace {
    /// An absolute path.
    Folder(PathBuf),
    Bucket(Box<AdapterBucket>),
}

/// A bucket folder with one subfolder per adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterBucket {
    /// Access settings for the bucket. Its `cache` is the local folder that adapters are downloaded to.
    pub fetch: Fetch,
    /// Maximum size of all adapters in that folder.
    pub cache_bytes_max: Bytes,
}

impl AdapterBucket {
    /// Returns how to fetch the adapter in `folder`. The caller has checked the name.
    pub fn fetch(&self, folder: &str) -> Fetch {
        let mut fetch = self.fetch.clone();
        if let Origin::Bucket(bucket) = &mut fetch.origin {
            let BucketUri { prefix, .. } = &mut bucket.uri;
            *prefix = format!("{prefix}/{folder}").trim_matches('/').to_owned();
        }
        fetch
    }

    /// Applies the settings of the base model's mirror to its adapters, if both use the same kind of bucket.
    fn ask_as(&mut self, base: &Fetch) {
        if let (Origin::Bucket(own), Some(by)) = (&mut self.fetch.origin, &base.extra_by)
            && by.uri.scheme == own.uri.scheme
        {
            let uri = own.uri.clone();
            *own = by.clone();
            own.uri = uri;
            own.filters.clear();
        }
    }
}

impl DynamicAdapters {
    /// Uses the base model's bucket settings for the adapters' bucket.
    pub(crate) fn ask_as(&mut self, base: &Fetch) {
        if let AdapterPlace::Bucket(bucket) = &mut self.place {
            bucket.ask_as(base);
        }
    }

    /// The download settings, or `None` if the adapters are local.
    pub fn fetch(&self) -> Option<&Fetch> {
        match &self.place {
            AdapterPlace::Folder(_) => None,
            AdapterPlace::Bucket(bucket) => Some(&bucket.fetch),
        }
    }

    /// Returns true if an adapter trained for `name` belongs to this model. Names are compared without their organisation or parent
    /// folders, which differ between copies of a model.
    pub fn is_base(&self, name: &str) -> bool {
        self.bases.contains(&last_of(name))
    }

    /// Returns the `suffix:id` of a name that may be an adapter of `base`. Names that could lead out of the folder give `None`.
    pub fn id_of<'a>(&self, base: &str, name: &'a str) -> Option<&'a str> {
        let id = name.strip_prefix(base)?.strip_prefix(':')?;
        is_id(id).then_some(id)
    }
}

/// The part after the last slash of a model's name or folder, in lower case.
pub(crate) fn last_of(name: &str) -> String {
    let last = name.trim_end_matches('/').rsplit('/').next();
    last.unwrap_or_default().to_ascii_lowercase()
}

/// Returns true for parts of letters, digits, `.`, `_` and `-`, separated by colons, none of which begins with a dot.
fn is_id(id: &str) -> bool {
    let is_part = |part: &str| {
        let mut bytes = part.bytes();
        bytes
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    id.len() <= ID_MAX && id.split(':').all(is_part) && id.split(':').count() <= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapter_ids_that_escape_their_folder_are_refused() {
        for id in ["polite:7", "polite", "a.b_c-d:2024"] {
            assert!(is_id(id), "{id}");
        }
        let long = "a".repeat(ID_MAX + 1);
        for id in [
            "", ":", "a:", ":7", "..", "../x", "a:..", "a/../b:7", "a:.b", "a b", "a\0", "a:b:c",
            &long,
        ] {
            assert!(!is_id(id), "{id}");
        }
    }
}
