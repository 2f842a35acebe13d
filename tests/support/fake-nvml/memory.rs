//! Memory and processes of a GPU, and its other changing values: utilisation, temperature, power, memory errors.

use std::ffi::{c_int, c_uint, c_ulonglong};

use crate::state::Line;
use crate::{Device, INSUFFICIENT_SIZE, NOT_SUPPORTED, SUCCESS, figure, give, gpu};

#[repr(C)]
pub struct MemoryOne {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
pub struct MemoryTwo {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
pub struct Process {
    pid: c_uint,
    used: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[repr(C)]
pub struct Utilisation {
    gpu: c_uint,
    memory: c_uint,
}

fn memory(name: &str, device: Device) -> Result<MemoryTwo, c_int> {
    let (index, state, line) = gpu(name, device)?;
    let figure = |name| line.figure(name).unwrap_or(0);
    Ok(MemoryTwo {
        version: 2,
        total: figure("total"),
        reserved: figure("reserved"),
        free: state.free(index),
        used: state.used(index),
    })
}

/// The first version counts memory reserved by the driver as used.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo(device: Device, to: *mut MemoryOne) -> c_int {
    let memory = memory("nvmlDeviceGetMemoryInfo", device);
    give(
        to,
        memory.map(|memory| MemoryOne {
            total: memory.total,
            free: memory.free,
            used: memory.used + memory.reserved,
        }),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Device, to: *mut MemoryTwo) -> c_int {
    give(to, memory("nvmlDeviceGetMemoryInfo_v2", device))
}

/// Memory of an ended process that is not yet free is on no list, unless the file specifies it.
fn is_listed(line: &Line, list: &str) -> bool {
    let own = ["graphics", "mps"].into_iter().find(|list| line.says(list));
    own.unwrap_or("compute") == list && (line.figure("dead").is_none() || line.says("listed"))
}

fn give_processes(
    name: &str,
    device: Device,
    count: *mut c_uint,
    to: *mut Process,
    list: &str,
) -> c_int {
    let listed = gpu(name, device).and_then(|(index, state, line)| {
        if line.says("nolists") {
            return Err(NOT_SUPPORTED);
        }
        let here = state.processes(index).cloned();
        let here = here.filter(|line| is_listed(line, list));
        Ok(here.collect::<Vec<Line>>())
    });
    let listed = match listed {
        Ok(listed) => listed,
        Err(code) => return code,
    };
    // SAFETY: the caller passes its room in `count` and an array of that many, or none.
    let room = unsafe { count.replace(listed.len() as c_uint) } as usize;
    if listed.len() > room {
        return INSUFFICIENT_SIZE;
    }
    for (at, line) in listed.iter().enumerate() {
        let process = Process {
            pid: line.figure("pid").unwrap_or(0) as c_uint,
            used: line.figure("bytes").unwrap_or(u64::MAX),
            gpu_instance: c_uint::MAX,
            compute_instance: c_uint::MAX,
        };
        // SAFETY: `at` is below the room that the caller gave.
        unsafe { to.add(at).write(process) };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Device,
    count: *mut c_uint,
    to: *mut Process,
) -> c_int {
    let name = "nvmlDeviceGetComputeRunningProcesses_v3";
    give_processes(name, device, count, to, "compute")
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: Device,
    count: *mut c_uint,
    to: *mut Process,
) -> c_int {
    let name = "nvmlDeviceGetGraphicsRunningProcesses_v3";
    give_processes(name, device, count, to, "graphics")
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    device: Device,
    count: *mut c_uint,
    to: *mut Process,
) -> c_int {
    let name = "nvmlDeviceGetMPSComputeRunningProcesses_v3";
    give_processes(name, device, count, to, "mps")
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUtilizationRates(device: Device, to: *mut Utilisation) -> c_int {
    let rates = figure("nvmlDeviceGetUtilizationRates", device, "utilisation");
    give(to, rates.map(|gpu| Utilisation { gpu, memory: 0 }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTemperature(
    device: Device,
    _sensor: c_uint,
    to: *mut c_uint,
) -> c_int {
    give(
        to,
        figure("nvmlDeviceGetTemperature", device, "temperature"),
    )
}

/// In milliwatts; the file contains watts.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetPowerUsage(device: Device, to: *mut c_uint) -> c_int {
    let watts = figure("nvmlDeviceGetPowerUsage", device, "power");
    give(to, watts.map(|watts| watts * 1000))
}

/// In millijoules; the file contains joules.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTotalEnergyConsumption(
    device: Device,
    to: *mut c_ulonglong,
) -> c_int {
    let joules = figure("nvmlDeviceGetTotalEnergyConsumption", device, "energy");
    give(to, joules.map(|joules| c_ulonglong::from(joules) * 1000))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetEccMode(
    device: Device,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> c_int {
    let mode = figure("nvmlDeviceGetEccMode", device, "ecc").map(|_| 1);
    give(pending, mode);
    give(current, mode)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: Device,
    _error: c_uint,
    _counter: c_uint,
    to: *mut u64,
) -> c_int {
    let errors = figure("nvmlDeviceGetTotalEccErrors", device, "ecc");
    give(to, errors.map(u64::from))
}
