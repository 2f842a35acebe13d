//! Counts and limits connections, in total and per address. Without a permit, the accepting code refuses the connection.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::shares::Caller;
use config::{Network, ServerSection};

/// Divisor of the connections reserved for other addresses when a proxy uses the rest.
pub const RESERVED_PART: u32 = 16;

#[derive(Debug)]
pub(super) struct Seats {
    most: u32,
    most_per_address: Option<u32>,
    /// Many clients share the address of a proxy.
    proxies: Vec<Network>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: u32,
    by_caller: BTreeMap<Caller, u32>,
}

impl Seats {
    pub fn from_config(server: &ServerSection, files_max: Option<u64>) -> Seats {
        Seats {
            most: most(server.connections_max, files_max),
            most_per_address: server.connections_per_address,
            proxies: server.trusted_proxies.clone(),
            taken: Mutex::default(),
        }
    }

    /// An address may use half of the connections that others leave free. A proxy or this machine, which represent many clients,
    /// may use all but a reserve.
    pub fn take(self: &Arc<Seats>, peer: IpAddr) -> Option<ConnectionPermit> {
        let peer = peer.to_canonical();
        let speaks_for_many =
            peer.is_loopback() || self.proxies.iter().any(|proxy| proxy.contains(peer));
        let caller = Caller::at(peer);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.by_caller.get(&caller).copied().unwrap_or_default();
        let left = self.most.saturating_sub(taken.all - own);
        let share = if speaks_for_many {
            left.saturating_sub(self.most / RESERVED_PART)
        } else {
            (left / 2).min(self.most_per_address.unwrap_or(u32::MAX))
        };
        if taken.all >= self.most || own >= share.max(1) {
            return None;
        }
        taken.by_caller.insert(caller, own + 1);
        taken.all += 1;
        Some(ConnectionPermit {
            seats: Arc::clone(self),
            caller,
        })
    }
}

/// Each connection may need a second open file for its engine, and the service needs some itself.
fn most(configured: u32, files_max: Option<u64>) -> u32 {
    const OWN_FILES: u64 = 256;
    let Some(files) = files_max else {
        return configured;
    };
    let possible = (files.saturating_sub(OWN_FILES) / 2).max(files / 4).max(8);
    let possible = u32::try_from(possible).unwrap_or(u32::MAX);
    if possible < configured {
        tracing::info!(
            "server.connections_max is {configured}, but the system allows {files} open files, which is enough for {possible} connections; raise LimitNOFILE or `ulimit -n`"
        );
    }
    configured.min(possible)
}

/// A permit for one connection, returned when dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    seats: Arc<Seats>,
    caller: Caller,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let seats = &self.seats;
        let mut taken = seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(own) = taken.by_caller.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                taken.by_caller.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn connections_are_limited_in_total_and_by_address_and_are_released() {
        let server = ServerSection {
            connections_max: 3,
            connections_per_address: Some(1),
            trusted_proxies: vec!["10.0.0.1".parse().unwrap()],
            ..ServerSection::default()
        };
        let seats = Arc::new(Seats::from_config(&server, None));
        let first = seats.take(address("192.0.2.1"));
        assert!(first.is_some());
        assert!(seats.take(address("192.0.2.1")).is_none());
        let proxies = [0, 1].map(|_| seats.take(address("10.0.0.1")));
        assert!(
            proxies.iter().all(Option::is_some),
            "a proxy speaks for many"
        );
        assert!(seats.take(address("192.0.2.2")).is_none(), "all are taken");
        drop(first);
        assert!(seats.take(address("192.0.2.1")).is_some());
        drop(proxies);
        assert_eq!(seats.taken.lock().unwrap().all, 0);
        assert!(seats.taken.lock().unwrap().by_caller.is_empty());
    }

    #[test]
    fn no_address_can_take_all_connections() {
        let server = ServerSection {
            connections_max: 64,
            ..ServerSection::default()
        };
        let seats = Arc::new(Seats::from_config(&server, None));
        let fill = |text: &str| -> Vec<ConnectionPermit> {
            std::iter::from_fn(|| seats.take(address(text))).collect()
        };
        let first = fill("2001:db8::1");
        let same = fill("2001:db8::2");
        let second = fill("192.0.2.1");
        assert_eq!((first.len(), same.len(), second.len()), (32, 0, 16));
        drop(first);
        drop(second);
        let local = fill("127.0.0.1");
        assert_eq!(local.len(), 60);
        assert!(!fill("192.0.2.1").is_empty());
    }

    #[test]
    fn the_connection_limit_respects_the_open_file_limit() {
        assert_eq!(most(20_000, None), 20_000);
        assert_eq!(most(20_000, Some(65_536)), 20_000);
        assert_eq!(most(20_000, Some(1_024)), 384);
        assert_eq!(most(20_000, Some(64)), 16);
    }
}
