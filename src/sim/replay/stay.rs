//! The stay of a replica: the memory it holds from its launch, or from falling asleep or waking, until its end.

use alloc::vec::Vec;

use pool::{Bytes, DeviceId, ModelId, Span, Time};

/// A replica's memory during a part of its life, awake or asleep.
#[derive(Clone, Debug)]
pub(super) struct Stay {
    pub model: ModelId,
    pub devices: Vec<DeviceId>,
    pub bytes_per_device: Bytes,
    pub from: Time,
    pub ready: Option<Time>,
    /// The host memory of a sleeper; `None` while it is awake.
    pub asleep: Option<Bytes>,
    /// Set while it is ready and idle.
    pub idle_since: Option<Time>,
    pub idle: Span,
    /// The idle times of a minute or longer.
    pub idle_times: Vec<(Time, Time)>,
}

/// Shorter idle times are not kept.
const KEPT_IDLE: Span = Span::from_secs(60);

impl Stay {
    pub fn new(model: ModelId, devices: Vec<DeviceId>, bytes: Bytes, from: Time) -> Stay {
        Stay {
            model,
            devices,
            bytes_per_device: bytes,
            from,
            ready: None,
            asleep: None,
            idle_since: None,
            idle: Span::ZERO,
            idle_times: Vec::new(),
        }
    }

    /// The sleep that follows this stay: `resident` bytes remain on each device, and `host` bytes are held in host memory.
    pub fn falls_asleep(&self, resident: Bytes, host: Bytes, now: Time) -> Stay {
        let bytes = resident.min(self.bytes_per_device);
        Stay {
            asleep: Some(host),
            ready: Some(now),
            ..Stay::new(self.model, self.devices.clone(), bytes, now)
        }
    }

    pub fn is_ready(&mut self, now: Time) {
        self.ready = Some(now);
        self.idle_since = Some(now);
    }

    pub fn busy(&mut self, now: Time) {
        if let Some(since) = self.idle_since.take() {
            let idle = now.since(since);
            self.idle = Span(self.idle.0 + idle.0);
            if idle >= KEPT_IDLE {
                self.idle_times.push((since, now));
            }
        }
    }

    pub fn idle(&mut self, now: Time) {
        self.idle_since.get_or_insert(now);
    }
}

/// The times in which a device is held, without overlaps.
#[derive(Clone, Debug, Default)]
pub(super) struct Occupied(Vec<(Time, Time)>);

impl Occupied {
    /// Adds a stay. Stays come in the order of their ends.
    pub fn add(&mut self, mut from: Time, to: Time) {
        while let Some(last) = self.0.pop_if(|last| last.1 >= from) {
            from = from.min(last.0);
        }
        self.0.push((from, to));
    }

    /// The milliseconds since a time.
    pub fn since(&self, from: Time) -> u128 {
        let within = |(start, end): &(Time, Time)| u128::from(end.since(from.max(*start)).0);
        self.0.iter().map(within).sum()
    }
}
