//! The weights of models: names on the hub, the local cache, records of complete fetches, and adapters without a file.

pub(crate) mod adapter_names;
pub(crate) mod hub_cache;
pub(crate) mod hub_name;
mod listing;
mod oci;
pub(crate) mod source;

pub use adapter_names::{AdapterBucket, AdapterPlace, AdapterRoom, DynamicAdapters};
pub use config::{BucketUri, Scheme};
pub(crate) use hub_name::{ID, ID_MAX};
pub use listing::{ListedFile, WeightsListing, complete_below};
pub use oci::{OciReference, OciVersion};
pub use source::{
    Bucket, CredentialsUrl, ExtraFiles, Fetch, GgufFiles, Manifest, ManifestFile, Origin,
};
