//! Conversations of OpenAI's API.

use std::collections::BTreeMap;

use utoipa::ToSchema;

use super::responses_items::InputItem;

/// A conversation whose items `POST /v1/responses` reads and extends.
#[derive(ToSchema)]
pub struct ConversationObject {
    #[schema(examples("conv_0198f6"))]
    pub id: String,
    /// `conversation`.
    #[schema(examples("conversation"))]
    pub object: String,
    /// Unix time in seconds.
    pub created_at: i64,
    pub metadata: BTreeMap<String, String>,
}

/// A new conversation.
#[derive(ToSchema)]
pub struct ConversationRequest {
    /// The first items, at most 20.
    #[schema(max_items = 20)]
    pub items: Option<Vec<InputItem>>,
    /// Up to 16 strings.
    pub metadata: Option<BTreeMap<String, String>>,
}

/// The metadata of a conversation.
#[derive(ToSchema)]
pub struct ConversationMetadata {
    /// Up to 16 strings, which replace the present ones.
    pub metadata: BTreeMap<String, String>,
}

/// Items that are added to a conversation.
#[derive(ToSchema)]
pub struct ConversationItems {
    #[schema(min_items = 1, max_items = 20)]
    pub items: Vec<InputItem>,
}

/// A deleted conversation.
#[derive(ToSchema)]
pub struct DeletedConversation {
    #[schema(examples("conv_0198f6"))]
    pub id: String,
    /// `conversation.deleted`.
    #[schema(examples("conversation.deleted"))]
    pub object: String,
    pub deleted: bool,
}
