//! Compares products with 64-bit sums over weights decoded by [`blocks::dequantise`], and with themselves in other batches.

use super::*;
use crate::kernels::Level;
use crate::kernels::tests::{pool, random, random_stored, stored};

const ENCODINGS: [Encoding; 8] = [
    Encoding::F32,
    Encoding::F16,
    Encoding::Bf16,
    Encoding::Q8_0,
    Encoding::Q4_0,
    Encoding::Q4K,
    Encoding::Q5K,
    Encoding::Q6K,
];

fn multiplied(pool: &Pool, matrix: &Matrix, input: &[f32]) -> Vec<f32> {
    let mut output = vec![f32::NAN; input.len() / matrix.columns() * matrix.rows()];
    multiply_all(pool, &[matrix], input, &mut [&mut output]);
    output
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

/// The input as the quantised kernels see it.
fn rounded(input: &[f32]) -> Vec<f32> {
    let mut result = Vec::new();
    for group in input.chunks(GROUP) {
        let greatest = group
            .iter()
            .fold(0.0f32, |greatest, number| greatest.max(number.abs()));
        let factor = greatest / 127.0;
        result.extend(
            group
                .iter()
                .map(|number| (number * (127.0 / greatest)).round_ties_even() * factor),
        );
    }
    result
}

/// The products in 64 bits, and the sums of their magnitudes.
fn reference(matrix: &Matrix, input: &[f32]) -> Vec<(f64, f64)> {
    let columns = matrix.columns();
    let mut weights = vec![0.0; matrix.rows() * columns];
    for (row, weights) in weights.chunks_exact_mut(columns).enumerate() {
        matrix.row(row, weights);
    }
    let mut result = Vec::new();
    for input in input.chunks_exact(columns) {
        for weights in weights.chunks_exact(columns) {
            let products = || {
                input
                    .iter()
                    .zip(weights)
                    .map(|(a, b)| f64::from(*a) * f64::from(*b))
            };
            result.push((products().sum(), products().map(f64::abs).sum()));
        }
    }
    result
}

#[test]
fn products_equal_those_of_the_dequantized_weights() {
    for encoding in ENCODINGS {
        for (rows, columns) in [
            (1, 32),
            (7, 96),
            (33, 288),
            (48, 576),
            (65, 768),
            (31, 896),
            (40, 2048),
            (19, 8192),
        ] {
            let columns = columns.max(encoding.block_numbers());
            if columns % encoding.block_numbers() != 0 {
                continue;
            }
            let matrix = Matrix::new(random_stored(5, encoding, rows, columns)).unwrap();
            for level in Level::available() {
                for count in [1, 2, 3, 5, 8, 16, 17, 33] {
                    let most = match level {
                        _ if cfg!(miri) => 1 << 12,
                        Level::Plain => 1 << 20,
                        _ => usize::MAX,
                    };
                    if rows * columns * count > most {
                        continue;
                    }
                    let input = random(count as u64, count * columns);
                    let seen = if matrix.is_quantised() {
                        rounded(&input)
                    } else {
                        input.clone()
                    };
                    let ours = multiplied(&pool(2, level), &matrix, &input);
                    for (place, (ours, (wanted, size))) in
                        ours.iter().zip(reference(&matrix, &seen)).enumerate()
                    {
                        let error = (f64::from(*ours) - wanted).abs();
                        assert!(
                            error <= 3e-6 * size + 1e-9,
                            "{encoding:?} {level:?} {rows}×{columns}, {count} rows, place {place}: {ours} for {wanted}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_for_any_batch_thread_count_and_level() {
    for encoding in ENCODINGS {
        let (rows, columns) = match encoding.block_numbers() {
            256 if cfg!(miri) => (3, 256),
            _ if cfg!(miri) => (5, 96),
            256 => (83, 1280),
            _ => (83, 1184),
        };
        let matrix = Matrix::new(random_stored(9, encoding, rows, columns)).unwrap();
        let input = random(11, 37 * columns);
        let plain = pool(1, Level::Plain);
        let alone: Vec<f32> = input
            .chunks_exact(columns)
            .flat_map(|row| multiplied(&plain, &matrix, row))
            .collect();
        for level in Level::available() {
            for threads in [1, 3] {
                let pool = pool(threads, level);
                for count in [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 33] {
                    if cfg!(miri) && count > 3 {
                        continue;
                    }
                    for first in [0, 1, 4] {
                        let ours = multiplied(
                            &pool,
                            &matrix,
                            &input[first * columns..(first + count) * columns],
                        );
                        assert_eq!(
                            bits(&ours),
                            bits(&alone[first * rows..(first + count) * rows]),
                            "{encoding:?} {level:?}, {threads} threads, {count} rows from {first}"
                        );
                    }
                }
            }
        }
    }
}

fn rounding(threads: usize, level: Level) -> Pool {
    pool(threads, level).rounding()
}

#[test]
fn products_with_rounded_inputs_equal_those_of_bf16_numbers() {
    for (rows, columns) in [
        (1, 1),
        (7, 31),
        (5, 32),
        (33, 70),
        (65, 768),
        (12, 2048),
        (9, 4177),
    ] {
        let matrix = Matrix::new(random_stored(5, Encoding::Bf16, rows, columns)).unwrap();
        for count in 1..=33 {
            if cfg!(miri) && rows * columns * count > 1 << 10 {
                continue;
            }
            let input = random(count as u64, count * columns);
            let seen: Vec<f32> = input
                .iter()
                .map(|number| half::bf16::from_f32(*number).to_f32())
                .collect();
            let wanted = reference(&matrix, &seen);
            for level in Level::available() {
                if level == Level::Plain && rows * columns * count > 1 << 18 {
                    continue;
                }
                let ours = multiplied(&rounding(2, level), &matrix, &input);
                for (place, (ours, (wanted, size))) in ours.iter().zip(&wanted).enumerate() {
                    let error = (f64::from(*ours) - wanted).abs();
                    assert!(
                        error <= 3e-6 * size + 1e-9,
                        "{level:?} {rows}×{columns}, {count} rows, place {place}: {ours} for {wanted}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_row_with_rounded_inputs_has_the_same_bits_for_any_batch_and_thread_count() {
    let (rows, columns) = if cfg!(miri) { (5, 70) } else { (83, 2150) };
    let matrix = Matrix::new(random_stored(9, Encoding::Bf16, rows, columns)).unwrap();
    let input = random(11, 37 * columns);
    let alone = |level: Level| -> Vec<f32> {
        let pool = rounding(1, level);
        let rows = input.chunks_exact(columns);
        rows.flat_map(|row| multiplied(&pool, &matrix, row))
            .collect()
    };
    let plain = alone(Level::Plain);
    for level in Level::available() {
        let alone = alone(level);
        // The hardware instruction adds the two products of a lane in an unspecified order.
        if level != Level::Avx512Bf16 {
            assert_eq!(bits(&alone), bits(&plain), "{level:?}");
        }
        for threads in [1, 3] {
            let pool = rounding(threads, level);
            for count in 1..=33 {
                if cfg!(miri) && count > 3 {
                    continue;
                }
                for first in [0, 1, 4] {
                    let ours = multiplied(
                        &pool,
                        &matrix,
                        &input[first * columns..(first + count) * columns],
                    );
                    assert_eq!(
                        bits(&ours),
                        bits(&alone[first * rows..(first + count) * rows]),
                        "{level:?}, {threads} threads, {count} rows from {first}"
                    );
                }
            }
        }
    }
}

#[test]
fn inputs_are_rounded_only_for_bf16_matrices_and_only_if_the_pool_rounds() {
    let input = random(2, 3 * 512);
    for encoding in ENCODINGS {
        let matrix = Matrix::new(random_stored(3, encoding, 40, 512)).unwrap();
        let exact = multiplied(&pool(2, Level::best()), &matrix, &input);
        let rounded = multiplied(&rounding(2, Level::best()), &matrix, &input);
        assert_eq!(
            bits(&exact) == bits(&rounded),
            encoding != Encoding::Bf16,
            "{encoding:?}"
        );
    }
    // Several matrices with one input: each gets its own products.
    let matrices = [Encoding::Bf16, Encoding::F32, Encoding::Q8_0]
        .map(|encoding| Matrix::new(random_stored(3, encoding, 40, 512)).unwrap());
    let pool = rounding(2, Level::best());
    let mut outputs = vec![vec![0.0; 3 * 40]; 3];
    let mut slices: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    multiply_all(&pool, &matrices.each_ref(), &input, &mut slices);
    for (matrix, output) in matrices.iter().zip(&outputs) {
        assert_eq!(bits(output), bits(&multiplied(&pool, matrix, &input)));
    }
}

#[test]
fn matrices_that_share_an_input_give_the_same_results_as_multiplied_separately() {
    let pool = pool(2, Level::best());
    let input = random(2, 5 * 512);
    let matrices = [
        (Encoding::Q4K, 128),
        (Encoding::Q6K, 40),
        (Encoding::F32, 33),
        (Encoding::Q8_0, 1),
    ]
    .map(|(encoding, rows)| Matrix::new(random_stored(3, encoding, rows, 512)).unwrap());
    let mut outputs: Vec<Vec<f32>> = matrices
        .iter()
        .map(|matrix| vec![0.0; 5 * matrix.rows()])
        .collect();
    let mut slices: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    multiply_all(&pool, &matrices.each_ref(), &input, &mut slices);
    for (matrix, output) in matrices.iter().zip(&outputs) {
        assert_eq!(bits(output), bits(&multiplied(&pool, matrix, &input)));
    }
}

#[test]
fn a_row_range_gives_its_part_of_the_full_product_including_the_bias() {
    let pool = pool(2, Level::best());
    let input = random(2, 3 * 64);
    for encoding in [Encoding::Q8_0, Encoding::Bf16] {
        let plain = Matrix::new(random_stored(4, encoding, 70, 64)).unwrap();
        let without = multiplied(&pool, &plain, &input);
        let bias = random(8, 70);
        let matrix = plain.with_bias(bias.clone()).unwrap();
        let all = multiplied(&pool, &matrix, &input);
        for (place, (with, without)) in all.iter().zip(&without).enumerate() {
            assert_eq!(with.to_bits(), (without + bias[place % 70]).to_bits());
        }
        let some = multiplied(&pool, &matrix.rows_of(17..60).rows_of(1..40), &input);
        for row in 0..3 {
            assert_eq!(some[row * 39..][..39], all[row * 70 + 18..][..39]);
        }
    }
}

#[test]
fn a_nan_input_makes_only_its_own_row_nan() {
    let pools = [pool(1, Level::best()), rounding(1, Level::best())];
    for (encoding, pool) in ENCODINGS
        .iter()
        .flat_map(|encoding| pools.iter().map(|pool| (*encoding, pool)))
    {
        let matrix = Matrix::new(random_stored(4, encoding, 33, 512)).unwrap();
        let mut input = random(2, 2 * 512);
        input[700] = f32::NAN;
        let output = multiplied(pool, &matrix, &input);
        assert!(
            output[..33].iter().all(|number| number.is_finite()),
            "{encoding:?}"
        );
        assert!(
            output[33..].iter().all(|number| number.is_nan()),
            "{encoding:?}"
        );
    }
}

#[test]
fn tensors_that_are_not_matrices_are_refused() {
    let vector = stored(Encoding::F32, &[4], &[0; 16]);
    assert!(Matrix::new(vector).unwrap_err().contains("[4]"));
    let narrow = stored(Encoding::Q8_0, &[2, 16], &[0; 34]);
    assert!(Matrix::new(narrow).unwrap_err().contains("blocks of 32"));
}

#[test]
fn leading_dimensions_of_a_matrix_are_flattened_into_rows() {
    let experts = random_stored(1, Encoding::Q8_0, 24, 32);
    let experts = stored(Encoding::Q8_0, &[3, 8, 32], experts.bytes());
    assert_eq!(Matrix::new(experts).unwrap().rows(), 24);
}
