//! Measures attention within texts, as in an encoder: this crate's kernels, and candle's operations over groups of one length.

mod encoder;

use candle_core::{Device, Result, Tensor};

use crate::kernels::{Attention, CacheLayer, CacheShape, Pool, Precision, attend};
use crate::step::{PAGE_TOKENS, Span};
use crate::{ROUNDS, least, random};

const HEADS: usize = 12;
const WIDTH: usize = 64;
const HIDDEN: usize = HEADS * WIDTH;

/// Prints both for batches of several lengths, in one run.
pub fn measure(pool: &Pool) {
    for (texts, tokens) in [(64, 16), (32, 32), (8, 128), (2, 512), (1, 2048)] {
        let rows = texts * tokens;
        let numbers = [(); 3].map(|()| random(rows * HIDDEN));
        let [own, candle] = least(
            4 * ROUNDS,
            [&|| own(pool, &numbers, texts, tokens), &|| {
                std::hint::black_box(by_operations(&numbers, texts, tokens).ok());
            }],
        );
        println!(
            "{texts} texts of {tokens}, {HEADS} heads of {WIDTH}: {:.2} ms, by candle's operations {:.2} ms, ratio {:.2}",
            own * 1e3,
            candle * 1e3,
            candle / own,
        );
    }
}

/// Attention by the kernels. Includes creating the pages of a batch, which an encoder shares between its layers.
fn own(pool: &Pool, [queries, keys, values]: &[Vec<f32>; 3], texts: usize, tokens: usize) {
    let pages = tokens.div_ceil(PAGE_TOKENS);
    let spans: Vec<Span> = (0..texts)
        .map(|text| Span {
            past: 0,
            count: tokens,
            pages: (0..pages)
                .map(|page| (text * pages + page) as u32)
                .collect(),
            adapter: None,
            prompt: 0,
        })
        .collect();
    let mut cache = CacheLayer::new(CacheShape {
        pages: texts * pages,
        heads: HEADS,
        key_width: WIDTH,
        value_width: WIDTH,
        precision: Precision::F32,
    });
    cache.write(pool, &spans, keys, values);
    let attention = Attention {
        heads: HEADS,
        score_factor: 0.125,
        score_cap: None,
        window: None,
        causal: false,
    };
    let mut output = vec![0.0; queries.len()];
    attend(pool, &cache, &spans, &attention, queries, &mut output);
    std::hint::black_box(output);
}

/// Attention by candle's operations, as on other devices.
fn by_operations(numbers: &[Vec<f32>; 3], texts: usize, tokens: usize) -> Result<Tensor> {
    let part = |index: usize| -> Result<Tensor> {
        Tensor::from_slice(&numbers[index], (texts, tokens, HEADS, WIDTH), &Device::Cpu)?
            .transpose(1, 2)?
            .contiguous()
    };
    let (query, key, value) = (part(0)?, part(1)?, part(2)?);
    let scores = (query * 0.125)?.matmul(&key.transpose(2, 3)?)?;
    encoder::operations::softmax(scores)?
        .matmul(&value)?
        .transpose(1, 2)?
        .reshape((texts * tokens, HIDDEN))
}
