//! The account of one replica: divides what it held into used and idle, and the used part between keys by the tokens of their
//! requests, or by their seats.

use std::collections::BTreeMap;

use super::account::GateNews;
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

/// The time of a key in one class: of its seats, and of its tokens.
#[derive(Clone, Copy, Debug)]
struct KeyTime {
    seats: KeySeats,
    seat_ms: Uncharged,
    token_ms: Uncharged,
}

/// A sum that grows, and its part that is not charged yet.
#[derive(Clone, Copy, Debug, Default)]
struct Uncharged {
    /// The part of the requests inside that has been added.
    inside: i128,
    /// Negative if requests took fewer tokens than expected: later requests of the key then count less.
    sum: i128,
}

impl Uncharged {
    /// Adds the requests that have ended since the last call, and those inside from their beginning.
    fn add(&mut self, ended: u128, inside: u128) {
        let signed = |value| i128::try_from(value).unwrap_or(i128::MAX);
        let inside = signed(inside);
        let more = signed(ended).saturating_add(inside);
        let more = more.saturating_sub(self.inside);
        self.sum = self.sum.saturating_add(more);
        self.inside = inside;
    }

    fn take(&mut self) -> u128 {
        let taken = u128::try_from(self.sum).unwrap_or(0);
        self.sum = self.sum.min(0);
        taken
    }
}

impl KeyTime {
    fn new(seats: KeySeats) -> KeyTime {
        KeyTime {
            seats,
            seat_ms: Uncharged::default(),
            token_ms: Uncharged::default(),
        }
    }

    /// The token-milliseconds and seat-milliseconds up to now that are not charged yet.
    fn take(&mut self, now: Time) -> (u128, u128) {
        if self.seats.in_flight > 0 {
            self.advance(now, (0, 0));
        }
        (self.token_ms.take(), self.seat_ms.take())
    }

    /// Adds the time up to now. `ended` has the requests that have ended since the last call: their seat time and token time.
    fn advance(&mut self, now: Time, (ended_ms, ended_token_ms): (u64, u128)) {
        let inside_ms = self.seats.inside_ms(now);
        self.seat_ms.add(ended_ms.into(), inside_ms.into());
        let inside = self.seats.token_time.inside(now);
        self.token_ms.add(ended_token_ms, inside);
    }
}

type KeyTimes = BTreeMap<(KeyId, ServiceClass), KeyTime>;

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
    keys: KeyTimes,
    /// The part of `keys` that requests of batches took.
    batches: KeyTimes,
    reports_tokens: bool,
}

/// The part of a payer in the used time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight {
    payer: Payer,
    all: u128,
    /// The part of `all` that requests of batches took.
    batches: u128,
}

/// A replica's time since it was settled last.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    pub span_ms: u64,
    /// Used, per payer; the weights are token-milliseconds, or seat-milliseconds where the engine reports no tokens.
    pub used_ms: u64,
    pub payers: Vec<Weight>,
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
            keys: KeyTimes::new(),
            batches: KeyTimes::new(),
            reports_tokens: false,
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

    /// Takes a reading of its gate.
    pub fn read(&mut self, now: Time, news: &GateNews<'_>) {
        self.busy = Busy {
            at: now,
            ms: news.busy_ms,
            in_flight: news.in_flight,
        };
        self.reports_tokens = news.reports_tokens;
        if let Some(key) = news.last_key {
            self.payer = Payer::Key(key);
        }
        if let Some(keys) = news.keys {
            read(&mut self.keys, keys, now);
            read(&mut self.batches, news.batches, now);
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
        let payers = self.payers(now);
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

    /// The payers of the used part with their weights.
    fn payers(&mut self, now: Time) -> Vec<Weight> {
        let mut by_tokens = Vec::new();
        let mut by_seats = Vec::new();
        for (&id, time) in &mut self.keys {
            let batches = self.batches.get_mut(&id).map(|time| time.take(now));
            let (token_ms, seat_ms) = time.take(now);
            let (token_ms_of_batches, seat_ms_of_batches) = batches.unwrap_or_default();
            let weight = |all: u128, batches: u128| Weight {
                payer: Payer::Key(id.0),
                all,
                batches: batches.min(all),
            };
            by_tokens.push(weight(token_ms, token_ms_of_batches));
            by_seats.push(weight(seat_ms, seat_ms_of_batches));
        }
        for keys in [&mut self.keys, &mut self.batches] {
            keys.retain(|_, time| time.seats.in_flight > 0);
        }
        let has_tokens = by_tokens.iter().any(|weight| weight.all > 0);
        let mut payers = if self.reports_tokens && has_tokens {
            by_tokens
        } else {
            by_seats
        };
        payers.retain(|weight| weight.all > 0);
        if payers.is_empty() {
            payers.push(Weight {
                payer: self.payer,
                all: 1,
                batches: 0,
            });
        }
        payers
    }
}

/// Takes the seats of a reading.
fn read(times: &mut KeyTimes, keys: &[KeySeats], now: Time) {
    for known in times.values_mut() {
        known.seats.in_flight = 0;
    }
    for seats in keys {
        let id = (seats.key, seats.class);
        let known = times.entry(id).or_insert(KeyTime::new(*seats));
        known.seats = *seats;
        known.advance(now, (seats.ended_ms, seats.token_time.ended));
    }
}

impl Weight {
    /// The part of the payer's piece that requests of batches took.
    fn of_batches(&self, piece: Amount) -> Amount {
        let part = |amount| Cut::new(amount, self.all).piece(self.batches);
        Amount {
            ns: part(piece.ns),
            byte_ms: part(piece.byte_ms),
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
        let mut parts = Vec::with_capacity(2 * self.payers.len() + 1);
        if self.used_ms > 0 {
            let weights = self.payers.iter().map(|weight| weight.all).sum();
            let mut time = Cut::new(used.ns, weights);
            let mut bytes = Cut::new(used.byte_ms, weights);
            for weight in &self.payers {
                let piece = Amount {
                    ns: time.piece(weight.all),
                    byte_ms: bytes.piece(weight.all),
                };
                let of_batches = weight.of_batches(piece);
                let others = Amount {
                    ns: piece.ns - of_batches.ns,
                    byte_ms: piece.byte_ms - of_batches.byte_ms,
                };
                parts.push((weight.payer, Use::Used, others));
                parts.push((weight.payer, Use::UsedByBatches, of_batches));
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
