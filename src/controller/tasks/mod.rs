//! Tasks next to the loop: readings of devices, and the watch over loads.

pub(crate) mod dedicated_thread;
pub(crate) mod inventory_task;
pub(crate) mod watch_task;

pub(crate) use watch_task::WatchInputs;
