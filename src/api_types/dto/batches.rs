//! Batches of requests, in OpenAI's form.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request for a batch.
#[derive(Clone, Debug, ToSchema)]
pub struct BatchRequest {
    /// The id of an uploaded file.
    #[schema(example = "file-0d4fa7")]
    pub input_file_id: String,
    /// The route of all requests of the file: `/v1/chat/completions`, `/v1/completions`, `/v1/embeddings`, `/v1/responses` or
    /// `/v1/messages`.
    #[schema(example = "/v1/chat/completions")]
    pub endpoint: String,
    /// The time in which the batch ends, such as `24h` or `90m`; 1s to 30 days. The other requests expire then.
    #[schema(example = "24h")]
    pub completion_window: String,
    /// At most 16 pairs, returned with the batch.
    pub metadata: Option<BTreeMap<String, String>>,
    /// The expiry of the files with the results.
    pub output_expires_after: Option<ExpiresAfter>,
}

/// The expiry of a file.
#[derive(Clone, Debug, ToSchema)]
pub struct ExpiresAfter {
    /// `created_at`.
    #[schema(pattern = "^created_at$", example = "created_at")]
    pub anchor: String,
    /// 3600 to 2592000.
    #[schema(minimum = 3_600, maximum = 2_592_000, example = 86_400)]
    pub seconds: u64,
}

/// The numbers of a batch's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestCounts {
    #[schema(example = 1000)]
    pub total: u64,
    #[schema(example = 250)]
    pub completed: u64,
    #[schema(example = 2)]
    pub failed: u64,
}

/// An error that ended a batch.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct BatchError {
    #[schema(example = "key_revoked")]
    pub code: String,
    #[schema(example = "the key of this batch was revoked")]
    pub message: String,
    pub line: Option<u64>,
    pub param: Option<String>,
}

/// Errors that ended a batch.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct BatchErrors {
    /// `list`.
    #[schema(example = "list")]
    pub object: &'static str,
    pub data: Vec<BatchError>,
}

/// Fields of the pool in addition to OpenAI's.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct BatchProgress {
    /// An administrator has paused the batch.
    pub paused: bool,
    /// Requests that run now.
    #[schema(example = 8)]
    pub in_flight: u64,
    /// The expected rest of the time, from speeds and use that were measured; null if it is unknown.
    #[schema(example = 1200)]
    pub expected_seconds: Option<u64>,
    /// True if the batch very probably ends within its completion window; null if that is unknown.
    pub will_hold: Option<bool>,
    /// Set once a miss of the window is expected, and while a model or a bucket fails or no node may come.
    #[schema(example = "700 requests are left, which are expected to take 3 h 20 min")]
    pub warning: Option<String>,
}

/// A batch of requests.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct BatchObject {
    #[schema(example = "batch_5c1f8e")]
    pub id: String,
    /// `batch`.
    #[schema(example = "batch")]
    pub object: &'static str,
    #[schema(example = "/v1/chat/completions")]
    pub endpoint: String,
    pub errors: Option<BatchErrors>,
    #[schema(example = "file-0d4fa7")]
    pub input_file_id: String,
    #[schema(example = "24h")]
    pub completion_window: String,
    /// `in_progress`, `finalizing`, `completed`, `failed`, `expired`, `cancelling` or `cancelled`.
    #[schema(example = "in_progress")]
    pub status: &'static str,
    pub output_file_id: Option<String>,
    pub error_file_id: Option<String>,
    /// Unix seconds, as all times.
    #[schema(example = 1_764_000_000_u64)]
    pub created_at: u64,
    pub in_progress_at: Option<u64>,
    #[schema(example = 1_764_086_400_u64)]
    pub expires_at: u64,
    pub finalizing_at: Option<u64>,
    pub completed_at: Option<u64>,
    pub failed_at: Option<u64>,
    pub expired_at: Option<u64>,
    pub cancelling_at: Option<u64>,
    pub cancelled_at: Option<u64>,
    pub request_counts: RequestCounts,
    pub metadata: Option<BTreeMap<String, String>>,
    pub model_pool: BatchProgress,
}

/// A page of batches.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct BatchList {
    /// `list`.
    #[schema(example = "list")]
    pub object: &'static str,
    pub data: Vec<BatchObject>,
    pub first_id: Option<String>,
    /// Value of `after` for the next page.
    pub last_id: Option<String>,
    pub has_more: bool,
}

/// A batch of any key, as administrators see it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct AdminBatch {
    #[serde(flatten)]
    pub batch: BatchObject,
    /// The id and the name of the key, the name of a person who has signed on, or the address of a caller without a key.
    #[schema(example = "k3 (course 4711)")]
    pub holder: String,
    /// The group of the key, as a path; null without one.
    #[schema(example = "lab/course")]
    pub group: Option<String>,
    /// The models in the order of the file.
    pub models: Vec<BatchModel>,
    /// The batch with the highest rank runs first; the oldest among equals. The default is 0.
    #[schema(example = 0)]
    pub rank: i64,
}

/// A model of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct BatchModel {
    #[schema(example = "tiny-chat")]
    pub model: String,
    /// All requests of the file for this model.
    #[schema(example = 1000)]
    pub requests: u64,
}

/// A page of the batches of all keys, latest first.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct AdminBatchList {
    pub batches: Vec<AdminBatch>,
    /// Value of `after` for the next page; null on the last page.
    #[schema(example = "batch_5c1f8e")]
    pub next_after: Option<String>,
}
