//! Weights in every encoding: the kernels' results are close to F32, and so are candle's with the types it uses on a GPU.

use super::random::{InMemory, llama};
use super::variations::tokens;
use super::*;
use crate::files::expected;
use crate::spec::{FeedForward, Projections};
use crate::stored_tensor::StoredTensor;
use candle_core::Tensor;
use candle_core::quantized::{GgmlDType, QTensor};

/// All widths are multiples of the block size 256, and projections are parts of fused matrices.
fn spec() -> Spec {
    let mut spec = llama();
    spec.hidden = 256;
    spec.key_width = 64;
    spec.value_width = 64;
    spec.ropes[0].turned_width = 64;
    spec.attention.score_factor = 0.125;
    spec.attention.projections = Projections::Fused;
    spec.ties_head = true;
    for block in &mut spec.blocks {
        if let FeedForward::Gated(gated) = &mut block.feed_forward {
            (gated.width, gated.fused) = (256, true);
        }
    }
    spec
}

/// The same weights, with the matrices in `encoding`.
fn encoded(spec: &Spec, exact: &InMemory, encoding: Encoding, dtype: GgmlDType) -> InMemory {
    let mut all = InMemory(exact.0.clone());
    for tensor in expected(spec) {
        if tensor.shape.len() == 2 {
            let bytes = exact.0[&tensor.name].bytes();
            let numbers =
                Tensor::from_raw_buffer(bytes, DType::F32, &tensor.shape, &Device::Cpu).unwrap();
            let blocks = QTensor::quantize(&numbers, dtype).unwrap();
            let bytes = blocks.data().unwrap().into_owned();
            let range = 0..bytes.len();
            let stored = StoredTensor::new(encoding, tensor.shape, Arc::new(bytes), range).unwrap();
            all.0.insert(tensor.name, stored);
        }
    }
    all
}

#[test]
fn every_encoding_approximates_the_exact_result() {
    let spec = spec();
    let exact = InMemory::random(&spec, 21);
    let text = tokens(&spec, 30, 22);
    for (encoding, dtype) in [
        (Encoding::F32, GgmlDType::F32),
        (Encoding::F16, GgmlDType::F16),
        (Encoding::Bf16, GgmlDType::BF16),
        (Encoding::Q4_0, GgmlDType::Q4_0),
        (Encoding::Q8_0, GgmlDType::Q8_0),
        (Encoding::Q4K, GgmlDType::Q4K),
        (Encoding::Q5K, GgmlDType::Q5K),
        (Encoding::Q6K, GgmlDType::Q6K),
    ] {
        let tensors = encoded(&spec, &exact, encoding, dtype);
        let [native, plain, as_on_gpu] = [Cpu::Native, Cpu::Plain, Cpu::AsOnGpu].map(|cpu| {
            let mut decoder = decoder(&spec, &tensors, cpu);
            let mut sequence = Sequence::new([2, 0]);
            let mut rows = alone(&mut decoder, &mut sequence, &text[..20]);
            rows.extend(alone(&mut decoder, &mut sequence, &text[20..]));
            rows
        });
        let quantised = encoding.block_numbers() > 1;
        let distance_of = |rows: &[Vec<f32>]| distance(rows, &plain);
        // Values are around one. Quantised weights multiply 8-bit inputs, and dense matrices on a GPU multiply BF16 inputs.
        let most = if quantised { 0.15 } else { 1e-4 };
        assert!(
            distance_of(&native) < most,
            "{encoding:?}: {}",
            distance_of(&native)
        );
        let most = if encoding == Encoding::F32 {
            1e-4
        } else {
            0.15
        };
        let distance = distance_of(&as_on_gpu);
        assert!(distance < most, "{encoding:?} as on a GPU: {distance}");
    }
}
