//! Calls of drivers on separate threads, because they cannot be cancelled. A thread that does not return in time is abandoned.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::{DeviceError, DeviceInfo, InventoryError, Reading};
use pool::DeviceId;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver that is called, and the command that shows whether it responds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Driver {
    pub name: &'static str,
    pub tool: &'static str,
}

/// Runs a call of the driver.
///
/// # Errors
/// [`InventoryError::Hangs`] if it does not return in time.
pub(super) fn within<T: Send + 'static>(
    deadline: Duration,
    driver: Driver,
    act: impl FnOnce() -> T + Send + 'static,
) -> Result<T, InventoryError> {
    let (sender, results) = mpsc::channel();
    let ask = move || drop(sender.send(act()));
    thread::Builder::new()
        .name("devices".into())
        .spawn(ask)
        .map_err(|source| InventoryError::Thread { source })?;
    results
        .recv_timeout(deadline)
        .map_err(|_| InventoryError::Hangs {
            what: driver.name,
            tool: driver.tool,
            seconds: deadline.as_secs(),
        })
}

/// Reads devices, each on a separate thread. A device with an unanswered reading is not queried again.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// Unfinished readings with their start times.
    running: Mutex<BTreeMap<DeviceId, Instant>>,
}

impl Readers {
    /// The readings in the order of the devices.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long a driver takes is what is measured here"
    )]
    pub fn read_each(
        self: &Arc<Readers>,
        devices: &[DeviceInfo],
        deadline: Duration,
        read: impl Fn(&DeviceInfo) -> Reading + Send + Sync + 'static,
    ) -> Vec<(DeviceId, Reading)> {
        let began = Instant::now();
        let read = Arc::new(read);
        let (sender, results) = mpsc::channel();
        let mut readings: BTreeMap<DeviceId, Reading> = BTreeMap::new();
        for device in devices {
            let earlier = *lock(&self.running).entry(device.id).or_insert(began);
            if earlier != began {
                continue;
            }
            let (readers, read, sender) = (Arc::clone(self), Arc::clone(&read), sender.clone());
            let own = device.clone();
            let ask = move || {
                let reading = {
                    let _running = ReadingGuard(&readers, own.id);
                    read(&own)
                };
                // The receiver is gone if this comes too late.
                let _ = sender.send((own.id, reading));
            };
            let name = format!("read-{}", device.name);
            if let Err(source) = thread::Builder::new().name(name).spawn(ask) {
                lock(&self.running).remove(&device.id);
                let device_name = device.name.clone();
                let error = DeviceError::Thread {
                    device: device_name,
                    source,
                };
                readings.insert(device.id, Err(error));
            }
        }
        drop(sender);
        // Ends when all have responded, because each holds a sender of the channel.
        while let Ok((id, reading)) = results.recv_timeout(deadline.saturating_sub(began.elapsed()))
        {
            readings.insert(id, reading);
        }
        let running = lock(&self.running).clone();
        let each = devices.iter().map(|device| {
            let stale = || {
                let since = running.get(&device.id).unwrap_or(&began).elapsed();
                Err(DeviceError::Stale {
                    device: device.name.clone(),
                    since,
                })
            };
            (device.id, readings.remove(&device.id).unwrap_or_else(stale))
        });
        each.collect()
    }
}

/// Removes its entry even if the reading panics.
struct ReadingGuard<'a>(&'a Readers, DeviceId);

impl Drop for ReadingGuard<'_> {
    fn drop(&mut self) {
        lock(&self.0.running).remove(&self.1);
    }
}
