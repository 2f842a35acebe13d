//! The shipped systemd unit, chart and Compose file permit the time that a stop may take with the shipped configuration.

use std::fs;
use std::path::Path;
use std::time::Duration;

use model_pool::config::Config;
use model_pool::pool::ModelSpec;
use model_pool::serve::stop_time::longest_stop;

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Values of a key in a systemd unit or in YAML.
fn values<'a>(text: &'a str, key: &'a str) -> Vec<&'a str> {
    let lines = text.lines().map(str::trim);
    lines.filter_map(|line| line.strip_prefix(key)).collect()
}

/// `15min`, `15m` or `900`.
fn length(text: &str) -> Duration {
    let text = text.trim();
    let (number, unit) = match text.trim_end_matches("in").strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (text, 1),
    };
    let number: u64 = number.parse().unwrap_or_else(|_| panic!("{text}"));
    Duration::from_secs(number * unit)
}

#[test]
fn the_shipped_units_allow_enough_time_for_a_stop() {
    let longest = longest_stop(&Config::default());
    assert!(longest > Duration::from_secs(600), "the drain and more");
    let unit = read("deploy/model-pool.service");
    let compose = read("compose.yaml");
    let chart = read("deploy/helm/model-pool/values.yaml");
    let chart = values(&chart, "terminationGracePeriodSeconds:");
    let [controller, nodes] = chart[..] else {
        panic!("one for the controller and one for nodes: {chart:?}");
    };
    for allowed in [
        &values(&unit, "TimeoutStopSec=")[..],
        &values(&compose, "stop_grace_period:")[..],
        &[controller][..],
    ] {
        let [allowed] = allowed else {
            panic!("one value: {allowed:?}");
        };
        assert!(length(allowed) >= longest, "{allowed}: {longest:?}");
    }
    let drain = Duration::from_millis(Config::default().unload_drain().0);
    let grace = Duration::from_millis(ModelSpec::default().stop_grace.0);
    let of_node = node::longest_stop(drain, grace);
    assert!(length(nodes) >= of_node, "{nodes}: {of_node:?}");
}

#[test]
fn a_longer_drain_allows_a_longer_stop() {
    let mut config = Config::default();
    let before = longest_stop(&config);
    config.evening.drain.0.0 += 60_000;
    assert_eq!(longest_stop(&config), before + Duration::from_secs(60));
}

#[test]
fn documentation_pages_name_the_shipped_stop_time() {
    let seconds = length(values(&read("deploy/model-pool.service"), "TimeoutStopSec=")[0]);
    let seconds = seconds.as_secs();
    for file in ["docs/start/install.md", "Dockerfile"] {
        let command = format!("docker stop -t {seconds}");
        assert!(read(file).contains(&command), "{file}: {command}");
    }
    let operations = read("docs/guides/operations.md");
    let minutes = format!("`TimeoutStopSec` ({} min", seconds / 60);
    assert!(operations.contains(&minutes), "{minutes}");
}
