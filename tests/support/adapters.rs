//! Small LoRA adapters for the demo models, in PEFT's format.

use std::fs;
use std::path::Path;

/// The contents of `adapter_config.json`.
pub fn config(base: &str, rank: usize) -> String {
    format!(
        "{{\"peft_type\": \"LORA\", \"base_model_name_or_path\": {base:?}, \"r\": {rank}, \"lora_alpha\": {}, \"bias\": \"none\", \"target_modules\": [\"q_proj\", \"v_proj\", \"down_proj\"]}}",
        16 * rank
    )
}

/// Sizes of a base model: layers, hidden size, key/value size, feed-forward size.
#[derive(Clone, Copy)]
pub struct Sizes(pub usize, pub usize, pub usize, pub usize);

/// Sizes of `tiny-chat`.
pub const TINY_CHAT: Sizes = Sizes(3, 64, 32, 192);
/// Sizes of `tiny-guide`.
pub const TINY_GUIDE: Sizes = Sizes(4, 128, 64, 352);

/// Writes an adapter for `tiny-chat` with weights derived from the seed.
pub fn write(folder: &Path, base: &str, rank: usize, seed: u64) {
    write_sized(folder, base, TINY_CHAT, rank, seed);
}

/// Writes an adapter for a base model of these sizes.
pub fn write_sized(folder: &Path, base: &str, sizes: Sizes, rank: usize, seed: u64) {
    fs::create_dir_all(folder).expect("a folder");
    fs::write(folder.join("adapter_config.json"), config(base, rank)).expect("written");
    let weights = folder.join("adapter_model.safetensors");
    // Renames the file into place, as users who copy adapters should.
    let next = folder.join("next");
    fs::write(&next, tensors_sized(sizes, rank, seed)).expect("written");
    fs::rename(&next, &weights).expect("renamed");
}

/// The contents of `adapter_model.safetensors` for `tiny-chat`.
pub fn tensors(rank: usize, seed: u64) -> Vec<u8> {
    tensors_sized(TINY_CHAT, rank, seed)
}

fn tensors_sized(sizes: Sizes, rank: usize, seed: u64) -> Vec<u8> {
    let Sizes(layers, width, key_value, feed_forward) = sizes;
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1_u32 << 24) as f32 - 0.5
    };
    let (mut header, mut data) = (Vec::new(), Vec::<u8>::new());
    for layer in 0..layers {
        for (module, rows, columns) in [
            ("self_attn.q_proj", width, width),
            ("self_attn.v_proj", key_value, width),
            ("mlp.down_proj", width, feed_forward),
        ] {
            for (half, shape) in [("A", [rank, columns]), ("B", [rows, rank])] {
                let begin = data.len();
                for _ in 0..shape[0] * shape[1] {
                    data.extend((next() * 0.4).to_le_bytes());
                }
                header.push(format!(
                    "\"base_model.model.model.layers.{layer}.{module}.lora_{half}.weight\": {{\"dtype\": \"F32\", \"shape\": {shape:?}, \"data_offsets\": [{begin}, {}]}}",
                    data.len()
                ));
            }
        }
    }
    let header = format!("{{{}}}", header.join(", "));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    file
}
