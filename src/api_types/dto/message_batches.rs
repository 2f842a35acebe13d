//! Batches of requests, in Anthropic's form.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A request for a batch of messages.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body for the document")]
pub struct MessageBatchRequest {
    requests: Vec<MessageBatchItem>,
}

/// One request of a batch.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body for the document")]
pub struct MessageBatchItem {
    /// Up to 512 bytes, different for each request.
    #[schema(examples("1"))]
    custom_id: String,
    /// The body of `POST /v1/messages`, without `stream`.
    #[schema(value_type = Object)]
    params: Value,
}

/// The numbers of a batch's requests by their result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct MessageBatchCounts {
    #[schema(example = 748)]
    pub processing: u64,
    #[schema(example = 250)]
    pub succeeded: u64,
    #[schema(example = 2)]
    pub errored: u64,
    #[schema(example = 0)]
    pub canceled: u64,
    #[schema(example = 0)]
    pub expired: u64,
}

/// A batch of messages.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MessageBatch {
    #[schema(example = "msgbatch_5c1f8e")]
    pub id: String,
    /// `message_batch`.
    #[serde(rename = "type")]
    #[schema(example = "message_batch")]
    pub kind: &'static str,
    /// `in_progress`, `canceling` or `ended`.
    #[schema(example = "in_progress")]
    pub processing_status: &'static str,
    pub request_counts: MessageBatchCounts,
    /// RFC 3339, as all times.
    #[schema(example = "2026-01-31T20:15:00Z")]
    pub created_at: String,
    #[schema(example = "2026-02-01T20:15:00Z")]
    pub expires_at: String,
    pub ended_at: Option<String>,
    /// Always null.
    pub archived_at: Option<String>,
    pub cancel_initiated_at: Option<String>,
    /// The route of the results, once the batch has ended.
    pub results_url: Option<String>,
}

/// A page of batches of messages.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MessageBatchList {
    pub data: Vec<MessageBatch>,
    pub first_id: Option<String>,
    pub last_id: Option<String>,
    pub has_more: bool,
}

/// A deleted batch of messages.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct DeletedMessageBatch {
    #[schema(example = "msgbatch_5c1f8e")]
    pub id: String,
    /// `message_batch_deleted`.
    #[serde(rename = "type")]
    #[schema(example = "message_batch_deleted")]
    pub kind: &'static str,
}
