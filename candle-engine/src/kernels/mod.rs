//! The CPU kernels: products with weights in their stored layout, attention over pages, and row-wise operations. The module
//! computes on slices of numbers and knows nothing about models, requests or candle.
//!
//! Every kernel guarantees two things. The result of a row is bit-identical whatever else is in the batch, wherever the row is in
//! it and however many threads compute. It is also bit-identical on every processor ([`tier`]), except for products with
//! BF16-rounded inputs ([`rounded_rows`]), which a pool computes only if configured to.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over lanes index several arrays, and their bodies must be inlined"
)]

mod attention;
mod blocks;
mod cache;
mod dense;
mod few_rows;
mod input;
mod math;
mod matrix;
mod pool;
mod rotation;
mod rounded_rows;
mod rows;
mod shares;
mod tier;
mod tile;
mod unpack;

pub(crate) use attention::{Attention, attend};
pub(crate) use blocks::dequantise;
pub(crate) use cache::{CacheLayer, CacheShape, Precision};
pub(crate) use matrix::{Matrix, multiply_all};
pub(crate) use pool::Pool;
pub(crate) use rotation::{Turns, turn};
pub(crate) use rows::{NormWeights, activate, add, add_and_norm, gate, norm, norm_in_place};
#[cfg(test)]
pub(crate) use tier::Level;

#[cfg(test)]
mod tests;
