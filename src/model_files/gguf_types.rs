//! The number formats of ggml: elements and bytes per block. Source: `GGML_QUANT_SIZES` in
//! `gguf-py/gguf/constants.py` of llama.cpp (b10451), and for the removed repacked formats `ggml.h` of the
//! versions that wrote them.

/// One block of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub elements: u64,
    pub bytes: u64,
}

/// The format with this number in a tensor's entry.
pub fn block(number: u32) -> Option<Block> {
    let (elements, bytes) = match number {
        0 => (1, 4),                        // F32
        1 => (1, 2),                        // F16
        2 => (32, 2 + 16),                  // Q4_0
        3 => (32, 2 + 2 + 16),              // Q4_1
        6 => (32, 2 + 4 + 16),              // Q5_0
        7 => (32, 2 + 2 + 4 + 16),          // Q5_1
        8 => (32, 2 + 32),                  // Q8_0
        9 => (32, 4 + 4 + 32),              // Q8_1
        10 => (256, 2 + 2 + 16 + 64),       // Q2_K
        11 => (256, 2 + 64 + 32 + 12),      // Q3_K
        12 => (256, 2 + 2 + 128 + 12),      // Q4_K
        13 => (256, 2 + 2 + 128 + 32 + 12), // Q5_K
        14 => (256, 2 + 128 + 64 + 16),     // Q6_K
        15 => (256, 4 + 256 + 32),          // Q8_K
        16 => (256, 2 + 64),                // IQ2_XXS
        17 => (256, 2 + 64 + 8),            // IQ2_XS
        18 => (256, 2 + 64 + 32),           // IQ3_XXS
        19 => (256, 2 + 32 + 16),           // IQ1_S
        20 => (32, 2 + 16),                 // IQ4_NL
        21 => (256, 2 + 64 + 32 + 8 + 4),   // IQ3_S
        22 => (256, 2 + 64 + 16),           // IQ2_S
        23 => (256, 2 + 2 + 128 + 4),       // IQ4_XS
        24 => (1, 1),                       // I8
        25 => (1, 2),                       // I16
        26 => (1, 4),                       // I32
        27 | 28 => (1, 8),                  // I64, F64
        29 => (256, 32 + 16 + 8),           // IQ1_M
        30 => (1, 2),                       // BF16
        31..=33 | 36..=38 => (32, 2 + 16),  // Q4_0 and IQ4_NL, repacked
        34 => (256, 2 + 4 * 13),            // TQ1_0
        35 => (256, 2 + 64),                // TQ2_0
        39 => (32, 1 + 16),                 // MXFP4
        40 => (64, 4 + 32),                 // NVFP4
        41 => (128, 2 + 16),                // Q1_0
        42 => (64, 2 + 16),                 // Q2_0
        _ => return None,
    };
    Some(Block { elements, bytes })
}

/// Bytes of a tensor whose rows have `row` elements.
pub fn tensor_bytes(block: Block, row: u64, elements: u64) -> Option<u64> {
    if !row.is_multiple_of(block.elements) {
        return None;
    }
    (elements / block.elements).checked_mul(block.bytes)
}

/// Bytes of 256 numbers in a format, by its name in llama.cpp's options.
pub fn bytes_of_256(name: &str) -> Option<u64> {
    let number = match name.to_ascii_lowercase().as_str() {
        "f32" => 0,
        "f16" => 1,
        "bf16" => 30,
        "q8_0" => 8,
        "q4_0" => 2,
        "q4_1" => 3,
        "iq4_nl" => 20,
        "q5_0" => 6,
        "q5_1" => 7,
        _ => return None,
    };
    let block = block(number)?;
    Some(256 / block.elements * block.bytes)
}
