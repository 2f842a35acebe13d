//! Tests of `sglang.rs`.

use super::super::tests_support::{gpus, place, recipe, refusal};
use super::*;

#[test]
fn the_command_line_is_made_from_the_placement() {
    let mut recipe = recipe(&SGLANG, r#"{"schedule_policy": "lpm"}"#);
    recipe.context = Some(8192);
    recipe.sleep = Sleep::Weights;
    let devices = gpus(2, 80);
    let command = recipe.command(&place(&devices, 43)).expect("a command");
    let expected = "python3 -m sglang.launch_server --model-path /models/m --host 127.0.0.1 --port 4321 --served-model-name org/model --tp-size 2 --mem-fraction-static 0.5000 --context-length 8192 --max-running-requests 20 --enable-metrics --enable-memory-saver --enable-weights-cpu-backup --schedule-policy lpm";
    assert_eq!(command.argv.join(" "), expected);
    assert_eq!(
        command.env["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"].0,
        "false"
    );
}

#[test]
fn sglang_flags_owned_by_the_pool_are_refused_with_the_key_to_set_instead() {
    assert!(refusal(&SGLANG, r#"{"tp-size": 2}"#).contains("gpus_per_replica"));
    assert!(refusal(&SGLANG, r#"{"schedule_polcy": "lpm"}"#).contains("schedule_policy"));
    assert!(SGLANG.parks(Sleep::Discard).is_none());
}

#[test]
fn sglang_logs_are_parsed_for_load_stages() {
    let stage = |line| (SGLANG.stage)(line).map(|stage| (stage.name, stage.percent));
    let line = "[2026-11-21 10:00:00 TP0] Load weight begin. avail mem=78.50 GB";
    assert_eq!(stage(line), Some(("reading weights", None)));
    let line = "Capturing batches (bs=8 avail_mem=10.2 GB):  40%|####      | 4/10";
    assert_eq!(stage(line), Some(("capturing graphs", Some(40))));
}
