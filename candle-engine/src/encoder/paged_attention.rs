//! Attention within each text by this crate's CPU kernels: keys and values of all texts of a batch lie in pages, and each text
//! attends to its own. The only padding is in the last page of a text.

use super::operations;
use crate::kernels::{Attention, CacheLayer, CacheShape, Pool, Precision, Turns, attend, turn};
use crate::step::{PAGE_TOKENS, Page, Span};
use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, bail};
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

/// The texts of a batch, in row order.
pub(crate) struct PagedTexts {
    pool: Arc<Pool>,
    spans: Vec<Span>,
    /// The cache of the current layer; layers run one after another.
    cache: RefCell<CacheLayer>,
    heads: usize,
    width: usize,
}

impl PagedTexts {
    /// Prepares texts of the given token counts, none of which may be zero.
    pub fn new(
        pool: Arc<Pool>,
        lengths: impl Iterator<Item = usize>,
        heads: usize,
        width: usize,
    ) -> Self {
        let mut pages = 0;
        let spans = lengths
            .map(|count| {
                let first = pages;
                pages += count.div_ceil(PAGE_TOKENS);
                Span {
                    past: 0,
                    count,
                    pages: (first..pages).map(|page| page as Page).collect(),
                    adapter: None,
                    prompt: 0,
                }
            })
            .collect();
        let cache = CacheLayer::new(CacheShape {
            pages,
            heads,
            key_width: width,
            value_width: width,
            precision: Precision::F32,
        });
        Self {
            pool,
            spans,
            cache: RefCell::new(cache),
            heads,
            width,
        }
    }

    /// Computes attention within each text, or within a distance of at most `window`. Queries, keys and values are `[rows, heads ·
    /// width]` each.
    pub fn mix(
        &self,
        query_key_value: &[Tensor],
        window: Option<usize>,
        turns: Option<Turns<'_>>,
    ) -> Result<Tensor> {
        let [query, key, value] = query_key_value else {
            bail!("attention takes queries, keys and values");
        };
        let mix = TextAttention {
            texts: self,
            window,
            turns,
        };
        query.apply_op3_no_bwd(key, value, &mix)
    }

    fn turned<'a>(&self, rows: &'a [f32], turns: Option<Turns<'_>>) -> Cow<'a, [f32]> {
        let Some(turns) = turns else {
            return Cow::Borrowed(rows);
        };
        let mut rows = rows.to_vec();
        turn(&self.pool, &mut rows, self.heads, self.width, turns);
        Cow::Owned(rows)
    }
}

struct TextAttention<'a> {
    texts: &'a PagedTexts,
    window: Option<usize>,
    turns: Option<Turns<'a>>,
}

impl CustomOp3 for TextAttention<'_> {
    fn name(&self) -> &'static str {
        "mix"
    }

    fn cpu_fwd(
        &self,
        queries: &CpuStorage,
        queries_layout: &Layout,
        keys: &CpuStorage,
        keys_layout: &Layout,
        values: &CpuStorage,
        values_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let texts = self.texts;
        let queries = operations::numbers(self.name(), queries, queries_layout)?;
        let keys = operations::numbers(self.name(), keys, keys_layout)?;
        let values = operations::numbers(self.name(), values, values_layout)?;
        let rows: usize = texts.spans.iter().map(|span| span.count).sum();
        let hidden = texts.heads * texts.width;
        if [queries, keys, values].map(<[f32]>::len) != [rows * hidden; 3] {
            bail!("attention over {rows} rows of {hidden} numbers has others");
        }
        let queries = texts.turned(queries, self.turns);
        let keys = texts.turned(keys, self.turns);
        let mut cache = texts.cache.borrow_mut();
        cache.write(&texts.pool, &texts.spans, &keys, values);
        let attention = Attention {
            heads: texts.heads,
            score_factor: (1.0 / (texts.width as f64).sqrt()) as f32,
            score_cap: None,
            // The kernel's window includes the token itself.
            window: self.window.map(|window| window.saturating_add(1)),
            causal: false,
        };
        let mut output = vec![0.0; rows * hidden];
        attend(
            &texts.pool,
            &cache,
            &texts.spans,
            &attention,
            &queries,
            &mut output,
        );
        Ok((CpuStorage::F32(output), Shape::from((rows, hidden))))
    }
}
