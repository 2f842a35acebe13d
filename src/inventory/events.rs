//! Waits for the errors that GPUs report, on one thread per GPU: a GPU that hangs or is lost does not affect the others.
//! `xid_errors.rs` interprets the reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;

use super::connection::Connection;
use super::error::driver_is_gone;
use super::links::find;
use super::source::Tell;
use super::{DeviceEvent, DeviceInfo, DeviceTrouble};

/// Duration of one call, and so the time that a thread may outlive its watch.
const WAIT_MS: u32 = 1000;
/// Pause between attempts to find a lost GPU or a missing driver.
const RETRY: Duration = Duration::from_millis(1000);
/// `XidError::Unknown` in NVML's numbers.
const UNKNOWN_XID: u64 = 999;

/// Reports events until dropped.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// The threads end within a second, or when NVML answers; dropping does not wait for them.
impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in &self.threads {
            thread.thread().unpark();
        }
    }
}

pub(super) fn watch(connection: &Arc<Connection>, devices: &[DeviceInfo], tell: &Tell) -> Watch {
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for device in devices {
        let watcher = Watcher {
            connection: Arc::clone(connection),
            device: device.clone(),
            stop: Arc::clone(&stop),
        };
        let tell = Arc::clone(tell);
        let thread = thread::Builder::new()
            .name(format!("events-{}", device.name))
            .spawn(move || watcher.run(&*tell));
        match thread {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                tracing::warn!(device = %device.name, %error, "cannot start a thread that waits for this GPU's errors; a fault shows only when the GPU cannot be read");
            }
        }
    }
    Watch { stop, threads }
}

struct Watcher {
    connection: Arc<Connection>,
    device: DeviceInfo,
    stop: Arc<AtomicBool>,
}

enum WatchEnd {
    Stopped,
    /// The device never reports events.
    NoEvents(NvmlError),
    Failed(NvmlError),
}

impl Watcher {
    fn run(&self, tell: &dyn Fn(DeviceEvent)) {
        let mut is_lost = false;
        let mut warned = false;
        while !self.is_stopped() {
            let nvml = match self.connection.get() {
                Ok(nvml) => nvml,
                Err(_) => {
                    thread::park_timeout(RETRY);
                    continue;
                }
            };
            match self.listen(&nvml, tell, &mut is_lost) {
                WatchEnd::Stopped => return,
                WatchEnd::NoEvents(error) => {
                    tracing::info!(device = %self.device.name, %error, "this GPU does not report errors; a fault shows only when the GPU cannot be read");
                    return;
                }
                WatchEnd::Failed(error) => {
                    match error {
                        NvmlError::GpuLost | NvmlError::NotFound if !is_lost => {
                            is_lost = true;
                            tell(self.event(DeviceTrouble::Lost));
                        }
                        NvmlError::GpuLost | NvmlError::NotFound => {}
                        _ if driver_is_gone(&error) || warned => {}
                        _ => {
                            warned = true;
                            tracing::warn!(device = %self.device.name, %error, "cannot wait for this GPU's errors; trying again");
                        }
                    }
                    self.connection.failed(nvml, &error);
                    if !self.is_stopped() {
                        thread::park_timeout(RETRY);
                    }
                }
            }
        }
    }

    /// Reports events until the GPU or the driver fails.
    fn listen(&self, nvml: &Nvml, tell: &dyn Fn(DeviceEvent), is_lost: &mut bool) -> WatchEnd {
        let registered = find(nvml, &self.device).and_then(|gpu| {
            // A slice reports no events; an event of its GPU concerns all slices.
            let gpu = if self.device.is_slice() {
                gpu.mig_parent_device()?
            } else {
                gpu
            };
            let wanted = EventTypes::CRITICAL_XID_ERROR | EventTypes::DOUBLE_BIT_ECC_ERROR;
            let kinds = wanted & gpu.supported_event_types()?;
            if kinds.is_empty() {
                return Err(NvmlError::NotSupported);
            }
            let set = nvml.create_event_set()?;
            gpu.register_events(kinds, set).map_err(|fault| fault.error)
        });
        let set = match registered {
            Ok(set) => set,
            Err(error @ (NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_))) => {
                return WatchEnd::NoEvents(error);
            }
            Err(error) => return WatchEnd::Failed(error),
        };
        *is_lost = false;
        while !self.is_stopped() {
            match set.wait(WAIT_MS) {
                Ok(event) if event.event_type.contains(EventTypes::CRITICAL_XID_ERROR) => {
                    let code = match event.event_data {
                        Some(XidError::Value(code)) => code,
                        Some(XidError::Unknown) | None => UNKNOWN_XID,
                    };
                    tell(self.event(DeviceTrouble::Xid { code }));
                }
                Ok(event) if event.event_type.contains(EventTypes::DOUBLE_BIT_ECC_ERROR) => {
                    tell(self.event(DeviceTrouble::DoubleBitEcc));
                }
                Ok(_) | Err(NvmlError::Timeout) => {}
                Err(error) => return WatchEnd::Failed(error),
            }
        }
        WatchEnd::Stopped
    }

    fn event(&self, what: DeviceTrouble) -> DeviceEvent {
        DeviceEvent {
            device: self.device.id,
            what,
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}
