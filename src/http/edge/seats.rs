//! Counts connections and limits them, in all and for each address. Without a seat the connection is answered and
//! closed by the code that accepted it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use config::{Network, ServerSection};

#[derive(Debug)]
pub(super) struct Seats {
    most: u32,
    most_per_address: Option<u32>,
    /// Many people share the address of a proxy.
    proxies: Vec<Network>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: u32,
    by_address: BTreeMap<IpAddr, u32>,
}

impl Seats {
    pub fn of(server: &ServerSection, files_max: Option<u64>) -> Seats {
        Seats {
            most: most(server.connections_max, files_max),
            most_per_address: server.connections_per_address,
            proxies: server.trusted_proxies.clone(),
            taken: Mutex::default(),
        }
    }

    pub fn take(self: &Arc<Seats>, peer: IpAddr) -> Option<ConnectionPermit> {
        let peer = peer.to_canonical();
        let is_free = peer.is_loopback() || self.proxies.iter().any(|it| it.contains(peer));
        let most = self.most_per_address.filter(|_| !is_free);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.all >= self.most {
            return None;
        }
        if let Some(most) = most {
            let own = taken.by_address.entry(peer).or_default();
            if *own >= most {
                return None;
            }
            *own += 1;
        }
        taken.all += 1;
        Some(ConnectionPermit {
            seats: Arc::clone(self),
            peer: most.map(|_| peer),
        })
    }
}

/// Each connection may need a second open file towards an engine, and the service needs some itself.
fn most(configured: u32, files_max: Option<u64>) -> u32 {
    const OWN_FILES: u64 = 256;
    let Some(files) = files_max else {
        return configured;
    };
    let possible = (files.saturating_sub(OWN_FILES) / 2).max(files / 4).max(8);
    let possible = u32::try_from(possible).unwrap_or(u32::MAX);
    if possible < configured {
        tracing::info!(
            "server.connections_max is {configured}, and the system allows {files} open files: at most {possible} connections are taken at once; raise LimitNOFILE or `ulimit -n`"
        );
    }
    configured.min(possible)
}

/// One connection's; dropping it gives it back.
#[derive(Debug)]
pub struct ConnectionPermit {
    seats: Arc<Seats>,
    /// Where connections of its address are counted.
    peer: Option<IpAddr>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let seats = &self.seats;
        let mut taken = seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(peer) = self.peer
            && let Some(own) = taken.by_address.get_mut(&peer)
        {
            *own -= 1;
            if *own == 0 {
                taken.by_address.remove(&peer);
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
    fn seats_are_bounded_in_all_and_by_address_and_come_back() {
        let server = ServerSection {
            connections_max: 3,
            connections_per_address: Some(1),
            trusted_proxies: vec!["10.0.0.1".parse().unwrap()],
            ..ServerSection::default()
        };
        let seats = Arc::new(Seats::of(&server, None));
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
        assert!(seats.taken.lock().unwrap().by_address.is_empty());
    }

    #[test]
    fn the_bound_is_what_open_files_allow() {
        assert_eq!(most(20_000, None), 20_000);
        assert_eq!(most(20_000, Some(65_536)), 20_000);
        assert_eq!(most(20_000, Some(1_024)), 384);
        assert_eq!(most(20_000, Some(64)), 16);
    }
}
