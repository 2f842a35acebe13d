//! Errors of devices, with messages that name the setting to change or the repair.

use std::time::Duration;

use nvml_wrapper::error::NvmlError;

use super::DeviceInfo;
use super::command_run::CommandError;
use super::sysfs::FileError;
use pool::Bytes;

#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    #[error(
        "cannot load NVML ({tried}): {source}; install the NVIDIA driver, name the library in MODEL_POOL_NVML_LIBRARY, or set inventory.provider to auto, host or fixed"
    )]
    NoLibrary { tried: String, source: NvmlError },

    #[error(
        "NVML does not report the number of GPUs: {source}; see whether nvidia-smi works, or set inventory.provider to auto, host or fixed"
    )]
    Count { source: NvmlError },

    #[error("NVML found no GPU whose memory it can read{}; see nvidia-smi, or set inventory.provider to auto, host or fixed", last(.last_error))]
    NoGpu { last_error: Option<String> },

    #[error(
        "{what} has not answered for {seconds} s; see whether {tool} hangs too, then reset the GPU or restart the machine, or set inventory.provider to host or fixed"
    )]
    Hangs {
        what: &'static str,
        tool: &'static str,
        seconds: u64,
    },

    #[error("found no {maker} GPU that the pool can use{}; see {tool}, or set inventory.provider to auto, host or fixed", last(.last_error))]
    NoDevice {
        maker: &'static str,
        tool: &'static str,
        last_error: Option<String>,
    },

    #[error("inventory.command: {0}")]
    Command(#[from] CommandError),

    #[error("cannot start a thread to query devices; raise the limit of threads of this user")]
    Thread { source: std::io::Error },

    #[error(
        "inventory.devices[{index}] names {wanted}, and {problem}; there are {known}; correct the entry or remove it"
    )]
    NoSuchGpu {
        index: usize,
        wanted: String,
        problem: String,
        known: String,
    },

    #[error(
        "{variable} is `{value}`: `{name}` is wrong, because {problem}; there are {known}; correct the variable, or list the devices in inventory.devices with inventory.provider {provider}"
    )]
    NotVisible {
        variable: &'static str,
        value: Box<str>,
        name: Box<str>,
        problem: String,
        known: String,
        provider: &'static str,
    },

    #[error(
        "{variable} is `{value}`, which names no GPU, and inventory.provider is {provider}; remove the variable, request a node with GPUs, or set the provider to auto"
    )]
    NoneVisible {
        variable: &'static str,
        value: String,
        provider: &'static str,
    },

    #[error(
        "inventory.devices[{index}] names {wanted}, which inventory.devices[{earlier}] names already; remove either"
    )]
    NamedTwice {
        index: usize,
        earlier: usize,
        wanted: String,
    },

    #[error(
        "inventory.devices[{index}].memory is {memory}, and {wanted} has {installed}; write less, or leave memory out to use all of it"
    )]
    MoreThanThere {
        index: usize,
        wanted: String,
        memory: Bytes,
        installed: Bytes,
    },

    #[error("no device could be read: {last_error}")]
    Unreadable { last_error: String },

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
        "inventory.headroom of {headroom} leaves no memory on device {device}, which has {total}; make it smaller"
    )]
    MemoryPart {
        headroom: Bytes,
        device: String,
        total: Bytes,
    },
}

impl InventoryError {
    /// The reason no GPU was found, without advice: for a machine where host memory is used instead.
    pub(super) fn why_no_gpu(&self) -> String {
        match self {
            InventoryError::NoLibrary { tried, source } => {
                format!("cannot load NVML ({tried}): {source}")
            }
            InventoryError::Count { source } => {
                format!("NVML does not report the number of GPUs: {source}")
            }
            InventoryError::NoGpu { last_error } => {
                format!(
                    "NVML found no GPU whose memory it can read{}",
                    last(last_error)
                )
            }
            InventoryError::NoneVisible {
                variable, value, ..
            } => {
                format!("{variable} is `{value}`, which names no GPU")
            }
            InventoryError::NoDevice {
                maker, last_error, ..
            } => {
                format!("found no {maker} GPU{}", last(last_error))
            }
            other => other.to_string(),
        }
    }
}

