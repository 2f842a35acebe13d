//! Conversations of OpenAI's API.

use std::collections::BTreeMap;

use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, SchemaType, Type};

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
    #[schema(schema_with = optional_metadata)]
    pub metadata: Option<BTreeMap<String, String>>,
}

/// The metadata of a conversation.
#[derive(ToSchema)]
pub struct ConversationMetadata {
    #[schema(schema_with = metadata, required = true)]
    pub metadata: BTreeMap<String, String>,
}

fn metadata() -> Object {
    metadata_of(Type::Object.into())
}

fn optional_metadata() -> Object {
    metadata_of(SchemaType::from_iter([Type::Object, Type::Null]))
}

fn metadata_of(schema_type: SchemaType) -> Object {
    let text = |most| {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .max_length(Some(most))
    };
    ObjectBuilder::new()
        .schema_type(schema_type)
        .max_properties(Some(16))
        .property_names(Some(text(64)))
        .additional_properties(Some(text(512)))
        .build()
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
