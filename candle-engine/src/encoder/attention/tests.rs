//! Compares attention by the kernels with attention by candle's operations, text by text and in batches.

use super::*;
use crate::encoder::spec::Biases;
use crate::kernels::Level;
use model_files::families::EncoderFamily;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::num::NonZeroUsize;

const HEADS: usize = 3;
const WIDTH: usize = 20;
const HIDDEN: usize = HEADS * WIDTH;

fn spec(layer: LayerSpec, positions: Positions) -> EncoderSpec {
    EncoderSpec {
        architecture: "Test".to_owned(),
        family: EncoderFamily::ModernBert,
        head: None,
        shows_probability: true,
        vocabulary: 1,
        hidden: HIDDEN,
        heads: HEADS,
        feed_width: 1,
        layers: vec![layer],
        epsilon: 1e-5,
        norm_bias: true,
        norms_before: false,
        positions,
        token_types: 0,
        activation: Activation::Gelu,
        gated: false,
        biases: Biases::ALL,
        context_tokens: 512,
    }
}

/// Random queries, keys and values of `count` rows.
fn rows(count: usize) -> Vec<Tensor> {
    let mut source = StdRng::seed_from_u64(count as u64);
    let mut part = |size: f32| {
        let numbers: Vec<f32> = (0..count * HIDDEN)
            .map(|_| source.random_range(-size..size))
            .collect();
        Tensor::from_vec(numbers, (count, HIDDEN), &Device::Cpu).expect("rows")
    };
    vec![part(3.0), part(2.0), part(1.0)]
}

fn mixed(attention: &Attention, lengths: &[usize], query_key_value: &[Tensor]) -> Vec<f32> {
    let groups = Groups::new(lengths.iter().copied());
    let prepared = attention.prepare(&groups).expect("prepared");
    let mixed = attention.mix(0, query_key_value, &groups, &prepared);
    let mixed = mixed.expect("computed").flatten_all().expect("flat");
    mixed.to_vec1().expect("numbers")
}

fn attention(spec: &EncoderSpec, level: Option<Level>) -> Attention {
    let threads = NonZeroUsize::new(2).expect("two");
    let pool = level.map(|level| Arc::new(Pool::with_level(threads, level)));
    Attention::new(spec, None, 512, &Device::Cpu, pool).expect("tables")
}

#[test]
fn kernels_agree_with_operations_and_a_text_has_the_same_bits_alone_or_batched() {
    let lengths = [1, 1, 2, 15, 16, 17, 33, 64, 64, 65, 130, 200];
    let query_key_value = rows(lengths.iter().sum());
    for (window, theta, positions) in [
        (None, None, Positions::Turned { interleaved: false }),
        (Some(5), None, Positions::Turned { interleaved: false }),
        (
            Some(64),
            Some(10_000.0),
            Positions::Turned { interleaved: false },
        ),
        (None, Some(1000.0), Positions::Turned { interleaved: true }),
    ] {
        let spec = spec(LayerSpec { window, theta }, positions);
        let wanted = mixed(&attention(&spec, None), &lengths, &query_key_value);
        for level in Level::available() {
            let by_kernels = attention(&spec, Some(level));
            let ours = mixed(&by_kernels, &lengths, &query_key_value);
            assert_eq!(ours.len(), wanted.len());
            for (place, (ours, wanted)) in ours.iter().zip(&wanted).enumerate() {
                assert!(
                    (ours - wanted).abs() < 2e-5,
                    "{level:?} {window:?} {theta:?} {place}: {ours} for {wanted}"
                );
            }
            let mut first = 0;
            for count in lengths {
                let alone: Vec<Tensor> = query_key_value
                    .iter()
                    .map(|rows| rows.narrow(0, first, count).expect("rows"))
                    .collect();
                let alone = mixed(&by_kernels, &[count], &alone);
                let bits = |numbers: &[f32]| -> Vec<u32> {
                    numbers.iter().map(|number| number.to_bits()).collect()
                };
                let among = &ours[first * HIDDEN..(first + count) * HIDDEN];
                assert_eq!(bits(&alone), bits(among), "{level:?} {window:?} {count}");
                first += count;
            }
        }
    }
}

#[test]
fn texts_of_equal_length_form_one_group() {
    let groups = Groups::new([3, 3, 5, 7, 7].into_iter());
    let shapes: Vec<_> = groups
        .0
        .iter()
        .map(|group| (group.first_row, group.texts, group.tokens))
        .collect();
    assert_eq!(shapes, [(0, 2, 3), (6, 1, 5), (11, 2, 7)]);
}

#[test]
fn relative_positions_map_to_the_buckets_of_t5() {
    // Generated with `relative_position_bucket` of transformers, for distances key − query.
    for (distance, bucket) in [
        (0, 0),
        (-1, 1),
        (-7, 7),
        (-8, 8),
        (-11, 8),
        (-12, 9),
        (-127, 15),
        (-5000, 15),
        (1, 17),
        (8, 24),
        (5000, 31),
    ] {
        assert_eq!(bucket_of(distance, 32), bucket, "{distance}");
    }
}
