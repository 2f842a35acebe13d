//! A stand-in for NVIDIA's management library in tests. It reads GPUs and their memory from a text file at each call; `state.rs`
//! describes the format. Built without cargo by `rustc --edition 2024 --crate-type cdylib`. It never accesses a real GPU.
//!
//! The file is given by the environment variable `MODEL_POOL_FAKE_NVML`, or `state` in the library's folder. A program can
//! therefore load several machines, each from a separate copy.
//!
//! This file contains the driver and the GPUs; `memory.rs` their memory, `links.rs` their connections, `events.rs` their events, `mig.rs`
//! their slices.

mod events;
mod links;
mod memory;
mod mig;
mod state;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use state::{Line, State};

pub const SUCCESS: c_int = 0;
pub const UNINITIALIZED: c_int = 1;
pub const INVALID_ARGUMENT: c_int = 2;
pub const NOT_SUPPORTED: c_int = 3;
pub const NOT_FOUND: c_int = 6;
pub const INSUFFICIENT_SIZE: c_int = 7;
pub const DRIVER_NOT_LOADED: c_int = 9;
pub const TIMEOUT: c_int = 10;
pub const GPU_IS_LOST: c_int = 15;

/// As in NVIDIA's header: an index plus one, never dereferenced.
pub type Device = *mut c_void;

/// Number of initialisations, and the driver's generation at the first one.
struct Driver {
    users: u32,
    generation: u64,
}

static DRIVER: Mutex<Driver> = Mutex::new(Driver {
    users: 0,
    generation: 0,
});

/// The poll interval of a call that waits for a change of the file.
pub const GLANCE: Duration = Duration::from_millis(5);

#[repr(C)]
struct Place {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const c_void, place: *mut Place) -> c_int;
}

pub fn state_file() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("MODEL_POOL_FAKE_NVML") {
        return Some(path.into());
    }
    let mut place = Place {
        file: std::ptr::null(),
        base: std::ptr::null_mut(),
        symbol: std::ptr::null(),
        address: std::ptr::null_mut(),
    };
    let own: extern "C" fn() -> c_int = nvmlInit_v2;
    // SAFETY: the address lies in this library, and the place outlives the call.
    let found = unsafe { dladdr(own as *const c_void, &mut place) };
    if found == 0 || place.file.is_null() {
        return None;
    }
    // SAFETY: dladdr gives the name of a loaded library, which lives as long as it is loaded.
    let file = unsafe { CStr::from_ptr(place.file) };
    let file = Path::new(file.to_str().ok()?);
    Some(file.parent()?.join("state"))
}

fn read() -> Result<State, c_int> {
    let path = state_file().ok_or(UNINITIALIZED)?;
    State::read(&path).map_err(|_| UNINITIALIZED)
}

/// The state for a call, or its configured failure after its configured delay. A delay ends early if its line is removed from the
/// file.
fn called(name: &str, gpu: Option<usize>) -> Result<State, c_int> {
    let began = Instant::now();
    loop {
        let state = read()?;
        let meant = |line: &&Line| {
            let (call, of) = (line.text("name").unwrap_or("*"), line.figure("gpu"));
            (call == "*" || call == name) && (of.is_none() || of == gpu.map(|gpu| gpu as u64))
        };
        let Some(line) = state.all("call").find(meant) else {
            return Ok(state);
        };
        let hang = Duration::from_millis(line.figure("hang").unwrap_or(0));
        if began.elapsed() >= hang {
            return match line.figure("code") {
                Some(code) => Err(code as c_int),
                None => Ok(state),
            };
        }
        std::thread::sleep(GLANCE);
    }
}

/// As `called`, and fails if the driver has been restarted since initialisation.
pub fn enter(name: &str, gpu: Option<usize>) -> Result<State, c_int> {
    let state = called(name, gpu)?;
    let driver = DRIVER.lock().map_err(|_| UNINITIALIZED)?;
    let is_down = state.all("driver").any(|line| line.says("down"));
    if is_down || driver.users == 0 || driver.generation != generation(&state) {
        return Err(UNINITIALIZED);
    }
    Ok(state)
}

/// As `enter`, for an existing GPU.
pub fn gpu(name: &str, device: Device) -> Result<(usize, State, Line), c_int> {
    let index = (device as usize).checked_sub(1).ok_or(INVALID_ARGUMENT)?;
    let state = enter(name, Some(index))?;
    let line = state.gpu(index).cloned().ok_or(INVALID_ARGUMENT)?;
    if line.says("lost") {
        return Err(GPU_IS_LOST);
    }
    Ok((index, state, line))
}

fn generation(state: &State) -> u64 {
    let mut lines = state.all("driver");
    lines
        .find_map(|line| line.figure("generation"))
        .unwrap_or(1)
}

