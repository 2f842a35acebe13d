//! Functions on sixteen lanes: the exponential and the activations derived from it.

use super::tier::Tier;

/// Computes e to the power of each lane with Cephes' polynomial, within two units of the last place from -87 to 88. Smaller inputs
/// give zero, larger ones the value for 88. The result for zero is exactly one.
#[inline(always)]
pub(super) fn exp<T: Tier>(tier: T, value: T::Floats) -> T::Floats {
    let inside = tier.greater(tier.splat(-87.0), value);
    let inside = tier.lesser(tier.splat(88.0), inside);
    let integer_part = tier.round(tier.multiply(inside, tier.splat(std::f32::consts::LOG2_E)));
    // The logarithm of two in two parts; the first has few digits.
    let rest = tier.fused(integer_part, tier.splat(-0.693_359_4), inside);
    let rest = tier.fused(integer_part, tier.splat(2.121_944_4e-4), rest);
    let mut sum = tier.splat(1.987_569_1e-4);
    for factor in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        0.166_666_66,
        0.5,
    ] {
        sum = tier.fused(sum, rest, tier.splat(factor));
    }
    let sum = tier.fused(
        sum,
        tier.multiply(rest, rest),
        tier.add(rest, tier.splat(1.0)),
    );
    tier.zero_below(
        tier.multiply(sum, tier.power_of_two(integer_part)),
        value,
        -87.0,
    )
}

#[inline(always)]
fn negative<T: Tier>(tier: T, value: T::Floats) -> T::Floats {
    tier.subtract(tier.splat(0.0), value)
}

/// `value / (1 + e^(-by))`.
#[inline(always)]
fn gated_by<T: Tier>(tier: T, value: T::Floats, by: T::Floats) -> T::Floats {
    let one = tier.splat(1.0);
    tier.divide(value, tier.add(one, exp(tier, negative(tier, by))))
}

#[inline(always)]
pub(super) fn tanh<T: Tier>(tier: T, value: T::Floats) -> T::Floats {
    // 2 / (1 + e^(-2x)) - 1
    let twice = tier.add(value, value);
    tier.subtract(gated_by(tier, tier.splat(2.0), twice), tier.splat(1.0))
}

#[inline(always)]
pub(super) fn silu<T: Tier>(tier: T, value: T::Floats) -> T::Floats {
    gated_by(tier, value, value)
}

/// `x · (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2`
#[inline(always)]
pub(super) fn gelu_tanh<T: Tier>(tier: T, value: T::Floats) -> T::Floats {
    let square = tier.multiply(value, value);
    let inner = tier.fused(square, tier.splat(0.044_715), tier.splat(1.0));
    // Twice the square root of 2/π, because the hyperbolic tangent is computed as a gate.
    let inner = tier.multiply(tier.multiply(inner, value), tier.splat(1.595_769));
    gated_by(tier, value, inner)
}

/// `x · (1 + erf(x / √2)) / 2`, with the error function from Abramowitz and Stegun, 7.1.26 (within 1.5e-7).
#[inline(always)]
pub(super) fn gelu<T: Tier>(tier: T, value: T::Floats) -> T::Floats {
    let zero = tier.splat(0.0);
    let one = tier.splat(1.0);
    let scaled = tier.multiply(value, tier.splat(std::f32::consts::FRAC_1_SQRT_2));
    let size = tier.greater(scaled, negative(tier, scaled));
    let share = tier.divide(one, tier.fused(size, tier.splat(0.327_591_1), one));
    let mut sum = tier.splat(1.061_405_4);
    for factor in [-1.453_152, 1.421_413_8, -0.284_496_74, 0.254_829_6] {
        sum = tier.fused(sum, share, tier.splat(factor));
    }
    let tail = tier.multiply(sum, share);
    let tail = tier.multiply(tail, exp(tier, negative(tier, tier.multiply(size, size))));
    // The probability mass of the normal distribution beyond `|x|`; computing it directly keeps the digits of small results.
    let half_tail = tier.multiply(tail, tier.splat(0.5));
    let kept = tier.greater(value, zero);
    let lost = tier.multiply(tier.greater(value, negative(tier, value)), half_tail);
    tier.subtract(kept, lost)
}
