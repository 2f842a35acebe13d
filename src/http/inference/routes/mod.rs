//! The routes for users, one file for each kind of request.

pub mod audio;
pub mod completions;
pub mod embeddings;
mod flowing;
pub mod hot_models;
pub mod images;
pub mod listing;
pub mod llama;
pub mod messages;
mod model_objects;
pub mod responses;
pub mod stored_responses;
pub mod tokens;
pub mod unary_routes;
