//! The listen address of this machine's pool, from its configuration: the server of `chat` and `run` without `--server`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::Config;
use terminal::{Defaults, ServerArgs};

/// # Errors
/// A configuration named explicitly cannot be read. The default one may be missing or broken: a server on another machine needs
/// none.
pub fn defaults(args: &ServerArgs) -> Result<Defaults, String> {
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    match Config::load(args.config.as_deref(), &environment) {
        Ok(config) => Ok(defaults_from(&config)),
        Err(error) if args.config.is_some() => Err(error.to_string()),
        Err(error) => {
            let defaults = Defaults::default();
            if args.server.is_none() {
                eprintln!(
                    "model-pool: {error}; using {}, without this configuration",
                    defaults.server
                );
            }
            Ok(defaults)
        }
    }
}

fn defaults_from(config: &Config) -> Defaults {
    // The client of `chat` and `run` speaks TCP.
    let Some(mut address) = config.server.listen.address() else {
        return Defaults {
            admin_key_file: config.admin_key_file(),
            ..Defaults::default()
        };
    };
    // Listens on all addresses of this machine, so any of them will do.
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    let scheme = match config.server.tls {
        Some(_) => "https",
        None => "http",
    };
    Defaults {
        server: format!("{scheme}://{address}{}", config.server.base_path.as_str()),
        admin_key_file: config.admin_key_file(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("config.yaml");
        std::fs::write(&file, text).expect("written");
        let config = Config::load(Some(&file), &BTreeMap::new()).expect("a configuration");
        defaults_from(&config).server
    }

    #[test]
    fn a_wildcard_listen_address_becomes_a_reachable_url() {
        assert_eq!(server("{}"), "http://127.0.0.1:8080/llm");
        assert_eq!(
            server("server: {listen: \"0.0.0.0:9000\", base_path: /pool}"),
            "http://127.0.0.1:9000/pool"
        );
        assert_eq!(
            server("server: {listen: \"[::]:9000\"}"),
            "http://[::1]:9000/llm"
        );
        assert_eq!(
            server("server: {listen: 192.0.2.7:9000, tls: {cert: a, key: b}}"),
            "https://192.0.2.7:9000/llm"
        );
    }
}
