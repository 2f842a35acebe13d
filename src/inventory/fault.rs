//! What can be wrong with the devices, in words that name the setting to change.

use crate::pool::Bytes;

#[derive(Debug, thiserror::Error)]
pub enum InventoryFault {
    #[error(
        "cannot load NVML ({tried}): {source}; install the NVIDIA driver, name the library in MODEL_POOL_NVML_LIBRARY, or set inventory.provider to auto, host or fixed"
    )]
    NoLibrary {
        tried: String,
        source: nvml_wrapper::error::NvmlError,
    },

    #[error(
        "NVML does not give the number of GPUs: {source}; see whether nvidia-smi works, or set inventory.provider to auto, host or fixed"
    )]
    Count {
        source: nvml_wrapper::error::NvmlError,
    },

    #[error("NVML knows no GPU whose memory can be read{}; see nvidia-smi, or set inventory.provider to auto, host or fixed", last(.last_words))]
    NoGpu { last_words: Option<String> },

    #[error("no device could be read: {last_words}")]
    Unreadable { last_words: String },

    #[error("inventory.host_memory is 0; set the memory that the pool may use, for example 8GiB")]
    NoHostMemory,

    #[error(
        "inventory.provider is fixed and inventory.devices is empty; write at least one device with name, memory and node"
    )]
    NoFixedDevices,

    #[error("inventory.devices[{index}] ({name:?}): {problem}")]
    FixedDevice {
        index: usize,
        name: String,
        problem: &'static str,
    },

    #[error(
        "inventory.headroom of {headroom} leaves nothing of device {device}, which has {total}; make it smaller"
    )]
    Headroom {
        headroom: Bytes,
        device: String,
        total: Bytes,
    },
}

fn last(words: &Option<String>) -> String {
    words
        .as_ref()
        .map(|words| format!(" (it says: {words})"))
        .unwrap_or_default()
}
