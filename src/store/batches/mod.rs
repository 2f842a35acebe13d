//! Uploaded files and batches. The bytes of files are outside of the database.

mod files;
mod jobs;

pub use files::{FilePage, StoredFile};
pub use jobs::{BatchPage, StoredBatch};
