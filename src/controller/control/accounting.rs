//! Reports changes of the pool and readings of devices to the account of device time, and has its parts written every minute.

use std::collections::BTreeSet;

use super::ledger::{state_of, tenancy, to_hour};
use super::state::Control;
use crate::gates::Minute;
use crate::journal::Job;
use crate::view::REMOTE_DEVICE;
use inventory::EnergyFigure;
use ledger::{EnergyReading, Payer};
use pool::{DeviceId, DeviceMemory, Holding, NodeId, Time};

impl Control {
    /// Reports the state of all devices and replicas to the account.
    pub(crate) fn account_for(&mut self, now: Time) {
        let memory = self.pool.device_memory();
        let memory: Vec<DeviceMemory> = memory
            .filter(|memory| memory.device != REMOTE_DEVICE)
            .collect();
        self.ledger.devices(now, &memory, &self.devices);
        let holdings: Vec<Holding<'_>> = self.pool.holdings().collect();
        let hosts = holdings.iter().filter(|holding| holding.host.0 > 0);
        let hosts: BTreeSet<NodeId> = hosts.map(|holding| holding.node).collect();
        for node in hosts {
            let own = || self.devices.own_machine().map(str::to_owned);
            let name = self.nodes.name(node).map(str::to_owned).or_else(own);
            let name = name.unwrap_or_else(|| node.to_string());
            self.ledger.account.host(node, &name);
        }
        let tenancies = holdings.into_iter();
        let tenancies = tenancies.map(|holding| tenancy(holding, &self.seats));
        self.ledger.account.replicas(now, tenancies);
    }

    /// Reports the readings of these devices to the account.
    pub(crate) fn account_for_readings(&mut self, read: &BTreeSet<DeviceId>, is_measured: bool) {
        let now = self.clock.now();
        for &id in read {
            let (Some(memory), Some(device)) = (self.pool.memory_of(id), self.devices.get(id))
            else {
                continue;
            };
            let state = state_of(&memory, &device.info.name, &self.devices);
            // Drivers that hide the memory of single processes report only the sum of ours.
            let ours: u64 = device.own.values().map(|bytes| bytes.0).sum();
            let used = device.used.as_ref();
            let is_hidden = used.is_some_and(|used| ours < used.own.0);
            let own = (is_measured && !is_hidden).then_some(&device.own);
            let taken = device.read_at.unwrap_or(now);
            let energy = used
                .and_then(|used| used.energy)
                .map(|figure| match figure {
                    EnergyFigure::Counter(mj) => EnergyReading::Counter(mj),
                    EnergyFigure::Power(mw) => EnergyReading::Power(mw),
                });
            self.ledger
                .account
                .measured(now, &state, own, (taken, energy));
        }
    }

    /// Has the parts since the last call written under this minute, with the present groups of their keys.
    pub(crate) fn keep_ledger(&mut self, minute: Minute) {
        let now = self.clock.now();
        self.account_for(now);
        let ahead = self.clock.wall_ahead();
        // Hours and days follow the machine's clock, durations do not.
        let at = (minute.number() * 60_000).saturating_add_signed(ahead);
        let config = &self.config;
        let period = (to_hour(Time(at)), config.day(Time(at)));
        let wall = self.clock.wall();
        let groups = self.pool.groups();
        let paths = groups.paths();
        let name = |payer: Payer| {
            let group = match payer {
                Payer::Key(key) => groups.group(key),
                _ => None,
            };
            match group.and_then(|group| paths.get(&group)) {
                Some(path) => format!("{path}/{payer}"),
                None => payer.to_string(),
            }
        };
        let batch = self
            .ledger
            .take(now, wall, period, |at| config.day(at), name);
        self.publishing.outdated();
        if !batch.is_empty() {
            self.journal
                .write(Job::Ledger(batch.of_minute(at / 60_000)));
        }
    }
}
