//! A stand-in for NVIDIA's management library, for tests: what its GPUs hold is read from a text
//! file at each call. One file without dependencies, built with
//! `rustc --edition 2024 --crate-type cdylib`. The state file is named by `FAKE_NVML_STATE`, when
//! the library runs or else when it is built. It never touches a real GPU.
//!
//! ```text
//! gpu total=85899345920 reserved=0 used=1000 utilisation=7 temperature=40
//! gpu total=85899345920 used=0 lost            its memory cannot be read
//! gpu total=85899345920 used=0 nolists         it refuses the lists of processes
//! process gpu=0 pid=12 bytes=1000              without bytes=: not available
//! process gpu=0 pid=13 bytes=500 graphics
//! ```

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

const SUCCESS: c_int = 0;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;
const UNINITIALIZED: c_int = 1;
const GPU_IS_LOST: c_int = 15;

/// As in NVIDIA's header: an index, never followed.
type Device = *mut c_void;

#[repr(C)]
pub struct Memory {
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

struct Line(Vec<String>);

impl Line {
    fn figure(&self, name: &str) -> Option<u64> {
        self.0
            .iter()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
    }

    fn says(&self, word: &str) -> bool {
        self.0.iter().any(|own| own == word)
    }
}

fn lines(kind: &str) -> Option<Vec<Line>> {
    let path = std::env::var("FAKE_NVML_STATE")
        .ok()
        .or(option_env!("FAKE_NVML_STATE").map(String::from))?;
    let text = std::fs::read_to_string(path).ok()?;
    let words = text.lines().map(|line| {
        line.split_whitespace()
            .map(String::from)
            .collect::<Vec<_>>()
    });
    Some(
        words
            .filter(|words| words.first().is_some_and(|word| word == kind))
            .map(Line)
            .collect(),
    )
}

fn gpu(device: Device) -> Result<(usize, Line), c_int> {
    let index = (device as usize).checked_sub(1).ok_or(INVALID_ARGUMENT)?;
    let gpus = lines("gpu").ok_or(UNINITIALIZED)?;
    gpus.into_iter()
        .nth(index)
        .map(|line| (index, line))
        .ok_or(INVALID_ARGUMENT)
}

fn uuid_of(index: usize) -> String {
    format!("GPU-00000000-0000-0000-0000-{index:012}")
}

/// Writes the answer and says that all is well, or says what is not.
fn give<T>(to: *mut T, answer: Result<T, c_int>) -> c_int {
    match answer {
        Ok(value) => {
            // SAFETY: NVML's callers pass a pointer to one value that they own.
            unsafe { to.write(value) };
            SUCCESS
        }
        Err(code) => code,
    }
}

fn give_text(to: *mut c_char, room: c_uint, text: &str) -> c_int {
    if text.len() + 1 > room as usize {
        return INSUFFICIENT_SIZE;
    }
    for (at, byte) in text.bytes().chain([0]).enumerate() {
        // SAFETY: the caller's buffer has `room` bytes, more than `at`.
        unsafe { to.add(at).write(byte as c_char) };
    }
    SUCCESS
}

fn give_processes(device: Device, count: *mut c_uint, to: *mut Process, graphics: bool) -> c_int {
    let listed = gpu(device).and_then(|(index, line)| {
        if line.says("nolists") {
            return Err(NOT_SUPPORTED);
        }
        let all = lines("process").ok_or(UNINITIALIZED)?.into_iter();
        let here = |line: &Line| {
            line.figure("gpu") == Some(index as u64) && line.says("graphics") == graphics
        };
        Ok(all.filter(here).collect::<Vec<_>>())
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
pub extern "C" fn nvmlInit_v2() -> c_int {
    if lines("gpu").is_some() {
        SUCCESS
    } else {
        UNINITIALIZED
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_int {
    nvmlInit_v2()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetDriverVersion(to: *mut c_char, room: c_uint) -> c_int {
    give_text(to, room, "999.1")
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCount_v2(to: *mut c_uint) -> c_int {
    give(
        to,
        lines("gpu")
            .map(|gpus| gpus.len() as c_uint)
            .ok_or(UNINITIALIZED),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut Device) -> c_int {
    let device = (index as usize + 1) as Device;
    give(to, gpu(device).map(|_| device))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, to: *mut Device) -> c_int {
    // SAFETY: the caller passes a C string.
    let wanted = unsafe { CStr::from_ptr(uuid) }
        .to_string_lossy()
        .into_owned();
    let gpus = lines("gpu").map_or(0, |gpus| gpus.len());
    let found = (0..gpus).find(|index| uuid_of(*index) == wanted);
    give(
        to,
        found.map(|index| (index + 1) as Device).ok_or(NOT_FOUND),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetName(device: Device, to: *mut c_char, room: c_uint) -> c_int {
    match gpu(device) {
        Ok(_) => give_text(to, room, "Imaginary GPU"),
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUUID(device: Device, to: *mut c_char, room: c_uint) -> c_int {
    match gpu(device) {
        Ok((index, _)) => give_text(to, room, &uuid_of(index)),
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Device, to: *mut Memory) -> c_int {
    let memory = gpu(device).and_then(|(_, line)| {
        if line.says("lost") {
            return Err(GPU_IS_LOST);
        }
        let figure = |name| line.figure(name).unwrap_or(0);
        let (total, reserved, used) = (figure("total"), figure("reserved"), figure("used"));
        Ok(Memory {
            version: 2,
            total,
            reserved,
            free: total.saturating_sub(reserved + used),
            used,
        })
    });
    give(to, memory)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Device,
    count: *mut c_uint,
    to: *mut Process,
) -> c_int {
    give_processes(device, count, to, false)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: Device,
    count: *mut c_uint,
    to: *mut Process,
) -> c_int {
    give_processes(device, count, to, true)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUtilizationRates(device: Device, to: *mut Utilisation) -> c_int {
    let rates = gpu(device).and_then(|(_, line)| line.figure("utilisation").ok_or(NOT_SUPPORTED));
    give(
        to,
        rates.map(|gpu| Utilisation {
            gpu: gpu as c_uint,
            memory: 0,
        }),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTemperature(
    device: Device,
    _sensor: c_uint,
    to: *mut c_uint,
) -> c_int {
    let celsius = gpu(device).and_then(|(_, line)| line.figure("temperature").ok_or(NOT_SUPPORTED));
    give(to, celsius.map(|celsius| celsius as c_uint))
}
