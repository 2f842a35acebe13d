//! Compares the decoder with candle's own decoder of GGML blocks.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

use super::*;
use crate::kernels::tests::random;

#[test]
fn blocks_dequantize_to_the_same_numbers_as_in_candle() {
    let kinds = [
        (Encoding::Q8_0, GgmlDType::Q8_0),
        (Encoding::Q4_0, GgmlDType::Q4_0),
        (Encoding::Q4K, GgmlDType::Q4K),
        (Encoding::Q5K, GgmlDType::Q5K),
        (Encoding::Q6K, GgmlDType::Q6K),
        (Encoding::F16, GgmlDType::F16),
        (Encoding::Bf16, GgmlDType::BF16),
        (Encoding::F32, GgmlDType::F32),
    ];
    for (encoding, kind) in kinds {
        let numbers = Tensor::from_vec(random(7, 4 * 1024), (4, 1024), &Device::Cpu).unwrap();
        let quantised = QTensor::quantize(&numbers, kind).unwrap();
        let wanted: Vec<f32> = quantised
            .dequantize(&Device::Cpu)
            .unwrap()
            .flatten_all()
            .unwrap()
            .to_vec1()
            .unwrap();
        let mut ours = vec![0.0; wanted.len()];
        dequantise(encoding, &quantised.data().unwrap(), &mut ours);
        assert_eq!(ours, wanted, "{encoding:?}");
    }
}
