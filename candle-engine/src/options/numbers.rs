//! Number types on the CPU: of matrix products, and of the KV cache.

use super::{DeviceChoice, EngineOptions};
use crate::error::EngineError;
use crate::kernels::Precision;
use std::fmt;
use std::str::FromStr;

/// Number types on the CPU. On GPUs, both follow the weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NumberTypes {
    /// The type in which BF16 matrices are multiplied.
    pub products: ProductType,
    /// The type of the KV cache.
    pub kv_cache: CacheType,
}

/// The type in which BF16 matrices are multiplied. Other matrices multiply F32 inputs, or as their block type requires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProductType {
    /// Currently F32; may change once BF16 products have been measured on processors that support them.
    #[default]
    Auto,
    /// Rounds inputs to BF16, and sums in F32.
    Bf16,
    /// F32 inputs.
    F32,
}

/// The type of the KV cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CacheType {
    /// F32.
    #[default]
    Auto,
    /// Half the memory; magnitudes above 65,504 are clamped.
    F16,
    /// Half the memory, with fewer digits than F16.
    Bf16,
    /// Four bytes per number.
    F32,
}

const PRODUCTS: [ProductType; 3] = [ProductType::Auto, ProductType::Bf16, ProductType::F32];
const CACHES: [CacheType; 4] = [
    CacheType::Auto,
    CacheType::F16,
    CacheType::Bf16,
    CacheType::F32,
];

impl EngineOptions {
    /// Rejects these options on GPUs, where the types follow the weights.
    pub(super) fn check_numbers(&self) -> Result<(), EngineError> {
        let types = self.numbers;
        let other = self
            .devices
            .iter()
            .find(|device| **device != DeviceChoice::Cpu);
        let Some(other) = other else {
            return Ok(());
        };
        let given = [
            ("dtype", types.products.to_string()),
            ("kv_cache_dtype", types.kv_cache.to_string()),
        ];
        match given.into_iter().find(|(_, value)| value != "auto") {
            Some((name, value)) => Err(EngineError::option(
                name,
                format!(
                    "{value} applies only to the CPU, but {other} uses the types of the weights; leave it out"
                ),
            )),
            None => Ok(()),
        }
    }
}

impl ProductType {
    /// Returns true if inputs of BF16 matrices are rounded to BF16.
    pub(crate) fn rounds(self) -> bool {
        self == Self::Bf16
    }
}

impl CacheType {
    pub(crate) fn precision(self) -> Precision {
        match self {
            Self::Auto | Self::F32 => Precision::F32,
            Self::F16 => Precision::F16,
            Self::Bf16 => Precision::Bf16,
        }
    }
}

impl fmt::Display for ProductType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Auto => "auto",
            Self::Bf16 => "bfloat16",
            Self::F32 => "float32",
        })
    }
}

impl fmt::Display for CacheType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Auto => "auto",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::F32 => "float32",
        })
    }
}

impl FromStr for ProductType {
    type Err = String;

    /// Parses `auto`, `bfloat16` or `float32`.
    fn from_str(text: &str) -> Result<Self, String> {
        let found = PRODUCTS
            .into_iter()
            .find(|product| product.to_string() == text);
        found.ok_or_else(|| {
            format!("`{text}` is not a type for matrix products; write auto, bfloat16 or float32")
        })
    }
}

impl FromStr for CacheType {
    type Err = String;

    /// Parses `auto`, `float16`, `bfloat16` or `float32`.
    fn from_str(text: &str) -> Result<Self, String> {
        let found = CACHES.into_iter().find(|cache| cache.to_string() == text);
        found.ok_or_else(|| {
            format!(
                "`{text}` is not a type for the KV cache; write auto, float16, bfloat16 or float32"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::options;
    use super::*;

    #[test]
    fn number_types_parse_by_vllms_names_and_others_are_refused_with_the_list() {
        for types in PRODUCTS {
            assert_eq!(types.to_string().parse(), Ok(types));
        }
        for types in CACHES {
            assert_eq!(types.to_string().parse(), Ok(types));
        }
        let refused = "half".parse::<ProductType>().expect_err("no such type");
        assert!(refused.contains("auto, bfloat16 or float32"), "{refused}");
        let refused = "fp8".parse::<CacheType>().expect_err("no such type");
        assert!(refused.contains("float16, bfloat16"), "{refused}");
    }

    #[test]
    fn cpu_number_types_are_refused_on_a_gpu_by_option() {
        let types = |products, kv_cache| NumberTypes { products, kv_cache };
        for (numbers, name) in [
            (types(ProductType::F32, CacheType::Auto), "dtype"),
            (types(ProductType::Auto, CacheType::F16), "kv_cache_dtype"),
        ] {
            let on_the_cpu = EngineOptions {
                numbers,
                ..options()
            };
            assert!(on_the_cpu.validate().is_ok());
            let with_a_gpu = EngineOptions {
                devices: vec![DeviceChoice::Cuda(0), DeviceChoice::Cpu],
                ..on_the_cpu
            };
            let message = with_a_gpu.validate().expect_err("must be refused");
            assert!(message.to_string().starts_with(name), "{message}");
        }
    }

    #[test]
    fn inputs_are_rounded_only_for_bf16_products() {
        let rounding = PRODUCTS.into_iter().filter(|product| product.rounds());
        assert_eq!(rounding.collect::<Vec<_>>(), [ProductType::Bf16]);
    }
}