/// Writes the value and returns success, or returns the error.
pub fn give<T>(to: *mut T, response: Result<T, c_int>) -> c_int {
    match response {
        Ok(value) => {
            // SAFETY: NVML's callers pass a pointer to one value that they own.
            unsafe { to.write(value) };
            SUCCESS
        }
        Err(code) => code,
    }
}

fn give_text(to: *mut c_char, room: c_uint, text: Result<String, c_int>) -> c_int {
    let text = match text {
        Ok(text) => text,
        Err(code) => return code,
    };
    if text.len() + 1 > room as usize {
        return INSUFFICIENT_SIZE;
    }
    for (at, byte) in text.bytes().chain([0]).enumerate() {
        // SAFETY: the caller's buffer has `room` bytes, more than `at`.
        unsafe { to.add(at).write(byte as c_char) };
    }
    SUCCESS
}

/// A numeric property of a GPU; not supported unless the file contains it.
pub fn figure(name: &str, device: Device, word: &str) -> Result<c_uint, c_int> {
    let (_, _, line) = gpu(name, device)?;
    line.figure(word)
        .map(|figure| figure as c_uint)
        .ok_or(NOT_SUPPORTED)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_int {
    let state = match called("nvmlInit_v2", None) {
        Ok(state) => state,
        Err(code) => return code,
    };
    if state.all("driver").any(|line| line.says("down")) {
        return DRIVER_NOT_LOADED;
    }
    let Ok(mut driver) = DRIVER.lock() else {
        return UNINITIALIZED;
    };
    if driver.users == 0 {
        driver.generation = generation(&state);
    }
    driver.users += 1;
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_int {
    nvmlInit_v2()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_int {
    match DRIVER.lock() {
        Ok(mut driver) if driver.users > 0 => {
            driver.users -= 1;
            SUCCESS
        }
        _ => UNINITIALIZED,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetDriverVersion(to: *mut c_char, room: c_uint) -> c_int {
    let version = enter("nvmlSystemGetDriverVersion", None).map(|state| {
        let version = state.all("driver").find_map(|line| line.text("version"));
        version.unwrap_or("999.1").to_owned()
    });
    give_text(to, room, version)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCount_v2(to: *mut c_uint) -> c_int {
    let state = enter("nvmlDeviceGetCount_v2", None);
    let cards = |state: State| state.all("gpu").filter(|line| !mig::is_slice(line)).count();
    give(to, state.map(|state| cards(state) as c_uint))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut Device) -> c_int {
    let device = (index as usize + 1) as Device;
    give(
        to,
        gpu("nvmlDeviceGetHandleByIndex_v2", device).map(|_| device),
    )
}

/// The first GPU for which `is_it` is true.
fn handle(name: &str, is_it: impl Fn(&State, usize) -> bool) -> Result<Device, c_int> {
    let state = enter(name, None)?;
    let count = state.all("gpu").count();
    let found = (0..count).find(|index| is_it(&state, *index));
    let device = (found.ok_or(NOT_FOUND)? + 1) as Device;
    gpu(name, device).map(|_| device)
}

fn c_text(text: *const c_char) -> String {
    // SAFETY: NVML's callers pass a C string.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, to: *mut Device) -> c_int {
    let wanted = c_text(uuid);
    let is_it = |state: &State, index| state.uuid(index) == wanted;
    give(to, handle("nvmlDeviceGetHandleByUUID", is_it))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(pci: *const c_char, to: *mut Device) -> c_int {
    let wanted = c_text(pci);
    let is_it = |state: &State, index| state.pci(index).eq_ignore_ascii_case(&wanted);
    give(to, handle("nvmlDeviceGetHandleByPciBusId_v2", is_it))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetIndex(device: Device, to: *mut c_uint) -> c_int {
    let index = gpu("nvmlDeviceGetIndex", device).map(|(index, ..)| index as c_uint);
    give(to, index)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetName(device: Device, to: *mut c_char, room: c_uint) -> c_int {
    let name = gpu("nvmlDeviceGetName", device).map(|(_, _, line)| {
        let name = line.text("name").unwrap_or("Imaginary_GPU");
        name.replace('_', " ")
    });
    give_text(to, room, name)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUUID(device: Device, to: *mut c_char, room: c_uint) -> c_int {
    let uuid = gpu("nvmlDeviceGetUUID", device).map(|(index, state, _)| state.uuid(index));
    give_text(to, room, uuid)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMinorNumber(device: Device, to: *mut c_uint) -> c_int {
    let minor = gpu("nvmlDeviceGetMinorNumber", device)
        .map(|(index, _, line)| line.figure("minor").unwrap_or(index as u64) as c_uint);
    give(to, minor)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetPersistenceMode(device: Device, to: *mut c_uint) -> c_int {
    give(
        to,
        figure("nvmlDeviceGetPersistenceMode", device, "persistence"),
    )
}
