//! The bodies of the inference routes, as types that exist only for the OpenAPI document. The gateway parses requests where it
//! handles them and forwards most of them as bytes, so these types are never constructed. Tests compare them with the fields that
//! the gateway and the engines know, and with the requests that the service accepts.

pub(crate) mod audio;
pub(crate) mod chat;
pub(crate) mod chat_messages;
pub(crate) mod chat_response;
pub(crate) mod chat_tools;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod engine_fields;
pub(crate) mod generation;
pub(crate) mod images;
pub(crate) mod llama;
pub(crate) mod messages;
pub(crate) mod messages_blocks;
pub(crate) mod messages_response;
pub(crate) mod models;
pub(crate) mod older_systems;
pub(crate) mod ollama;
pub(crate) mod ranks;
pub(crate) mod responses;
pub(crate) mod responses_events;
pub(crate) mod responses_items;
pub(crate) mod responses_response;
pub(crate) mod responses_stored;
pub(crate) mod tokens;
