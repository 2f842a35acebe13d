//! Uploaded files, their objects in buckets, and batches. The bytes of files are outside of the database.

mod files;
mod jobs;
mod objects;

pub use files::{FilePage, StoredFile};
pub use jobs::{BatchPage, StoredBatch};
pub use objects::UnusedObject;
