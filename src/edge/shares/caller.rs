//! The caller that a request counts for: its key, or its address without a key.

use std::net::{IpAddr, Ipv6Addr};

use pool::KeyId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// A key, or a person of the single sign-on.
    Key(KeyId),
    /// An IPv4 address, or the network of an IPv6 subscriber.
    Address(IpAddr),
    /// The pool itself, for work without a request.
    Pool,
}

impl Caller {
    pub fn at(address: IpAddr) -> Caller {
        Caller::Address(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                let network = address.to_bits() & !u128::from(u64::MAX);
                IpAddr::V6(Ipv6Addr::from_bits(network))
            }
            address => address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_one_subscriber_count_as_one_caller() {
        let caller = |text: &str| Caller::at(text.parse().unwrap());
        assert_eq!(caller("2001:db8::1"), caller("2001:db8::ffff:2"));
        assert_ne!(caller("2001:db8::1"), caller("2001:db8:0:1::1"));
        assert_eq!(caller("::ffff:192.0.2.1"), caller("192.0.2.1"));
        assert_ne!(caller("192.0.2.1"), caller("192.0.2.2"));
        assert_ne!(caller("::1"), caller("::2"));
    }
}
