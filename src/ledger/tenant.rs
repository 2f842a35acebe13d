//! The account of one replica: divides what it held into used and idle, and the used part between keys.

use std::collections::BTreeMap;

use super::cut::Cut;
use super::parts::{Amount, Payer, Use};
use pool::{Bytes, DeviceId, KeyId, KeySeats, ModelId, NodeId, ServiceClass, Time};

/// The stage of a replica's life, as far as its time is counted differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Loading,
    /// Ready or draining.
    Serving,
    Asleep,
    /// Its engine ends, or moves its weights. It counts like the stage before.
    Leaving,
}

/// The requests inside a replica at the last reading of its gate.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    at: Time,
    ms: u64,
    in_flight: u32,
}

/// The seat time of a key in one class.
#[derive(Clone, Copy, Debug)]
struct KeyTime {
    seats: KeySeats,
    counted_ms: u64,
    pending_ms: u64,
}

#[derive(Debug)]
pub(crate) struct Tenant {
    pub model: ModelId,
    pub devices: Vec<(DeviceId, Bytes)>,
    /// The host memory that it holds while asleep.
    pub host: Option<(NodeId, Bytes)>,
    pub is_administrators: bool,
    life: Life,
    /// The last user, or the key that it was loaded for.
    payer: Payer,
    settled: Time,
    busy: Busy,
    busy_settled_ms: u64,
    keys: BTreeMap<(KeyId, ServiceClass), KeyTime>,
}

/// A replica's time since it was settled last.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    pub span_ms: u64,
    /// Used, per payer; the weights are seat-milliseconds.
    pub used_ms: u64,
    pub payers: Vec<(Payer, u64)>,
    /// The state and the payer of the remaining time.
    pub remaining: (Option<Use>, Payer),
}

impl Tenant {
    pub fn new(model: ModelId, payer: Payer, now: Time) -> Tenant {
        Tenant {
            model,
            devices: Vec::new(),
            host: None,
            is_administrators: false,
            life: Life::Serving,
            payer,
            settled: now,
            busy: Busy::default(),
            busy_settled_ms: 0,
            keys: BTreeMap::new(),
        }
    }

    pub fn life(&self) -> Life {
        self.life
    }

    /// Begins a stage. A leaving replica counts like before.
    pub fn live(&mut self, life: Life) {
        if life != Life::Leaving {
            self.life = life;
        }
    }

    /// Takes a reading of its gate: the time with a request inside since the gate was made, and the seats of each key.
    pub fn read(
        &mut self,
        now: Time,
        (busy_ms, in_flight): (u64, u32),
        last_key: Option<KeyId>,
        keys: Option<&[KeySeats]>,
    ) {
        self.busy = Busy {
            at: now,
            ms: busy_ms,
            in_flight,
        };
        if let Some(key) = last_key {
            self.payer = Payer::Key(key);
        }
        let Some(keys) = keys else { return };
        for known in self.keys.values_mut() {
            known.seats.in_flight = 0;
        }
        for seats in keys {
            let inside = seats.inside_ms(now);
            let known = self
                .keys
                .entry((seats.key, seats.class))
                .or_insert(KeyTime {
                    seats: *seats,
                    counted_ms: 0,
                    pending_ms: 0,
                });
            known.pending_ms += (seats.ended_ms + inside).saturating_sub(known.counted_ms);
            known.counted_ms = inside;
            known.seats = *seats;
        }
    }

    /// The number of keys with time that is not settled yet.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// The time since the last call, divided.
    pub fn settle(&mut self, now: Time) -> Settled {
        let span_ms = now.since(self.settled).0;
        self.settled = self.settled.max(now);
        let inside = if self.busy.in_flight > 0 {
            now.since(self.busy.at).0
        } else {
            0
        };
        let busy_ms = self.busy.ms + inside;
        let used_ms = busy_ms.saturating_sub(self.busy_settled_ms).min(span_ms);
        self.busy_settled_ms = self.busy_settled_ms.max(busy_ms);
        let mut payers = Vec::new();
        for (&(key, _), time) in &mut self.keys {
            if time.seats.in_flight > 0 {
                let inside = time.seats.inside_ms(now);
                time.pending_ms += inside.saturating_sub(time.counted_ms);
                time.counted_ms = time.counted_ms.max(inside);
            }
            let pending = std::mem::take(&mut time.pending_ms);
            if pending > 0 {
                payers.push((Payer::Key(key), pending));
            }
        }
        self.keys.retain(|_, time| time.seats.in_flight > 0);
        if payers.is_empty() {
            payers.push((self.payer, 1));
        }
        let idle_payer = if self.is_administrators {
            Payer::Administrator
        } else {
            self.payer
        };
        let (used_ms, state) = match self.life {
            Life::Loading => (0, Use::Loading),
            Life::Asleep => (0, Use::Asleep),
            Life::Serving | Life::Leaving => (used_ms, Use::Idle),
        };
        Settled {
            span_ms,
            used_ms,
            payers,
            remaining: (Some(state), idle_payer),
        }
    }
}

impl Settled {
    /// Divides what the replica held on a device since it was settled last.
    pub fn divide(&self, amount: Amount) -> Vec<(Payer, Use, Amount)> {
        let span = u128::from(self.span_ms.max(1));
        let used = Amount {
            ns: amount.ns * u128::from(self.used_ms) / span,
            byte_ms: amount.byte_ms * u128::from(self.used_ms) / span,
        };
        let mut parts = Vec::with_capacity(self.payers.len() + 1);
        if self.used_ms > 0 {
            let weights = self.payers.iter().map(|(_, ms)| u128::from(*ms)).sum();
            let mut time = Cut::new(used.ns, weights);
            let mut bytes = Cut::new(used.byte_ms, weights);
            for (payer, ms) in &self.payers {
                let piece = Amount {
                    ns: time.piece(u128::from(*ms)),
                    byte_ms: bytes.piece(u128::from(*ms)),
                };
                parts.push((*payer, Use::Used, piece));
            }
        }
        let (state, payer) = self.remaining;
        let remaining = Amount {
            ns: amount.ns - used.ns,
            byte_ms: amount.byte_ms - used.byte_ms,
        };
        parts.push((payer, state.unwrap_or(Use::Idle), remaining));
        parts
    }
}
