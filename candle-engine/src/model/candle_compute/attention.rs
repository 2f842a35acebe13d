//! The attention of one span, implemented with candle.

use super::CandleCompute;
use super::plan::VisibleTokens;
use super::values::Cache;
use crate::model::compute::AttentionShape;
use candle_core::{DType, Result, Tensor};

impl CandleCompute {
    /// Attends with one span's queries to its visible tokens: matrix products in the cache's type, the softmax in F32, as in
    /// `transformers`.
    pub(super) fn attend_span(
        &self,
        shape: &AttentionShape,
        cache: &Cache,
        queries: &Tensor,
        visible: &VisibleTokens,
    ) -> Result<Tensor> {
        let count = queries.dim(0)?;
        let tokens = visible.slots.dim(0)?;
        let groups = shape.key_value_heads;
        let repeats = shape.heads / groups;
        let queries = queries
            .reshape((count, groups, repeats, shape.key_width))?
            .permute((1, 2, 0, 3))?
            .contiguous()?
            .reshape((groups, repeats * count, shape.key_width))?
            .to_dtype(self.cache_type)?;
        let keys = cache
            .keys
            .index_select(&visible.slots, 0)?
            .reshape((tokens, groups, shape.key_width))?
            .permute((1, 2, 0))?
            .contiguous()?;
        let values = cache
            .values
            .index_select(&visible.slots, 0)?
            .reshape((tokens, groups, shape.value_width))?
            .transpose(0, 1)?
            .contiguous()?;
        let scores = queries.matmul(&keys)?.to_dtype(DType::F32)?;
        let mut scores = (scores * f64::from(shape.factor))?;
        if let Some(cap) = shape.cap {
            scores = ((scores / f64::from(cap))?.tanh()? * f64::from(cap))?;
        }
        if let Some(mask) = &visible.mask {
            scores = scores
                .reshape((groups * repeats, count, tokens))?
                .broadcast_add(mask)?
                .reshape((groups, repeats * count, tokens))?;
        }
        let shares = candle_nn::ops::softmax_last_dim(&scores)?.to_dtype(self.cache_type)?;
        shares
            .matmul(&values)?
            .to_dtype(DType::F32)?
            .reshape((groups, repeats, count, shape.value_width))?
            .permute((2, 0, 1, 3))?
            .contiguous()?
            .reshape((count, shape.heads * shape.value_width))
    }
}
