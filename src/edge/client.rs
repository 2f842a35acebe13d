//! Determines the client of a request by address. Forwarding headers are only believed from trusted proxies. Any other claim about
//! the origin makes a request less trusted, never more: a forwarded address grants no loopback rights (B2).

use std::net::{IpAddr, SocketAddr};

use axum::http::HeaderMap;

use config::Network;

/// Headers that proxies write and clients do not, in addition to those with the prefix [`FORWARDED`].
const OF_PROXIES: [&str; 15] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-original-forwarded-for",
    "x-envoy-external-address",
    "x-original-host",
    "x-proxyuser-ip",
    "cf-connecting-ip",
    "cf-ray",
    "true-client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "cdn-loop",
];
const FORWARDED: &str = "x-forwarded-";

/// The origin of a request, as far as it can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// The peer's address, or the address that a trusted proxy names.
    pub address: IpAddr,
    /// A proxy is involved and does not name its client reliably. A loopback address named by a proxy may belong to the proxy's
    /// machine, or be invented by the client.
    pub is_hidden: bool,
}

impl ClientAddress {
    /// Returns true if the client itself is on this machine.
    pub fn is_loopback(&self) -> bool {
        !self.is_hidden && self.address.is_loopback()
    }

    /// Advice for configuring the proxy; `None` if the client is known.
    pub fn advice(&self, peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> Option<String> {
        if !self.is_hidden {
            return None;
        }
        let header = of_proxy(headers).unwrap_or("a header of a proxy");
        let peer = peer.to_canonical();
        let is_trusted = trusted.iter().any(|network| network.contains(peer));
        Some(if !is_trusted {
            format!(
                "a request from {peer} has `{header}`, which a proxy writes, and {peer} is not in server.trusted_proxies: its clients do not count as local, and need a key unless auth.inference is open. If {peer} is your proxy, set server.trusted_proxies: [{peer}], and let it write X-Forwarded-For"
            )
        } else {
            format!(
                "the proxy {peer} of server.trusted_proxies sends `{header}` and does not name its client, or names a loopback address: its clients do not count as local, and need a key unless auth.inference is open. Let it write X-Forwarded-For (nginx: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for)"
            )
        })
    }

    /// Reads the hops from the right, since each trusted proxy appends its peer. The first untrusted hop is the client; anything
    /// further left may be forged.
    pub fn new(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> ClientAddress {
        let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
        let peer = peer.to_canonical();
        let listed = chain(headers, "x-forwarded-for", address_of);
        let forwarded = chain(headers, "forwarded", forwarded_for);
        let is_forwarded = of_proxy(headers).is_some();
        if !is_trusted(peer) {
            return ClientAddress {
                address: peer,
                is_hidden: is_forwarded,
            };
        }
        let client = |hops: &[Option<IpAddr>]| {
            let mut nearest = peer;
            for hop in hops.iter().rev() {
                match hop {
                    Some(hop) if is_trusted(*hop) => nearest = *hop,
                    Some(hop) if !hop.is_loopback() => return (*hop, false),
                    Some(_) | None => return (nearest, true),
                }
            }
            (nearest, nearest.is_loopback())
        };
        let (address, is_hidden) = match (listed, forwarded) {
            // A proxy is involved and does not name its client.
            (None, None) => (peer, is_forwarded),
            (Some(hops), None) | (None, Some(hops)) => client(&hops),
            // A proxy that writes only one of the two headers passes the other on as the client sent it.
            (Some(listed), Some(forwarded)) => match (client(&listed), client(&forwarded)) {
                (one, other) if one == other => one,
                _ => (peer, true),
            },
        };
        // A loopback address named by a remote proxy does not belong to this machine and must not share its limits.
        let address = if address.is_loopback() { peer } else { address };
        ClientAddress { address, is_hidden }
    }
}

/// A header that only proxies write.
fn of_proxy(headers: &HeaderMap) -> Option<&str> {
    let mut names = headers.keys().map(|name| name.as_str());
    names.find(|name| name.starts_with(FORWARDED) || OF_PROXIES.contains(name))
}

/// The hops listed in all headers of this name, in order; `None` without such a header.
fn chain(
    headers: &HeaderMap,
    name: &str,
    read: impl Fn(&str) -> Option<IpAddr>,
) -> Option<Vec<Option<IpAddr>>> {
    let mut hops = None;
    for value in headers.get_all(name) {
        let hops = hops.get_or_insert_with(Vec::new);
        match value.to_str() {
            Ok(text) => hops.extend(text.split(',').map(|entry| read(entry.trim()))),
            Err(_) => hops.push(None),
        }
    }
    hops
}

/// Parses `for=192.0.2.60;proto=http` or `for="[2001:db8::1]:4711"`.
fn forwarded_for(entry: &str) -> Option<IpAddr> {
    let mut pairs = entry.split(';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    address_of(value.trim().trim_matches('"'))
}

/// Parses an address with or without a port.
fn address_of(text: &str) -> Option<IpAddr> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    let with_port = || text.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    let address = bare.parse::<IpAddr>().ok().or_else(with_port);
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn client(
        peer: &str,
        headers: &[(&'static str, &'static str)],
        trusted: &[&str],
    ) -> (String, bool) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        let trusted: Vec<Network> = trusted
            .iter()
            .map(|network| network.parse().unwrap())
            .collect();
        let client = ClientAddress::new(peer.parse().unwrap(), &map, &trusted);
        (client.address.to_string(), client.is_hidden)
    }

    #[test]
    fn an_untrusted_peer_cannot_set_its_address_and_is_not_local() {
        let headers = [("x-forwarded-for", "127.0.0.1")];
        assert_eq!(
            client("10.0.0.9", &headers, &["10.0.0.7"]),
            ("10.0.0.9".to_owned(), true)
        );
        // A proxy on this machine that is not configured: its clients are not local.
        assert_eq!(
            client("127.0.0.1", &headers, &[]),
            ("127.0.0.1".to_owned(), true)
        );
        assert_eq!(
            client("127.0.0.1", &[], &[]),
            ("127.0.0.1".to_owned(), false)
        );
    }

    #[test]
    fn any_proxy_header_hides_the_client_unless_a_trusted_proxy_names_it() {
        for header in OF_PROXIES
            .into_iter()
            .chain(["x-forwarded-proto", "x-forwarded-host"])
        {
            let line = [(header, "1.1 vegur")];
            assert_eq!(
                client("127.0.0.1", &line, &[]),
                ("127.0.0.1".to_owned(), true),
                "{header}"
            );
            let (_, is_hidden) = client("127.0.0.1", &line, &["127.0.0.1"]);
            assert!(is_hidden, "{header}");
        }
        let named = [("via", "1.1 vegur"), ("x-forwarded-for", "192.0.2.1")];
        let of_trusted = client("127.0.0.1", &named, &["127.0.0.1"]);
        assert_eq!(of_trusted, ("192.0.2.1".to_owned(), false));
        let plain = [
            ("user-agent", "curl"),
            ("accept", "*/*"),
            ("x-request-id", "a"),
        ];
        assert!(!client("127.0.0.1", &plain, &[]).1);
    }

    #[test]
    fn no_forwarded_address_grants_loopback_rights() {
        let spellings = [
            "127.0.0.1",
            "127.0.0.1:80",
            "127.8.9.10",
            "::1",
            "[::1]",
            "[::1]:80",
            "0:0:0:0:0:0:0:1",
            "::ffff:127.0.0.1",
            "[::ffff:7f00:1]:80",
            "127.1",
            "2130706433",
            "0.0.0.0",
            "::",
            "localhost",
            "127.0.0.1, 203.0.113.9",
            "203.0.113.9, 127.0.0.1",
            "127.0.0.1, 127.0.0.1",
            "127.0.0.1, 10.0.0.7",
            "10.0.0.7, ::1",
        ];
        let proxies: [&[&str]; 5] = [
            &[],
            &["10.0.0.7"],
            &["10.0.0.7", "127.0.0.1"],
            &["10.0.0.7", "127.0.0.0/8", "::1"],
            &["0.0.0.0/0", "::/0"],
        ];
        for peer in ["10.0.0.7", "127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let peer: IpAddr = peer.parse().unwrap();
            for (spelling, trusted) in spellings
                .iter()
                .flat_map(|spelling| proxies.map(|trusted| (*spelling, trusted)))
            {
                let trusted: Vec<Network> = trusted
                    .iter()
                    .map(|network| network.parse().unwrap())
                    .collect();
                let quoted = format!("for=\"{spelling}\"");
                let bare = format!("for={spelling}");
                for lines in [
                    vec![("x-forwarded-for", spelling)],
                    vec![("forwarded", &bare)],
                    vec![("forwarded", &quoted)],
                    vec![("x-forwarded-for", spelling), ("forwarded", &bare)],
                    vec![
                        ("x-forwarded-for", "203.0.113.9"),
                        ("x-forwarded-for", spelling),
                    ],
                ] {
                    let mut headers = HeaderMap::new();
                    for (name, value) in &lines {
                        headers.append(*name, HeaderValue::from_str(value).unwrap());
                    }
                    let client = ClientAddress::new(peer, &headers, &trusted);
                    assert!(
                        !client.is_loopback(),
                        "{peer} {lines:?} {trusted:?} {client:?}"
                    );
                    let shares_local_limits = client.address.is_loopback();
                    assert!(
                        !shares_local_limits || peer.to_canonical().is_loopback(),
                        "{peer} {lines:?} {client:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_proxy_advice_names_the_setting_and_is_absent_without_proxy_headers() {
        let advice = |trusted: &[&str], name: &'static str| {
            let headers = HeaderMap::from_iter([(
                axum::http::HeaderName::from_static(name),
                HeaderValue::from_static("a"),
            )]);
            let trusted: Vec<Network> = trusted
                .iter()
                .map(|network| network.parse().unwrap())
                .collect();
            let peer = "127.0.0.1".parse().unwrap();
            ClientAddress::new(peer, &headers, &trusted).advice(peer, &headers, &trusted)
        };
        let unknown = advice(&[], "via").unwrap();
        assert!(unknown.contains("`via`"), "{unknown}");
        assert!(
            unknown.contains("server.trusted_proxies: [127.0.0.1]"),
            "{unknown}"
        );
        let silent = advice(&["127.0.0.1"], "x-real-ip").unwrap();
        assert!(silent.contains("write X-Forwarded-For"), "{silent}");
        assert_eq!(advice(&[], "accept"), None);
    }

    #[test]
    fn the_right_most_untrusted_address_in_x_forwarded_for_is_the_client() {
        let trusted = ["10.0.0.0/8", "127.0.0.1"];
        for (sent, expected) in [
            ("192.0.2.1", ("192.0.2.1", false)),
            ("127.0.0.1, 192.0.2.1", ("192.0.2.1", false)),
            ("6.6.6.6, 192.0.2.1, 10.0.0.2", ("192.0.2.1", false)),
            ("192.0.2.1:4711, 10.0.0.2", ("192.0.2.1", false)),
            ("[2001:db8::1]:4711", ("2001:db8::1", false)),
            ("10.0.0.3, 10.0.0.2", ("10.0.0.3", false)),
            ("unknown, 10.0.0.2", ("10.0.0.2", true)),
            ("", ("127.0.0.1", true)),
        ] {
            let (address, hidden) = expected;
            assert_eq!(
                client("127.0.0.1", &[("x-forwarded-for", sent)], &trusted),
                (address.to_owned(), hidden),
                "{sent}"
            );
        }
        let lines = [
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-for", "192.0.2.1, 10.0.0.2"),
        ];
        assert_eq!(client("10.0.0.1", &lines, &trusted).0, "192.0.2.1");
    }

    #[test]
    fn forwarded_is_parsed_too_and_contradicting_headers_hide_the_client() {
        let trusted = ["127.0.0.1"];
        let one = [("forwarded", "For=\"[2001:db8::1]:80\";proto=https")];
        assert_eq!(
            client("127.0.0.1", &one, &trusted),
            ("2001:db8::1".to_owned(), false)
        );
        let hidden = [("forwarded", "for=_gazonk")];
        assert_eq!(
            client("127.0.0.1", &hidden, &trusted),
            ("127.0.0.1".to_owned(), true)
        );
        let both = [
            ("x-forwarded-for", "192.0.2.1"),
            ("forwarded", "for=127.0.0.1"),
        ];
        assert_eq!(
            client("127.0.0.1", &both, &trusted),
            ("127.0.0.1".to_owned(), true)
        );
        let same = [
            ("x-forwarded-for", "192.0.2.1"),
            ("forwarded", "for=192.0.2.1"),
        ];
        assert_eq!(
            client("127.0.0.1", &same, &trusted),
            ("192.0.2.1".to_owned(), false)
        );
    }
}
