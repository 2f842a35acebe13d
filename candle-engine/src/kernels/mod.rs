//! The CPU's kernels: products with weights as they lie in their files, attention over pages, and what is done row by row.
//! Owns how numbers are computed on slices; never knows a model, a request or candle.
//!
//! Two promises hold for every kernel. A row's result has the same bits whatever else is in the batch, wherever the row
//! stands in it and however many threads compute. And it has the same bits on every processor ([`tier`]), but for products with
//! inputs that are rounded to BF16 ([`rounded`]), which a pool computes only where it is made to.

#![allow(
    dead_code,
    unused_imports,
    reason = "a set of kernels is whole; benches use what the networks do not"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "loops over lanes index several arrays, and what they do must be compiled in place"
)]

mod attention;
mod blocks;
mod cache;
mod dense;
mod few;
mod input;
mod math;
mod matrix;
mod pool;
mod rounded;
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
pub(crate) use rows::{
    NormWeights, Turns, activate, add, add_and_norm, gate, norm, norm_in_place, turn,
};
pub(crate) use tier::Level;

#[cfg(test)]
mod tests;
