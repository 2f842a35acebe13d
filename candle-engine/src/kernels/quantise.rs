//! Owns quantising tensors in memory, into GGML's layouts, so that what comes out is as if a file had it. The search for
//! factors is candle's; nothing else here uses candle.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

use super::blocks::dequantise;
use super::pool::Pool;
use crate::stored::{Encoding, Stored};

/// Numbers of one task: few enough that their 32-bit copies are small beside any model.
const TASK_NUMBERS: usize = 1 << 16;

/// The tensor in another encoding, held in memory. Its last dimension must be whole blocks.
pub(crate) fn quantise(pool: &Pool, stored: &Stored, to: Encoding) -> Result<Stored, String> {
    let kind = match to {
        Encoding::F32 => GgmlDType::F32,
        Encoding::F16 => GgmlDType::F16,
        Encoding::Bf16 => GgmlDType::BF16,
        Encoding::Q4_0 => GgmlDType::Q4_0,
        Encoding::Q8_0 => GgmlDType::Q8_0,
        Encoding::Q4K => GgmlDType::Q4K,
        Encoding::Q5K => GgmlDType::Q5K,
        Encoding::Q6K => GgmlDType::Q6K,
    };
    let columns = stored.shape.last().copied().unwrap_or(1);
    let Some(bytes) = to
        .bytes_of(stored.numbers())
        .filter(|_| columns.is_multiple_of(to.block_numbers()))
    else {
        return Err(format!(
            "rows of {columns} numbers are not whole blocks of {}, which {to:?} needs",
            to.block_numbers()
        ));
    };
    let mut result = vec![0; bytes];
    let failure = Mutex::new(None);
    let piece_bytes = to.bytes_of(TASK_NUMBERS).unwrap_or(bytes);
    let from = stored.encoding;
    let from_bytes = from.bytes_of(TASK_NUMBERS).unwrap_or(0);
    pool.run_pieces(&mut result, piece_bytes, |piece, result| {
        let count = result.len() / to.block_bytes() * to.block_numbers();
        let source = &stored.bytes()[piece * from_bytes..];
        let source = &source[..from.bytes_of(count).unwrap_or(0)];
        let mut numbers = vec![0.0; count];
        dequantise(from, source, &mut numbers);
        let quantised = Tensor::from_vec(numbers, (1, count), &Device::Cpu)
            .and_then(|numbers| QTensor::quantize(&numbers, kind))
            .and_then(|quantised| {
                result.copy_from_slice(&quantised.data()?);
                Ok(())
            });
        if let Err(error) = quantised {
            *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        }
    });
    if let Some(failure) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(format!("{from:?} cannot be quantised to {to:?}: {failure}"));
    }
    Stored::new(to, stored.shape.clone(), Arc::new(result), 0..bytes)
        .ok_or_else(|| format!("{:?} in {to:?} are not {bytes} bytes", stored.shape))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::tests::{pool, random, random_stored, stored};
    use crate::kernels::{Level, Matrix};

    #[test]
    fn quantised_tensors_mean_nearly_the_same_and_any_threads_give_the_same_bytes() {
        let numbers: Vec<u8> = random(1, 300 * 512)
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        let dense = stored(Encoding::F32, &[300, 512], &numbers);
        for (to, tolerance) in [
            (Encoding::Q8_0, 0.006),
            (Encoding::Q4K, 0.09),
            (Encoding::Bf16, 0.004),
        ] {
            let quantised = quantise(&pool(3, Level::best()), &dense, to).unwrap();
            let again = quantise(&pool(1, Level::best()), &dense, to).unwrap();
            assert_eq!(quantised.bytes(), again.bytes());
            assert_eq!((quantised.encoding, &quantised.shape), (to, &dense.shape));
            let (dense, quantised) = (
                Matrix::new(dense.clone()).unwrap(),
                Matrix::new(quantised).unwrap(),
            );
            let (mut wanted, mut ours) = (vec![0.0; 512], vec![0.0; 512]);
            for row in 0..300 {
                dense.row(row, &mut wanted);
                quantised.row(row, &mut ours);
                for (ours, wanted) in ours.iter().zip(&wanted) {
                    assert!(
                        (ours - wanted).abs() < tolerance,
                        "{to:?}: {ours} for {wanted}"
                    );
                }
            }
        }
    }

    #[test]
    fn rows_that_are_not_whole_blocks_are_refused() {
        let narrow = random_stored(1, Encoding::F16, 8, 96);
        let error = quantise(&pool(1, Level::best()), &narrow, Encoding::Q4K).unwrap_err();
        assert!(error.contains("96") && error.contains("256"), "{error}");
    }
}
