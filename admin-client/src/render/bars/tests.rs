//! Tests of `bars.rs`.

use super::*;
use serde_json::json;

fn gpu() -> DeviceList {
    serde_json::from_value(json!({"provider": "nvml", "devices": [{
        "device": "gpu0", "name": "H200", "node": "n0", "uuid": null,
        "total_bytes": 100u64 << 30, "headroom_bytes": 5u64 << 30, "foreign_bytes": 10u64 << 30,
        "reserved_bytes": 60u64 << 30, "free_bytes": 25u64 << 30, "used_bytes": 61u64 << 30,
        "utilisation_percent": 37, "temperature_celsius": null,
        "owners": [
            {"replica": "r1", "model": "org/large", "bytes": 40u64 << 30, "state": "ready"},
            {"replica": "r2", "model": "small", "bytes": 20u64 << 30, "state": "launching"}
        ], "read_at": "2026-11-21T12:00:00Z"}]}))
    .expect("devices")
}

use crate::render::quantity::tests::noon;

const WATCHED: Style = Style::terminal(44);

#[test]
fn a_bar_shows_the_share_of_each_owner_with_a_legend() {
    let text = devices(&gpu(), noon(), WATCHED);
    assert_eq!(
        text,
        "gpu0  H200 · on n0 · 100.0 GiB\n\
             \x20 61.0 GiB measured in use · 37 % busy\n\
             \x20 AAAAAAAAAAAAAAAABBBBBBBB####--..........\n\
             \x20   A   40.0 GiB  r1 org/large\n\
             \x20   B   20.0 GiB  r2 small (launching)\n\
             \x20   #   10.0 GiB  foreign: outside the pool\n\
             \x20   -    5.0 GiB  headroom, kept free\n\
             \x20   .   25.0 GiB  free\n"
    );
}

#[test]
fn without_a_terminal_there_are_numbers_and_no_bar() {
    let text = devices(&gpu(), noon(), Style::PLAIN);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[1].starts_with("gpu0    n0    H200  100.0 GiB  60.0 GiB  10.0 GiB"),
        "{text}"
    );
    assert!(
        lines[1].ends_with("r1 org/large 40.0 GiB, r2 small 20.0 GiB  -"),
        "{text}"
    );
}

#[test]
fn a_small_owner_is_visible_and_the_bar_keeps_its_width() {
    for owners in [1usize, 7, 30] {
        let many: Vec<Segment> = (0..owners)
            .map(|n| Segment {
                bytes: if n == 0 { 1 << 40 } else { 1 },
                glyph: letter(n),
                tint: Tint::Owner(n),
                legend: String::new(),
            })
            .collect();
        let cells = cells(&many, 40);
        assert!(cells.iter().all(|&cells| cells >= 1));
        assert_eq!(cells.iter().sum::<usize>(), 40);
    }
}

#[test]
fn a_cordon_and_settling_memory_are_shown_in_bars_and_tables() {
    let mut list = gpu();
    list.devices[0].settling_bytes = Some(5 << 30);
    list.devices[0].cordon = Some(crate::responses::Cordon {
        reason: "new fan".to_owned(),
        ..Default::default()
    });
    let text = devices(&list, noon(), WATCHED);
    assert!(text.contains("\n  cordoned: new fan\n"), "{text}");
    assert!(text.contains("~    5.0 GiB  not yet released"), "{text}");
    let text = devices(&list, noon(), Style::PLAIN);
    assert!(text.trim_end().ends_with("new fan"), "{text}");
}

#[test]
fn with_colours_bars_use_blocks_instead_of_letters() {
    let text = devices(
        &gpu(),
        noon(),
        Style {
            colour: true,
            ..WATCHED
        },
    );
    assert!(text.contains("\x1b[34m████████████████\x1b[0m"), "{text}");
    assert!(!text.contains("AAAA"));
}

#[test]
fn a_device_with_few_known_facts_is_still_shown() {
    let list: DeviceList =
        serde_json::from_value(json!({"devices": [{"device": "d0"}]})).expect("devices");
    assert_eq!(devices(&list, noon(), WATCHED), "d0  0 B\n  \n");
    assert!(devices(&DeviceList::default(), noon(), WATCHED).contains("no device"));
}

#[test]
fn a_shared_device_is_named_in_its_heading() {
    let mut list = gpu();
    list.devices[0].mps = true;
    list.devices[0].unified = true;
    let text = devices(&list, noon(), Style::terminal(100));
    let heading = "gpu0  H200 · on n0 · 100.0 GiB · shared with the machine · CUDA MPS · 61.0 GiB measured in use";
    assert!(text.starts_with(heading), "{text}");
}
