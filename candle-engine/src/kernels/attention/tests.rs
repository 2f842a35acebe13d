//! Compares attention with 64-bit scores and sums over complete rows, and with itself in other batches.

use super::*;
use crate::kernels::Level;
use crate::kernels::cache::Numbers;
use crate::kernels::tests::{pool, random};

const SHAPE: CacheShape = CacheShape {
    pages: 64,
    heads: 2,
    key_width: 24,
    value_width: 20,
    precision: Precision::F32,
};

fn attention(heads: usize) -> Attention {
    Attention {
        heads,
        score_factor: 0.2,
        score_cap: None,
        window: None,
        causal: true,
    }
}

/// A sequence: its queries, keys and values, and the pages it has.
struct Sequence {
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    pages: Vec<u32>,
}

impl Sequence {
    fn new(seed: u64, shape: &CacheShape, heads: usize, tokens: usize, first_page: u32) -> Self {
        let pages = tokens.div_ceil(PAGE_TOKENS) as u32;
        Self {
            queries: random(seed, tokens * heads * shape.key_width)
                .iter()
                .map(|q| q * 4.0)
                .collect(),
            keys: random(seed + 1, tokens * shape.heads * shape.key_width),
            values: random(seed + 2, tokens * shape.heads * shape.value_width),
            // The pages of different sequences are interleaved in random order.
            pages: (0..pages)
                .map(|page| first_page + (pages - 1 - page) * 2)
                .collect(),
        }
    }

    fn span(&self, past: usize, count: usize) -> Span {
        Span {
            past,
            count,
            pages: self.pages.clone(),
            adapter: None,
            prompt: 0,
        }
    }
}

fn window(rows: &[f32], width: usize, past: usize, count: usize) -> &[f32] {
    &rows[past * width..(past + count) * width]
}

/// Writes and attends in one step for parts of sequences.
fn step(
    pool: &Pool,
    cache: &mut CacheLayer,
    attention: &Attention,
    parts: &[(&Sequence, usize, usize)],
) -> Vec<f32> {
    let shape = cache.shape();
    let spans: Vec<Span> = parts
        .iter()
        .map(|(sequence, past, count)| sequence.span(*past, *count))
        .collect();
    let gathered = |rows: fn(&Sequence) -> &[f32], width: usize| -> Vec<f32> {
        parts
            .iter()
            .flat_map(|(sequence, past, count)| {
                window(rows(sequence), width, *past, *count).to_vec()
            })
            .collect()
    };
    let keys = gathered(|sequence| &sequence.keys, shape.heads * shape.key_width);
    let values = gathered(|sequence| &sequence.values, shape.heads * shape.value_width);
    let queries = gathered(
        |sequence| &sequence.queries,
        attention.heads * shape.key_width,
    );
    cache.write(pool, &spans, &keys, &values);
    let rows: usize = parts.iter().map(|(_, _, count)| count).sum();
    let mut output = vec![f32::NAN; rows * attention.heads * shape.value_width];
    attend(pool, cache, &spans, attention, &queries, &mut output);
    output
}

fn reference(
    shape: &CacheShape,
    attention: &Attention,
    sequence: &Sequence,
    tokens: usize,
) -> Vec<f64> {
    let group = attention.heads / shape.heads;
    let mut output = Vec::new();
    for position in 0..tokens {
        for head in 0..attention.heads {
            let query = &sequence.queries[(position * attention.heads + head) * shape.key_width..]
                [..shape.key_width];
            let end = if attention.causal {
                position + 1
            } else {
                tokens.min(position.saturating_add(attention.window.unwrap_or(usize::MAX)))
            };
            let first = (position + 1).saturating_sub(attention.window.unwrap_or(usize::MAX));
            let scores: Vec<f64> = (first..end)
                .map(|token| {
                    let key =
                        &sequence.keys[(token * shape.heads + head / group) * shape.key_width..];
                    let dot: f64 = query
                        .iter()
                        .zip(key)
                        .map(|(a, b)| f64::from(*a) * f64::from(*b))
                        .sum();
                    let score = dot * f64::from(attention.score_factor);
                    attention.score_cap.map_or(score, |cap| {
                        f64::from(cap) * (score / f64::from(cap)).tanh()
                    })
                })
                .collect();
            let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let shares: Vec<f64> = scores
                .iter()
                .map(|score| (score - greatest).exp())
                .collect();
            let all: f64 = shares.iter().sum();
            for column in 0..shape.value_width {
                let sum: f64 = shares
                    .iter()
                    .zip(first..)
                    .map(|(share, token)| {
                        let place =
                            (token * shape.heads + head / group) * shape.value_width + column;
                        share * f64::from(sequence.values[place])
                    })
                    .sum();
                output.push(sum / all);
            }
        }
    }
    output
}

