//! Compares quantised inputs with the original numbers.

use std::num::NonZeroUsize;

use super::*;
use crate::kernels::Level;
use crate::kernels::tests::random;

fn filled(level: Level, numbers: &[f32], columns: usize) -> Input {
    let mut input = Input::default();
    input.fill(
        &Pool::with_level(NonZeroUsize::MIN, level),
        numbers,
        columns,
    );
    input
}

#[test]
fn inputs_are_quantized_to_the_nearest_byte_on_every_level() {
    let numbers = random(3, 10 * 96);
    let plain = filled(Level::Plain, &numbers, 96);
    for (place, number) in numbers.iter().enumerate() {
        let factor = plain.groups[place / GROUP].factor;
        let near = f32::from(plain.bytes[place]) * factor;
        assert!(
            (near - number).abs() <= 0.501 * factor,
            "{near} for {number}"
        );
    }
    for level in Level::available() {
        let input = filled(level, &numbers, 96);
        assert_eq!(input.bytes, plain.bytes, "{level:?}");
        assert_eq!(input.groups, plain.groups, "{level:?}");
    }
}

#[test]
fn a_group_with_a_non_finite_number_has_a_non_finite_factor() {
    for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut numbers = random(3, 96);
        numbers[40] = broken;
        for level in Level::available() {
            let input = filled(level, &numbers, 96);
            assert!(input.groups[0].factor.is_finite());
            assert!(!input.groups[1].factor.is_finite(), "{level:?} {broken}");
            assert!(input.groups[2].factor.is_finite());
        }
    }
}

#[test]
fn zeros_and_the_smallest_numbers_stay_finite() {
    for value in [0.0, f32::from_bits(1), f32::MIN_POSITIVE, f32::MAX] {
        let input = filled(Level::best(), &[value; 32], 32);
        let group = input.groups[0];
        assert!(group.factor.is_finite() && group.scaled_sum.is_finite() || value == f32::MAX);
        assert!(f32::from(input.bytes[0]) * group.factor <= value * 1.01);
    }
}
