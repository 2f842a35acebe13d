//! Delivers device readings to the pool of a storm: periodically, more often while memory is expected back, each with a small
//! delay.

use alloc::format;

use super::hardware::Hardware;
use super::{Due, Fault, Play};
use pool::{Bytes, DeviceId, DeviceReading, Event, ReplicaId, Time};

impl Play {
    pub(super) fn grows(&mut self, replica: ReplicaId) {
        let Some(process) = self.processes.get(&replica) else {
            return;
        };
        for share in process.shares.clone() {
            let by = Bytes(share.bytes.0 / 100 * self.random.below(40));
            self.device(share.device).grows(replica, by);
        }
    }

    pub(super) fn device(&mut self, device: DeviceId) -> &mut Hardware {
        self.hardware.get_mut(&device).expect("a device of ours")
    }

    pub(super) fn reading_due(&mut self, at: Time, device: DeviceId, settling: bool) {
        if at > self.ends_at {
            return;
        }
        self.reads(at, device);
        self.reads_ahead(at);
        let (period, short) = (self.conditions.period, self.conditions.settle_period);
        let hardware = self.device(device);
        if !settling {
            return self.push(at + period, Due::Reading(device, false));
        }
        // Readers do not wait for memory that is never returned.
        let waits = hardware.is_awaited(at);
        hardware.settles = waits;
        if waits {
            self.push(at + short, Due::Reading(device, true));
        }
    }

    /// Chooses a model whose weights to read ahead, and checks the choice: it has no engine, nothing loads, and its weights were
    /// not read in the last ten minutes.
    fn reads_ahead(&mut self, at: Time) {
        let Some((model, again)) = self.measurements.read_ahead(&self.world.pool, at) else {
            return;
        };
        self.report.read_ahead += 1;
        let runs = self
            .processes
            .values()
            .any(|process| process.model == model);
        if runs || again {
            let why = if runs { "runs" } else { "was read already" };
            let text = format!("{}: {model} is read ahead, and {why}", at.0);
            self.report.broken.push(text);
        }
    }

    /// A reading is taken now and reaches the pool slightly later, never before an older one.
    pub(super) fn reads(&mut self, at: Time, device: DeviceId) {
        let blind = self.fault == Some(Fault::MemoryUnseen);
        let hardware = self.device(device);
        let reading = hardware.read(at, blind);
        let foreign = hardware.constant.foreign;
        if !hardware.measured {
            return self.report_reading(at, device, reading, foreign);
        }
        self.sequence += 1;
        let (nth, lag) = (self.sequence, self.conditions.lag);
        self.on_the_way.insert(nth, (reading, foreign));
        self.push(at + lag, Due::Reported(device, nth));
    }

    pub(super) fn report_reading(
        &mut self,
        at: Time,
        device: DeviceId,
        reading: DeviceReading,
        foreign: Bytes,
    ) {
        self.referee.reading(device, &reading, foreign);
        self.feed(at, Event::DeviceRead { device, reading });
    }
}
