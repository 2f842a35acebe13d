//! Owns the way of tensors from their files to a device, for networks of candle. Never looks into a file.

use crate::error::EngineError;
use crate::files::{Expected, ModelFiles};
use crate::stored::{Encoding, Stored};
use candle_core::quantized::GgmlDType;
use candle_core::quantized::ggml_file::qtensor_from_ggml;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;

/// Weights on the device.
pub(crate) struct Weights {
    pub builder: VarBuilder<'static>,
    pub bytes: u64,
}

/// Brings all tensors of a decoder onto `device` as `dtype`.
///
/// # Errors
/// A tensor that is missing, or memory that does not suffice.
pub(crate) fn load(
    files: &ModelFiles,
    device: &Device,
    dtype: DType,
) -> Result<Weights, EngineError> {
    let mut bytes = 0u64;
    #[expect(
        clippy::disallowed_types,
        reason = "candle's VarBuilder takes this map; its order is never looked at"
    )]
    let mut tensors = std::collections::HashMap::new();
    for Expected { name, .. } in files.expected()? {
        let stored = files.tensor(&name)?;
        // Converted on the host, so that the device never holds both forms.
        let loaded = on_host(&stored)
            .and_then(|loaded| loaded.to_dtype(dtype))
            .and_then(|loaded| loaded.to_device(device))
            .map_err(|error| {
                EngineError::model(
                    files.description(),
                    format!("{name}: {error}"),
                    "check the file and the free memory",
                )
            })?;
        bytes += (loaded.elem_count() * dtype.size_in_bytes()) as u64;
        tensors.insert(name, loaded);
    }
    Ok(Weights {
        builder: VarBuilder::from_tensors(tensors, dtype, device),
        bytes,
    })
}

fn on_host(stored: &Stored) -> candle_core::Result<Tensor> {
    let plain = |dtype| Tensor::from_raw_buffer(stored.bytes(), dtype, &stored.shape, &Device::Cpu);
    let blocks = |dtype| {
        let shape = stored.shape.clone();
        qtensor_from_ggml(dtype, stored.bytes(), shape, &Device::Cpu)?.dequantize(&Device::Cpu)
    };
    match stored.encoding {
        Encoding::F32 => plain(DType::F32),
        Encoding::F16 => plain(DType::F16),
        Encoding::Bf16 => plain(DType::BF16),
        Encoding::Q4_0 => blocks(GgmlDType::Q4_0),
        Encoding::Q8_0 => blocks(GgmlDType::Q8_0),
        Encoding::Q4K => blocks(GgmlDType::Q4K),
        Encoding::Q5K => blocks(GgmlDType::Q5K),
        Encoding::Q6K => blocks(GgmlDType::Q6K),
    }
}