fn near(ours: &[f32], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(ours.len(), wanted.len());
    for (place, (ours, wanted)) in ours.iter().zip(wanted).enumerate() {
        assert!(
            (f64::from(*ours) - wanted).abs() < tolerance,
            "{what}, place {place}: {ours} for {wanted}"
        );
    }
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

#[test]
fn attention_over_pages_equals_a_full_score_matrix() {
    let variations = [
        (SHAPE, attention(2)),
        (SHAPE, attention(6)),
        (
            SHAPE,
            Attention {
                window: Some(37),
                ..attention(4)
            },
        ),
        (
            SHAPE,
            Attention {
                score_cap: Some(0.9),
                ..attention(4)
            },
        ),
        (
            SHAPE,
            Attention {
                causal: false,
                ..attention(4)
            },
        ),
        (
            SHAPE,
            Attention {
                causal: false,
                window: Some(9),
                ..attention(2)
            },
        ),
        (
            SHAPE,
            Attention {
                causal: false,
                window: Some(70),
                ..attention(2)
            },
        ),
        (
            CacheShape {
                key_width: 64,
                value_width: 128,
                ..SHAPE
            },
            attention(8),
        ),
        (
            CacheShape {
                key_width: 8,
                value_width: 8,
                heads: 1,
                ..SHAPE
            },
            attention(5),
        ),
        (
            CacheShape {
                precision: Precision::F16,
                ..SHAPE
            },
            attention(4),
        ),
        (
            CacheShape {
                precision: Precision::Bf16,
                ..SHAPE
            },
            attention(4),
        ),
    ];
    for (shape, attention) in variations {
        for tokens in [1, 15, 16, 17, 64, 65, 200] {
            let sequence = Sequence::new(tokens as u64, &shape, attention.heads, tokens, 1);
            let wanted = reference(&shape, &attention, &sequence, tokens);
            let tolerance = match shape.precision {
                Precision::F32 => 2e-6,
                Precision::F16 => 2e-3,
                Precision::Bf16 => 1.6e-2,
            };
            for level in Level::available() {
                let mut cache = CacheLayer::new(shape);
                let ours = step(
                    &pool(2, level),
                    &mut cache,
                    &attention,
                    &[(&sequence, 0, tokens)],
                );
                near(
                    &ours,
                    &wanted,
                    tolerance,
                    &format!("{level:?} {shape:?} {attention:?} {tokens}"),
                );
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_for_any_chunking_and_any_neighbouring_rows() {
    for attention in [
        attention(6),
        Attention {
            window: Some(50),
            ..attention(6)
        },
        Attention {
            score_cap: Some(2.0),
            ..attention(2)
        },
    ] {
        for precision in [Precision::F32, Precision::F16, Precision::Bf16] {
            let shape = CacheShape { precision, ..SHAPE };
            let sequence = Sequence::new(1, &shape, attention.heads, 150, 0);
            let others = Sequence::new(5, &shape, attention.heads, 150, 1);
            let width = attention.heads * shape.value_width;
            let plain = pool(1, Level::Plain);
            let whole = step(
                &plain,
                &mut CacheLayer::new(shape),
                &attention,
                &[(&sequence, 0, 150)],
            );
            for level in Level::available() {
                for cuts in [
                    &[0, 150][..],
                    &[0, 1, 2, 3, 70, 71, 150],
                    &[0, 64, 128, 149, 150],
                    &[0, 33, 66, 99, 150],
                ] {
                    for threads in [1, 3] {
                        let pool = pool(threads, level);
                        let mut cache = CacheLayer::new(shape);
                        for cut in cuts.windows(2) {
                            let count = cut[1] - cut[0];
                            let parts = [
                                (&others, cut[0], count),
                                (&sequence, cut[0], count),
                                (&others, cut[0], 1),
                            ];
                            let ours = step(&pool, &mut cache, &attention, &parts);
                            assert_eq!(
                                bits(&ours[count * width..2 * count * width]),
                                bits(&whole[cut[0] * width..cut[1] * width]),
                                "{level:?} {attention:?} {cut:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn data_left_in_a_page_by_an_earlier_owner_is_not_read() {
    let pool = pool(1, Level::best());
    let attention = attention(2);
    let sequence = Sequence::new(3, &SHAPE, 2, 20, 0);
    let clean = step(
        &pool,
        &mut CacheLayer::new(SHAPE),
        &attention,
        &[(&sequence, 0, 20)],
    );
    let mut used = CacheLayer::new(SHAPE);
    let mut before = Sequence::new(7, &SHAPE, 2, 64, 0);
    before.pages = vec![0, 1, 2, 3];
    before.keys.fill(f32::NAN);
    before.values.fill(f32::NAN);
    step(&pool, &mut used, &attention, &[(&before, 0, 64)]);
    assert_eq!(
        bits(&step(&pool, &mut used, &attention, &[(&sequence, 0, 20)])),
        bits(&clean)
    );
}

#[test]
fn a_copied_page_reads_like_the_original() {
    for precision in [Precision::F32, Precision::F16, Precision::Bf16] {
        let pool = pool(1, Level::best());
        let shape = CacheShape { precision, ..SHAPE };
        let sequence = Sequence::new(3, &shape, 2, 30, 0);
        let mut cache = CacheLayer::new(shape);
        step(&pool, &mut cache, &attention(2), &[(&sequence, 0, 29)]);
        let mut fork = Sequence::new(3, &shape, 2, 30, 0);
        fork.pages = vec![20, 21];
        cache.copy_page(sequence.pages[0], 20);
        cache.copy_page(sequence.pages[1], 21);
        let first = step(&pool, &mut cache, &attention(2), &[(&sequence, 29, 1)]);
        let second = step(&pool, &mut cache, &attention(2), &[(&fork, 29, 1)]);
        assert_eq!(bits(&first), bits(&second));
    }
}

#[test]
fn the_size_of_a_page_matches_its_shape() {
    let cache = CacheLayer::new(CacheShape { pages: 1, ..SHAPE });
    let (Numbers::F32(keys), Numbers::F32(values)) = (&cache.keys, &cache.values) else {
        panic!("numbers of 32 bits")
    };
    assert_eq!(4 * (keys.len() + values.len()), SHAPE.page_bytes());
    for precision in [Precision::F16, Precision::Bf16] {
        let shape = CacheShape { precision, ..SHAPE };
        assert_eq!(2 * shape.page_bytes(), SHAPE.page_bytes());
    }
}
