//! The GPUs that the environment leaves to this process: `CUDA_VISIBLE_DEVICES`, in the format of the CUDA programming guide. Slurm,
//! Ray and administrators of shared machines lend some of a machine's GPUs through it, and may lend the others to other jobs.
//! Indices count in PCI order, as in `nvidia-smi`.

use super::{DeviceInfo, InventoryError};
use pool::DeviceId;

/// The variable's name.
pub const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// The parts of the variable that name a GPU. As in CUDA, the list ends at the first part that cannot be a name, such as `-1`.
pub(super) fn names(value: &str) -> Vec<&str> {
    let is_name = |name: &&str| name.parse::<u32>().is_ok() || name.contains('-') && *name != "-1";
    value
        .split(',')
        .map(str::trim)
        .take_while(is_name)
        .collect()
}

/// The named GPUs in the order of the variable, renumbered. A UUID may be shortened, as in CUDA.
///
/// # Errors
/// [`InventoryError::NotVisible`] if a name matches no GPU, several GPUs, or the GPU of an earlier name.
pub(super) fn visible(
    found: &[DeviceInfo],
    value: &str,
) -> Result<Vec<DeviceInfo>, InventoryError> {
    let mut chosen: Vec<DeviceInfo> = Vec::new();
    for name in names(value) {
        let wrong = |problem| InventoryError::NotVisible {
            value: value.to_owned(),
            name: name.to_owned(),
            problem,
            known: super::choice::list(found),
        };
        let matches = |gpu: &&DeviceInfo| match name.parse::<u32>() {
            Ok(index) => gpu.index == index,
            Err(_) => gpu.uuid.as_ref().is_some_and(|uuid| uuid.starts_with(name)),
        };
        let mut matching = found.iter().filter(matches);
        let gpu = match (matching.next(), matching.next()) {
            (Some(gpu), None) => gpu,
            (Some(_), Some(_)) => return Err(wrong("more than one GPU begins with this UUID")),
            (None, _) if name.starts_with("MIG-") => {
                return Err(wrong("the pool does not use single MIG slices"));
            }
            (None, _) => return Err(wrong("no such GPU exists")),
        };
        if chosen.iter().any(|other| other.index == gpu.index) {
            return Err(wrong("it names this GPU twice"));
        }
        let id = DeviceId(u32::try_from(chosen.len()).unwrap_or(u32::MAX));
        chosen.push(DeviceInfo { id, ..gpu.clone() });
    }
    Ok(chosen)
}

/// The GPUs in `found` that are not in `chosen`, as `index 0, 2`; `None` if all are.
pub(super) fn left_out(found: &[DeviceInfo], chosen: &[DeviceInfo]) -> Option<String> {
    let is_chosen = |gpu: &&DeviceInfo| chosen.iter().any(|other| other.index == gpu.index);
    let others = found.iter().filter(|gpu| !is_chosen(gpu));
    let indices: Vec<String> = others.map(|gpu| gpu.index.to_string()).collect();
    (!indices.is_empty()).then(|| format!("index {}", indices.join(", ")))
}
