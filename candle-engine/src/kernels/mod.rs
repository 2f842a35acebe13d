//! The CPU's kernels: products with weights as they lie in their files, attention over pages, and what is done row by row.
//! Owns how numbers are computed on slices; never knows a model, a request or candle.
//!
//! Two promises hold for every kernel. A row's result has the same bits whatever else is in the batch, wherever the row
//! stands in it and however many threads compute. And it has the same bits on every processor ([`tier`]).

#![allow(dead_code)]

mod blocks;
mod dense;
mod input;
mod matrix;
mod pool;
mod tier;
mod tile;
mod unpack;

pub(crate) use blocks::dequantise;
pub(crate) use matrix::{Matrix, multiply_all};
pub(crate) use pool::Pool;
pub(crate) use tier::Level;

#[cfg(test)]
mod tests;
