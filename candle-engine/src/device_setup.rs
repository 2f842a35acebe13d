//! Opens the devices, queries their free memory, and divides the model's layers among them.

use crate::batch::page_count;
use crate::error::EngineError;
use crate::files::ModelFiles;
use crate::model::{Placement, Room, Sizes, divide};
use crate::options::{DeviceChoice, EngineOptions};
use candle_core::Device;

/// Rows of a step, for estimating working memory.
const STEP_ROWS: usize = 1024;
/// GPU memory reserved for the driver and its libraries, and for fragmentation of the allocator.
const GPU_RESERVE_BYTES: u64 = 1 << 30;

/// Opens the devices in `options` and divides the model's layers among them.
///
/// # Errors
/// If a device cannot be opened, or the model does not fit, with the numbers.
pub(crate) fn place(options: &EngineOptions, files: &ModelFiles) -> Result<Placement, EngineError> {
    let spec = files.spec()?;
    let devices = options
        .devices
        .iter()
        .map(|choice| choice.open().map(|(device, _)| device))
        .collect::<Result<Vec<_>, _>>()?;
    if let [device] = devices.as_slice() {
        return Ok(Placement::on(device, spec.blocks.len()));
    }
    let rooms = options
        .devices
        .iter()
        .zip(&devices)
        .map(|(choice, device)| room(*choice, device, options.device_bytes))
        .collect::<Result<Vec<_>, _>>()?;
    let sizes = Sizes::new(spec, files, page_count(options), STEP_ROWS)?;
    let division =
        divide(&sizes, &rooms).map_err(|problem| EngineError::option("devices", problem))?;
    tracing::info!(explanation = %division.explanation, "layers are divided");
    Placement::by(&division, &devices).ok_or_else(|| {
        EngineError::option("devices", "the division names a device that does not exist")
    })
}

/// `device_bytes` limits the memory used on a GPU.
fn room(
    choice: DeviceChoice,
    device: &Device,
    device_bytes: Option<u64>,
) -> Result<Room, EngineError> {
    let (name, free_bytes) = match choice {
        DeviceChoice::Cpu => ("CPU".to_owned(), available_bytes().unwrap_or(u64::MAX)),
        DeviceChoice::Cuda(ordinal) | DeviceChoice::Metal(ordinal) => {
            let free = free_gpu_bytes(device)?;
            (
                format!("GPU {ordinal}"),
                free.min(device_bytes.unwrap_or(u64::MAX))
                    .saturating_sub(GPU_RESERVE_BYTES),
            )
        }
    };
    Ok(Room {
        name,
        free_bytes,
        is_cpu: device.is_cpu(),
    })
}

/// Available host memory, from `/proc/meminfo`.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(feature = "cuda")]
fn free_gpu_bytes(device: &Device) -> Result<u64, EngineError> {
    use candle_core::cuda_backend::cudarc::driver::result::mem_get_info;
    let failed = |error: String| {
        EngineError::option(
            "devices",
            format!("cannot read a GPU's free memory ({error})"),
        )
    };
    let cuda = device
        .as_cuda_device()
        .map_err(|error| failed(error.to_string()))?;
    let bound = cuda.cuda_stream().context().bind_to_thread();
    bound.map_err(|error| failed(error.to_string()))?;
    let (free, _) = mem_get_info().map_err(|error| failed(error.to_string()))?;
    Ok(free as u64)
}

/// Metal uses the host's memory.
#[cfg(not(feature = "cuda"))]
fn free_gpu_bytes(_device: &Device) -> Result<u64, EngineError> {
    Ok(available_bytes().unwrap_or(u64::MAX))
}
