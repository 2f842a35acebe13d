//! Responses of the routes for stored responses.

use utoipa::ToSchema;

use super::responses_items::InputItem;
use super::responses_response::ResponseUsage;

/// A page of a response's input items.
#[derive(ToSchema)]
pub struct ResponseItemList {
    /// `list`.
    #[schema(examples("list"))]
    pub object: String,
    pub data: Vec<InputItem>,
    pub first_id: Option<String>,
    /// Value of `after` for the next page.
    pub last_id: Option<String>,
    pub has_more: bool,
}

/// A deleted response.
#[derive(ToSchema)]
pub struct DeletedResponse {
    #[schema(examples("resp_0198f6"))]
    pub id: String,
    /// `response`.
    #[schema(examples("response"))]
    pub object: String,
    pub deleted: bool,
}

/// The number of tokens of a conversation.
#[derive(ToSchema)]
pub struct ResponseTokens {
    /// `response.input_tokens`.
    #[schema(examples("response.input_tokens"))]
    pub object: String,
    pub input_tokens: u64,
}

/// A compacted conversation.
#[derive(ToSchema)]
pub struct CompactedResponse {
    #[schema(examples("resp_0198f6"))]
    pub id: String,
    /// `response.compaction`.
    #[schema(examples("response.compaction"))]
    pub object: String,
    /// Unix time in seconds.
    pub created_at: i64,
    /// The beginning of the next `input`.
    pub output: Vec<InputItem>,
    pub usage: ResponseUsage,
}
