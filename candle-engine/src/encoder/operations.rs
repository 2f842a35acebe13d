//! Row operations between the matrix products: activation, norm, softmax. On the CPU, they run in place on all cores without
//! allocating; on other devices, they use candle's operations.
//!
//! candle's own versions compute activations, additions and exponentials on one core, number by number. For an encoder's short
//! rows, that takes as long as the products.

use super::spec::Activation;
use candle_core::{CpuStorage, D, InplaceOp1, InplaceOp3, Layout, Result, Tensor, bail};
use rayon::prelude::*;

/// Numbers per task; smaller tasks are not worth another core.
const TASK_NUMBERS: usize = 1 << 14;

/// Applies the activation to each number.
pub(crate) fn activate(rows: Tensor, activation: Activation) -> Result<Tensor> {
    if rows.device().is_cpu() {
        rows.inplace_op1(&Activate(activation))?;
        return Ok(rows);
    }
    match activation {
        Activation::Gelu => rows.gelu_erf(),
        Activation::GeluTanh => rows.gelu(),
        Activation::Relu => rows.relu(),
        Activation::Silu => rows.silu(),
        Activation::Tanh => rows.tanh(),
    }
}

/// Applies layer norm to each row.
pub(crate) fn norm(rows: Tensor, weight: &Tensor, bias: &Tensor, epsilon: f32) -> Result<Tensor> {
    if !rows.device().is_cpu() {
        return candle_nn::ops::layer_norm_slow(&rows, weight, bias, epsilon);
    }
    rows.inplace_op3(weight, bias, &Norm(epsilon))?;
    Ok(rows)
}

/// Applies softmax to each row.
pub(crate) fn softmax(scores: Tensor) -> Result<Tensor> {
    if !scores.device().is_cpu() {
        return candle_nn::ops::softmax(&scores, D::Minus1);
    }
    scores.inplace_op1(&Softmax)?;
    Ok(scores)
}

/// The numbers of a contiguous tensor, and its row width.
fn numbers_mut<'a>(
    name: &str,
    storage: &'a mut CpuStorage,
    layout: &Layout,
) -> Result<(&'a mut [f32], usize)> {
    let (Some((start, end)), CpuStorage::F32(all)) = (layout.contiguous_offsets(), storage) else {
        bail!("{name} takes contiguous F32 rows");
    };
    let width = layout.dims().last().copied().unwrap_or(1).max(1);
    Ok((&mut all[start..end], width))
}

/// The numbers of a contiguous tensor.
pub(crate) fn numbers<'a>(
    name: &str,
    storage: &'a CpuStorage,
    layout: &Layout,
) -> Result<&'a [f32]> {
    match (layout.contiguous_offsets(), storage) {
        (Some((start, end)), CpuStorage::F32(all)) => Ok(&all[start..end]),
        _ => bail!("{name} takes contiguous F32 numbers"),
    }
}

/// Applies `of` to each number, on all cores.
fn each_number(numbers: &mut [f32], of: impl Fn(f32) -> f32 + Sync) {
    numbers.par_chunks_mut(TASK_NUMBERS).for_each(|task| {
        for number in task {
            *number = of(*number);
        }
    });
}

/// Applies `work` to each row, on all cores.
fn each_row(numbers: &mut [f32], width: usize, work: impl Fn(&mut [f32]) + Sync) {
    let rows = (TASK_NUMBERS / width).max(1);
    numbers
        .par_chunks_mut(rows * width)
        .for_each(|task| task.chunks_exact_mut(width).for_each(&work));
}

struct Activate(Activation);

impl InplaceOp1 for Activate {
    fn name(&self) -> &'static str {
        "activate"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (rows, _) = numbers_mut(self.name(), storage, layout)?;
        // A separate loop per activation lets the compiler inline and vectorise it.
        match self.0 {
            Activation::Gelu => each_number(rows, gelu),
            Activation::Silu => each_number(rows, |number| number / (1.0 + exponential(-number))),
            Activation::Relu => each_number(rows, |number| number.max(0.0)),
            Activation::Tanh => each_number(rows, f32::tanh),
            Activation::GeluTanh => each_number(rows, gelu_tanh),
        }
        Ok(())
    }
}

struct Norm(f32);

impl InplaceOp3 for Norm {
    fn name(&self) -> &'static str {
        "norm"
    }

    fn cpu_fwd(
        &self,
        storage: &mut CpuStorage,
        layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<()> {
        let weight = numbers(self.name(), weight, weight_layout)?;
        let bias = numbers(self.name(), bias, bias_layout)?;
        let (rows, width) = numbers_mut(self.name(), storage, layout)?;
        each_row(rows, width, |row| {
            let mean = sum(row, |number| number) / width as f32;
            let variance = sum(row, |number| (number - mean) * (number - mean)) / width as f32;
            let scale = 1.0 / (variance + self.0).sqrt();
            for ((number, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
                *number = (*number - mean) * scale * weight + bias;
            }
        });
        Ok(())
    }
}

struct Softmax;

impl InplaceOp1 for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (rows, width) = numbers_mut(self.name(), storage, layout)?;
        each_row(rows, width, |row| {
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            for number in row.iter_mut() {
                *number = exponential(*number - most);
            }
            let share = 1.0 / sum(row, |number| number);
            for number in row {
                *number *= share;
            }
        });
        Ok(())
    }
}

