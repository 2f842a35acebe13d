//! The bodies of the inference routes, as types that exist only for the OpenAPI document. The gateway parses requests where it
//! handles them and forwards most of them as bytes, so these types are never constructed. Tests compare them with the fields that
//! the gateway and the engines know, and with the requests that the service accepts.

pub mod audio;
pub mod chat;
pub(crate) mod chat_messages;
pub mod chat_response;
pub(crate) mod chat_tools;
pub mod completions;
pub mod conversations;
pub mod embeddings;
pub(crate) mod engine_fields;
pub(crate) mod generation;
pub mod images;
pub mod llama;
pub mod messages;
pub(crate) mod messages_blocks;
pub mod messages_response;
pub mod models;
pub mod older_systems;
pub mod ollama;
pub mod ranks;
pub mod responses;
pub mod responses_events;
pub mod responses_items;
pub mod responses_response;
pub mod responses_stored;
pub mod tokens;
