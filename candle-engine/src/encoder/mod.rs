//! Models that compute vectors of texts or score pairs of texts: from their files to the responses of their routes.
//!
//! A request's texts become tokens ([`texts`], [`wording`]), wait in a queue ([`queue`]), pass through the network in a batch
//! without padding ([`network`], [`attention`]), and leave it as vectors ([`pooling`]) or scores ([`head`]). A decoder that serves
//! vectors or scores ([`purpose`]) uses the batch that also generates text ([`decoder_backend`]).

mod attention;
mod config;
mod decoder_backend;
mod embeddings;
mod head;
mod linear;
mod loaded_encoder;
mod loading;
mod names;
mod network;
pub(crate) mod operations;
mod paged_attention;
mod pooling;
mod purpose;
mod queue;
mod ranks;
mod routes;
mod service;
mod spec;
mod tensors;
mod texts;
mod token_routes;
mod wording;

pub(crate) use linear::{LayerNorm, Linear, Table};
pub(crate) use loading::{config_of, load, of_decoder};
pub(crate) use purpose::Purpose;
pub(crate) use routes::{PATHS, Route};
pub(crate) use service::Service;
pub(crate) use spec::Activation;
pub(crate) use tensors::Tensors;
