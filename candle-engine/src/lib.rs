//! The embedded engine: loads one model and serves it over the OpenAI HTTP API. It does not depend on the pool, and knows no other
//! models, priorities or memory budgets.
//!
//! A model is a Hugging Face folder (`config.json`, `tokenizer.json`, safetensors, and a chat template for chat) or a GGUF file,
//! which contains all of these. [`serve`] listens before it loads, so its parent can poll `GET /health` from the start.

mod adapter;
mod adapters;
mod api;
mod api_error;
mod batch;
mod calendar;
mod chat_template;
mod completion;
mod conversation;
mod cuda_facts;
mod decoder_service;
mod decoding;
mod detokenize;
mod device_setup;
mod encoder;
mod error;
mod exit_on_panic;
mod fields;
mod files;
mod grammar;
mod kernels;
mod library;
mod loading;
mod memory;
mod model;
mod options;
mod pieces;
mod prepared_request;
mod progress;
mod prompt_length;
mod readers;
mod reasoning;
mod response;
mod response_json;
mod sampling;
mod scores;
mod server;
mod sleep;
mod spec;
mod speech;
mod step;
mod stop;
mod stored_tensor;
mod token_routes;
mod tokenize_response;
mod tokenizer;
mod tools;
mod vision;
mod vocabulary;

pub use cuda_facts::{CudaFacts, cuda_facts};
pub use error::EngineError;
pub use grammar::try_grammar;
pub use options::{
    AdapterOptions, CacheType, DeviceChoice, EngineOptions, JoiningRule, Listen, NumberTypes,
    ProductType, Quantization, Speculation, Task, TokenBudgets, TrialProgram,
};
pub use server::serve;
