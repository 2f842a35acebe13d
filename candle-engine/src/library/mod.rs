//! Decoders on the operations of candle's library: families whose network [`crate::model`] does not compute.
//!
//! The batch sees a [`Network`](crate::batch::Network) as for every other model, so queueing, sampling, grammars, streaming and
//! cancellation are shared. Inside, each running sequence has its own instance of the model, with its own cache, and all instances
//! share the weights. Nothing is shared between sequences: known prefixes are computed again, and adapters, quantised weights,
//! beams, contrastive search and several devices are refused.
//!
//! ```text
//!   batch ──step──> LibraryNetwork ──tokens of one span──> Sequence (an instance of a LibraryModel)
//! ```
//!
//! Most models come from `candle-transformers`. `falcon`, `mamba2`, `marian`, `mpt`, `seeing` and `t5` are written here on
//! `candle-nn`, because the library's versions do not compute the published models (`docs/internals/engine-library.md`).

mod attention;
mod encoder_decoder;
mod falcon;
mod families;
mod fields;
mod glm4;
mod gpt_big_code;
mod lfm2;
mod library_model;
mod loading;
mod mamba;
mod mamba2;
mod marian;
mod mpt;
mod network;
mod olmo;
mod phi;
mod seeing;
mod stable_lm;
mod starcoder2;
mod t5;
#[cfg(test)]
mod tests;
mod weights;

pub(crate) use loading::{check, load, vision};
