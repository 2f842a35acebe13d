//! Tests of `server.rs`.

use super::*;

#[test]
fn a_network_is_parsed_from_an_address_or_a_range_and_matches_its_members() {
    for (text, inside, outside) in [
        ("10.0.0.7", "10.0.0.7", "10.0.0.8"),
        ("10.0.0.0/8", "10.255.1.2", "11.0.0.1"),
        ("10.1.2.3/8", "10.9.9.9", "9.9.9.9"),
        ("fd00::/8", "fd12::1", "fe80::1"),
        ("127.0.0.1", "::ffff:127.0.0.1", "::1"),
    ] {
        let network: Network = text.parse().unwrap();
        assert!(network.contains(inside.parse().unwrap()), "{text}");
        assert!(!network.contains(outside.parse().unwrap()), "{text}");
    }
    for text in ["10.0.0.0/33", "lab", "", "10.0.0"] {
        assert!(text.parse::<Network>().is_err(), "{text}");
    }
}

#[test]
fn a_host_name_with_a_port_or_a_scheme_is_refused() {
    for (text, name) in [
        ("LLM.Example.ORG", "llm.example.org"),
        ("llm.example.org.", "llm.example.org"),
        ("[::1]", "::1"),
        ("10.0.0.7", "10.0.0.7"),
    ] {
        assert_eq!(text.parse::<HostName>().unwrap().as_str(), name);
    }
    for text in ["llm.example.org:80", "http://llm", "a b", "", "a..b", "*"] {
        assert!(text.parse::<HostName>().is_err(), "{text}");
    }
}
