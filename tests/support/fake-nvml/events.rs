//! Event sets: Xid errors and double-bit memory errors that are written to the file after a GPU was registered.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::state::{Line, State};
use crate::{
    Device, GLANCE, GPU_IS_LOST, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, TIMEOUT, enter, give,
    gpu,
};

const DOUBLE_BIT_ECC: u64 = 2;
const XID: u64 = 8;

/// As in NVIDIA's header: an index plus one, never dereferenced.
type SetHandle = *mut c_void;

#[repr(C)]
pub struct Event {
    device: Device,
    kind: u64,
    data: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

struct EventSubscription {
    gpu: usize,
    kinds: u64,
    /// Sequence number of the last event that was delivered or existed at registration.
    seen: u64,
}

/// Freed sets stay as `None` to prevent reuse of their handles.
static SETS: Mutex<Vec<Option<Vec<EventSubscription>>>> = Mutex::new(Vec::new());

fn with<T>(
    set: SetHandle,
    act: impl FnOnce(&mut Option<Vec<EventSubscription>>) -> Result<T, c_int>,
) -> Result<T, c_int> {
    let mut sets = SETS.lock().map_err(|_| INVALID_ARGUMENT)?;
    let index = (set as usize).checked_sub(1).ok_or(INVALID_ARGUMENT)?;
    act(sets.get_mut(index).ok_or(INVALID_ARGUMENT)?)
}

fn kind_of(line: &Line) -> u64 {
    match line.figure("xid") {
        Some(_) => XID,
        None => DOUBLE_BIT_ECC,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetCreate(to: *mut SetHandle) -> c_int {
    let made = enter("nvmlEventSetCreate", None).and_then(|_| {
        let mut sets = SETS.lock().map_err(|_| INVALID_ARGUMENT)?;
        sets.push(Some(Vec::new()));
        Ok(sets.len() as SetHandle)
    });
    give(to, made)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(set: SetHandle) -> c_int {
    let freed = with(set, |set| set.take().map(drop).ok_or(INVALID_ARGUMENT));
    freed.err().unwrap_or(SUCCESS)
}

/// The word `noevents` refuses events, as GPUs under some hypervisors do.
fn supported(line: &Line) -> u64 {
    match (line.says("noevents"), line.figure("ecc")) {
        (true, _) => 0,
        (false, Some(_)) => XID | DOUBLE_BIT_ECC,
        (false, None) => XID,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetSupportedEventTypes(device: Device, to: *mut u64) -> c_int {
    let line = gpu("nvmlDeviceGetSupportedEventTypes", device);
    give(to, line.map(|(_, _, line)| supported(&line)))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceRegisterEvents(device: Device, kinds: u64, set: SetHandle) -> c_int {
    let registered = gpu("nvmlDeviceRegisterEvents", device).and_then(|(index, state, line)| {
        if kinds & !supported(&line) != 0 {
            return Err(NOT_SUPPORTED);
        }
        let numbers = state.all("event").filter_map(|line| line.figure("seq"));
        let seen = numbers.max().unwrap_or(0);
        with(set, |set| {
            let set = set.as_mut().ok_or(INVALID_ARGUMENT)?;
            set.push(EventSubscription {
                gpu: index,
                kinds,
                seen,
            });
            Ok(())
        })
    });
    registered.err().unwrap_or(SUCCESS)
}

/// The first event that has not been delivered.
fn next(state: &State, watched: &mut [EventSubscription]) -> Option<Event> {
    for line in state.all("event") {
        let (Some(number), Some(index)) = (line.figure("seq"), line.figure("gpu")) else {
            continue;
        };
        let kind = kind_of(line);
        let meant = watched.iter_mut().find(|entry| {
            entry.gpu as u64 == index && entry.kinds & kind != 0 && number > entry.seen
        });
        if let Some(meant) = meant {
            meant.seen = number;
            return Some(Event {
                device: (meant.gpu + 1) as Device,
                kind,
                data: line.figure("xid").unwrap_or(0),
                gpu_instance: c_uint::MAX,
                compute_instance: c_uint::MAX,
            });
        }
    }
    None
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetWait_v2(set: SetHandle, to: *mut Event, timeout_ms: c_uint) -> c_int {
    let began = Instant::now();
    loop {
        let found = enter("nvmlEventSetWait_v2", None).and_then(|state| {
            with(set, |set| {
                let watched = set.as_mut().ok_or(INVALID_ARGUMENT)?;
                let is_lost = |entry: &EventSubscription| {
                    state.gpu(entry.gpu).is_none_or(|line| line.says("lost"))
                };
                match next(&state, watched) {
                    Some(event) => Ok(Some(event)),
                    None if watched.iter().any(is_lost) => Err(GPU_IS_LOST),
                    None => Ok(None),
                }
            })
        });
        match found {
            Ok(Some(event)) => return give(to, Ok(event)),
            Err(code) => return code,
            Ok(None) if began.elapsed() >= Duration::from_millis(u64::from(timeout_ms)) => {
                return TIMEOUT;
            }
            Ok(None) => std::thread::sleep(GLANCE),
        }
    }
}