/// The reason one device could not be read this time. Its memory use is then unknown, not zero.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error(
        "{device} fell off the bus ({source}); nothing runs there until the machine is restarted, and if it happens again replace the GPU or its slot"
    )]
    Lost { device: String, source: NvmlError },

    #[error(
        "the MIG slice {device} is gone ({source}): its GPU was partitioned again; restart the pool to use the new slices"
    )]
    SliceGone { device: String, source: NvmlError },

    #[error(
        "{device} was switched to MIG mode, in which a GPU is not one device; restart the pool to use its slices"
    )]
    NowInMigMode { device: String },

    #[error(
        "{device} is gone ({source}); nothing runs there until its driver shows it again, see the kernel's log (dmesg)"
    )]
    Gone { device: String, source: FileError },

    #[error("{device} is being reset ({source}); it is read again when its driver is done")]
    Resetting { device: String, source: FileError },

    #[error("the memory use of {device} is unknown: {source}")]
    File { device: String, source: FileError },

    #[error("the memory use of {device} is unknown: {why}")]
    OfProgram { device: String, why: String },

    #[error("the memory use of {device} is unknown: inventory.command: {source}")]
    Command {
        device: String,
        source: CommandError,
    },

    #[error(
        "{device} must be reset ({source}): stop what runs on it, then `nvidia-smi --gpu-reset`"
    )]
    ResetRequired { device: String, source: NvmlError },

    #[error(
        "{device} has not answered for {} s and is not queried again until it does; see whether nvidia-smi hangs too",
        .since.as_secs_f64()
    )]
    Stale { device: String, since: Duration },

    #[error(
        "the NVIDIA driver is away ({source}); {device} is queried again when it is back; see whether nvidia-smi works"
    )]
    DriverAway { device: String, source: NvmlError },

    #[error(
        "NVML does not report the memory use of {device}: {source}; see nvidia-smi -q for this GPU"
    )]
    Refused { device: String, source: NvmlError },

    #[error("cannot start a thread to query {device}; raise the limit of threads of this user")]
    Thread {
        device: String,
        source: std::io::Error,
    },
}

impl DeviceError {
    pub(super) fn new(info: &DeviceInfo, source: NvmlError) -> DeviceError {
        let device = info.name.clone();
        match source {
            NvmlError::NotFound if info.is_slice() => DeviceError::SliceGone { device, source },
            // Not found: the driver was loaded again, and this GPU is gone.
            NvmlError::GpuLost | NvmlError::NotFound => DeviceError::Lost { device, source },
            NvmlError::ResetRequired => DeviceError::ResetRequired { device, source },
            _ if driver_is_gone(&source) => DeviceError::DriverAway { device, source },
            _ => DeviceError::Refused { device, source },
        }
    }

    pub(super) fn of_file(info: &DeviceInfo, source: FileError) -> DeviceError {
        let device = info.name.clone();
        if source.is_gone() {
            DeviceError::Gone { device, source }
        } else {
            DeviceError::File { device, source }
        }
    }

    /// Returns true if the device is gone, with everything that ran on it.
    pub fn is_lost(&self) -> bool {
        matches!(
            self,
            DeviceError::Lost { .. } | DeviceError::SliceGone { .. } | DeviceError::Gone { .. }
        )
    }
}

/// Returns true if the library must be loaded and initialised again.
pub(super) fn driver_is_gone(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch
    )
}

fn last(words: &Option<String>) -> String {
    words
        .as_ref()
        .map(|words| format!(" (it says: {words})"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_for_a_host_fallback_does_not_advise_another_provider() {
        let faults = [
            InventoryError::NoLibrary {
                tried: "libnvidia-ml.so.1".to_owned(),
                source: NvmlError::DriverNotLoaded,
            },
            InventoryError::Count {
                source: NvmlError::Unknown,
            },
            InventoryError::NoGpu { last_error: None },
        ];
        for error in faults {
            let (why, all) = (error.why_no_gpu(), error.to_string());
            assert!(all.starts_with(&why), "{why}: {all}");
            assert!(!why.contains("inventory.provider"), "{why}");
        }
    }
}
