//! The bodies of the inference routes, as types for the OpenAPI document alone. The gateway reads requests where it
//! handles them and passes most of them on as bytes, so nothing here is constructed. Tests hold the types against the
//! fields that the gateway and the engines know, and against the requests that the service accepts.

pub(crate) mod audio;
pub(crate) mod chat;
pub(crate) mod chat_answer;
pub(crate) mod chat_messages;
pub(crate) mod chat_tools;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod engine_fields;
pub(crate) mod generation;
pub(crate) mod images;
pub(crate) mod llama;
pub(crate) mod messages;
pub(crate) mod messages_answer;
pub(crate) mod messages_blocks;
pub(crate) mod models;
pub(crate) mod older_systems;
pub(crate) mod ollama;
pub(crate) mod ranks;
pub(crate) mod responses;
pub(crate) mod responses_answer;
pub(crate) mod responses_events;
pub(crate) mod responses_items;
pub(crate) mod responses_stored;
pub(crate) mod tokens;