/// Sums in eight independent parts, for vectorisation.
fn sum(row: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let mut parts = [0.0f32; 8];
    let mut chunks = row.chunks_exact(8);
    for chunk in &mut chunks {
        for (part, number) in parts.iter_mut().zip(chunk) {
            *part += of(*number);
        }
    }
    let rest: f32 = chunks.remainder().iter().map(|number| of(*number)).sum();
    parts.iter().sum::<f32>() + rest
}

/// `eˣ` to about two units in the last place, without branches: a power of two assembled from bits, times a polynomial (the series
/// of 2ᶠ for |f| ≤ ½, whose first omitted term is below 2e-8).
#[inline(always)]
fn exponential(x: f32) -> f32 {
    const LOWEST: f32 = -87.0;
    const HIGHEST: f32 = 88.0;
    let power = x.clamp(LOWEST, HIGHEST) * std::f32::consts::LOG2_E;
    // Adding 1.5 · 2²³ leaves no bits for a fraction, which rounds to the nearest integer.
    const ROUNDER: f32 = 12_582_912.0;
    let rounded = power + ROUNDER;
    let integer_part = rounded - ROUNDER;
    // ln 2 in two parts, which preserves the last digits of the difference.
    let rest =
        x.clamp(LOWEST, HIGHEST) - integer_part * 0.693_359_4 + integer_part * 2.121_944_4e-4;
    let series = 1.0
        + rest
            * (1.0
                + rest
                    * (0.5
                        + rest
                            * (1.0 / 6.0
                                + rest * (1.0 / 24.0 + rest * (1.0 / 120.0 + rest / 720.0)))));
    let bits = (rounded.to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32);
    series * f32::from_bits(((bits + 127) << 23) as u32)
}

/// `x · Φ(x)`, with the error function from Abramowitz and Stegun, 7.1.26 (absolute error below 1.5e-7).
#[inline(always)]
fn gelu(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let polynomial = t
        * (0.254_829_6
            + t * (-0.284_496_72 + t * (1.421_413_8 + t * (-1.453_152 + t * 1.061_405_4))));
    let tail = 0.5 * polynomial * exponential(-z * z);
    x * if x < 0.0 { tail } else { 1.0 - tail }
}

fn gelu_tanh(x: f32) -> f32 {
    const FACTOR: f32 = 0.797_884_6;
    0.5 * x * (1.0 + (FACTOR * (x + 0.044_715 * x * x * x)).tanh())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn row(numbers: &[f32]) -> Tensor {
        Tensor::from_slice(numbers, (1, numbers.len()), &Device::Cpu).expect("a row")
    }

    fn integer_part(tensor: Tensor) -> Vec<f32> {
        let flat = tensor.flatten_all().expect("flat");
        flat.to_vec1().expect("numbers")
    }

    #[test]
    fn exponentials_and_gelu_agree_with_their_definitions() {
        for step in -4000..4000 {
            let x = step as f32 / 50.0;
            let (ours, exact) = (f64::from(exponential(x)), f64::from(x).exp());
            assert!(
                (ours / exact - 1.0).abs() < 4e-7,
                "exp({x}): {ours} {exact}"
            );
        }
        assert!(exponential(f32::NEG_INFINITY) < 1e-37);
        for step in -600..600 {
            let x = step as f32 / 50.0;
            let exact = integer_part(row(&[x]).gelu_erf().expect("candle's"))[0];
            assert!((gelu(x) - exact).abs() < 6e-7, "gelu({x})");
        }
    }

    #[test]
    fn in_place_activations_agree_with_candle() {
        let numbers: Vec<f32> = (-20..21).map(|step| step as f32 / 4.0).collect();
        for (activation, exact) in [
            (Activation::Gelu, row(&numbers).gelu_erf()),
            (Activation::GeluTanh, row(&numbers).gelu()),
            (Activation::Relu, row(&numbers).relu()),
            (Activation::Silu, row(&numbers).silu()),
            (Activation::Tanh, row(&numbers).tanh()),
        ] {
            let ours = integer_part(activate(row(&numbers), activation).expect("computed"));
            for (ours, exact) in ours.iter().zip(integer_part(exact.expect("computed"))) {
                assert!(
                    (ours - exact).abs() < 1e-6,
                    "{activation:?}: {ours} {exact}"
                );
            }
        }
    }

    #[test]
    fn softmax_and_norm_agree_with_candle_row_by_row() {
        let numbers: Vec<f32> = (0..60)
            .map(|step| (step as f32 * 1.7).sin() * 9.0)
            .collect();
        let rows = Tensor::from_slice(&numbers, (4, 15), &Device::Cpu).expect("rows");
        let exact = candle_nn::ops::softmax(&rows, 1).expect("candle's");
        let weight = Tensor::arange(0f32, 15.0, &Device::Cpu).expect("a weight");
        let norm_exact = candle_nn::ops::layer_norm_slow(&rows, &weight, &weight, 1e-5);
        let copy = || (&rows * 1.0).expect("a copy");
        let pairs = [
            (softmax(copy()), exact),
            (
                norm(copy(), &weight, &weight, 1e-5),
                norm_exact.expect("candle's"),
            ),
        ];
        for (ours, exact) in pairs {
            for (ours, exact) in integer_part(ours.expect("computed"))
                .iter()
                .zip(integer_part(exact))
            {
                assert!(
                    (ours - exact).abs() < 1e-5 * (1.0 + exact.abs()),
                    "{ours} {exact}"
                );
            }
        }
    }
}
