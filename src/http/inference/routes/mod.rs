//! The routes of users: one file for each kind of request.

pub mod audio;
pub mod completions;
pub mod embeddings;
pub mod hot_models;
pub mod listing;
pub mod messages;
pub mod responses;
pub mod stored_responses;
pub mod tokens;
pub mod unary_routes;
