//! LoRA adapters without a file in the catalogue: a request names `base:suffix:id`, and the adapter is looked for below a
//! path of the base model, in a folder of that name or of `suffix:id`, on this machine or in a bucket. Here is which names they have and how many a replica
//! holds; `controller` looks for them, and the pool decides which leaves for which.

use std::path::PathBuf;

use pool::{Bytes, Span};

use super::weights::{BucketUri, Fetch, Origin};

/// The longest `suffix:id`.
const ID_MAX: usize = 128;

/// What one replica has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AdapterRoom {
    pub count: u32,
    /// The highest rank.
    pub rank: u32,
}

/// A base model's adapters that are looked for by their names.
#[derive(Clone, Debug, PartialEq)]
pub struct DynamicAdapters {
    pub place: AdapterPlace,
    pub room: AdapterRoom,
    /// The most that the files of one take.
    pub bytes_max: Bytes,
    /// What the base model is called by those who train adapters for it: the last parts of its names.
    pub bases: Vec<String>,
    /// How long it may take to bring one.
    pub timeout: Span,
}

/// Where adapters are looked for.
#[derive(Clone, Debug, PartialEq)]
pub enum AdapterPlace {
    /// Absolute.
    Folder(PathBuf),
    Bucket(Box<AdapterBucket>),
}

/// A folder of a bucket with a folder for each adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterBucket {
    /// How the bucket is asked. Its `cache` is the folder of this machine that adapters are brought to.
    pub fetch: Fetch,
    /// The most that all adapters in that folder take.
    pub cache_bytes_max: Bytes,
}

impl AdapterBucket {
    /// How one adapter is fetched, which has a folder of this name. The name has been checked.
    pub fn of(&self, folder: &str) -> Fetch {
        let mut fetch = self.fetch.clone();
        if let Origin::Bucket(bucket) = &mut fetch.origin {
            let BucketUri { prefix, .. } = &mut bucket.uri;
            *prefix = format!("{prefix}/{folder}").trim_matches('/').to_owned();
        }
        fetch
    }

    /// What the base model's own mirror says of the way to its bucket holds for its adapters in the same kind of bucket.
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
    /// A bucket is asked as that of the base model is.
    pub(super) fn ask_as(&mut self, base: &Fetch) {
        if let AdapterPlace::Bucket(bucket) = &mut self.place {
            bucket.ask_as(base);
        }
    }

    /// What is fetched for them.
    pub fn fetch(&self) -> Option<&Fetch> {
        match &self.place {
            AdapterPlace::Folder(_) => None,
            AdapterPlace::Bucket(bucket) => Some(&bucket.fetch),
        }
    }

    /// Whether an adapter that was trained for a model of this name is one of this model's. Names are compared without
    /// the organisation or the folders before them, in which copies of a model differ.
    pub fn is_base(&self, name: &str) -> bool {
        self.bases.contains(&last_of(name))
    }

    /// The `suffix:id` of a name that may be one of the adapters of `base`. A name that could lead out of the folder is
    /// none.
    pub fn id_of<'a>(&self, base: &str, name: &'a str) -> Option<&'a str> {
        let id = name.strip_prefix(base)?.strip_prefix(':')?;
        is_id(id).then_some(id)
    }
}

/// What is behind the last slash of a model's name or folder, in small letters.
pub(super) fn last_of(name: &str) -> String {
    let last = name.trim_end_matches('/').rsplit('/').next();
    last.unwrap_or_default().to_ascii_lowercase()
}

/// Parts of letters, digits, `.`, `_` and `-`, with colons between; none begins with a dot.
fn is_id(id: &str) -> bool {
    let is_part = |part: &str| {
        let mut bytes = part.bytes();
        bytes.next().is_some_and(|it| it.is_ascii_alphanumeric())
            && bytes.all(|it| it.is_ascii_alphanumeric() || b"._-".contains(&it))
    };
    id.len() <= ID_MAX && id.split(':').all(is_part) && id.split(':').count() <= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_lead_out_of_its_folder() {
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
