//! GPUs in MIG mode. A slice is a device with its own memory and processes, which only its GPU and its UUID lead to.

use std::ffi::{c_int, c_uint};

use crate::state::{Line, State};
use crate::{Device, INVALID_ARGUMENT, NOT_FOUND, give, gpu};

/// Places for slices on each GPU, as on an A100.
const PLACES: c_uint = 7;

pub fn is_slice(line: &Line) -> bool {
    line.figure("mig_of").is_some()
}

/// The slices of a GPU, as positions in the file.
fn slices(state: &State, of: usize) -> Vec<usize> {
    let lines = state.all("gpu").enumerate();
    let own = lines.filter(|(_, line)| line.figure("mig_of") == Some(of as u64));
    own.map(|(at, _)| at).collect()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMigMode(
    device: Device,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> c_int {
    let mode = gpu("nvmlDeviceGetMigMode", device).map(|(index, state, line)| {
        c_uint::from(line.says("mig") || !slices(&state, index).is_empty())
    });
    give(pending, mode);
    give(current, mode)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: Device, to: *mut c_uint) -> c_int {
    let count = gpu("nvmlDeviceGetMaxMigDeviceCount", device).map(|_| PLACES);
    give(to, count)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: Device,
    index: c_uint,
    to: *mut Device,
) -> c_int {
    let found = gpu("nvmlDeviceGetMigDeviceHandleByIndex", device);
    let slice = found.and_then(|(of, state, _)| {
        let slices = slices(&state, of);
        let at = slices.get(index as usize).ok_or(NOT_FOUND)?;
        Ok((at + 1) as Device)
    });
    give(to, slice)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceIsMigDeviceHandle(device: Device, to: *mut c_uint) -> c_int {
    let is_slice = gpu("nvmlDeviceIsMigDeviceHandle", device)
        .map(|(_, _, line)| c_uint::from(is_slice(&line)));
    give(to, is_slice)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    device: Device,
    to: *mut Device,
) -> c_int {
    let found = gpu("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", device);
    let of = found.and_then(|(_, _, line)| line.figure("mig_of").ok_or(INVALID_ARGUMENT));
    give(to, of.map(|of| (of as usize + 1) as Device))
}
