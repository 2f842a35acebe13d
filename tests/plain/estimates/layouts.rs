//! Permitted numbers of devices for a model, and the memory that each layout needs per device.

use std::collections::BTreeMap;

use model_pool::catalog::{DeviceSize, Entry, GPU_OVERHEAD, Layout, MeasuredNeed};
use model_pool::config::Config;
use model_pool::pool::Bytes;
use serde_json::json;

use super::commands::{GIB, PER_TOKEN, WEIGHTS, entry, local, model_folder};
use crate::config::documents;

fn layouts(entry: &Entry) -> Vec<(u32, u64)> {
    let layouts = entry.layouts(&BTreeMap::new(), None).unwrap();
    layouts
        .iter()
        .map(
            |Layout {
                 devices,
                 bytes_per_device,
             }| (*devices, bytes_per_device.0),
        )
        .collect()
}

#[test]
fn layouts_divide_weights_and_heads_and_replicate_the_rest_on_every_device() {
    let folder = model_folder();
    let model = local(&folder, &["my-server", "{{ port }}"]);
    let cache = PER_TOKEN * 1000 * 20;
    let overhead = GPU_OVERHEAD.0;
    // Eight heads, four of them with a cache: up to eight devices with a head each.
    assert_eq!(
        layouts(&model),
        [
            (1, WEIGHTS + cache + overhead),
            (2, WEIGHTS / 2 + cache / 2 + overhead),
            (4, WEIGHTS / 4 + cache / 4 + overhead),
            (8, WEIGHTS / 8 + cache / 4 + overhead),
        ]
    );
    assert_eq!(
        (model.devices_per_replica, model.devices_configured),
        (1, None)
    );
}

#[test]
fn an_explicit_number_of_devices_is_the_only_layout() {
    let folder = model_folder();
    let path = folder.path().display().to_string();
    let fixed = entry(
        &path,
        &["my-server", "{{ port }}"],
        json!({"pool_config": {"gpus_per_replica": 3}}),
    );
    assert_eq!(
        layouts(&fixed)
            .iter()
            .map(|layout| layout.0)
            .collect::<Vec<_>>(),
        [3]
    );
    // Arguments of the command that set it.
    let vllm = ["vllm", "serve", "x", "{{ port }}", "--tensor-parallel-size"];
    let spelt = local(&folder, &[&vllm[..], &["4"]].concat());
    assert_eq!(
        layouts(&spelt)
            .iter()
            .map(|layout| layout.0)
            .collect::<Vec<_>>(),
        [4]
    );
    assert_eq!(spelt.devices_per_replica, 4);
    let follows = local(&folder, &[&vllm[..], &["{{ device_count }}"]].concat());
    assert_eq!(
        layouts(&follows)
            .iter()
            .map(|layout| layout.0)
            .collect::<Vec<_>>(),
        [1, 2, 4, 8]
    );
    // vLLM uses one device by default.
    let silent = local(&folder, &["vllm", "serve", "x", "{{ port }}"]);
    assert_eq!(
        layouts(&silent)
            .iter()
            .map(|layout| layout.0)
            .collect::<Vec<_>>(),
        [1]
    );
}

#[test]
fn layouts_use_measurements_and_an_administrators_figure() {
    let folder = model_folder();
    let model = local(&folder, &["my-server", "{{ port }}"]);
    let measured = MeasuredNeed {
        bytes_per_device: Bytes(77),
        reload_ms: 5,
    };
    let with = model
        .layouts(&BTreeMap::from([(2, measured)]), None)
        .unwrap();
    assert_eq!(
        with[1],
        Layout {
            devices: 2,
            bytes_per_device: Bytes(77)
        }
    );
    assert!(with[0].bytes_per_device > GPU_OVERHEAD);
    let path = folder.path().display().to_string();
    let fixed = entry(
        &path,
        &["my-server", "{{ port }}"],
        json!({"pool_config": {"memory_gib": 10}}),
    );
    assert_eq!(
        layouts(&fixed),
        [
            (1, 10 * GIB),
            (2, 5 * GIB),
            (4, 5 * GIB / 2),
            (8, 5 * GIB / 4)
        ]
    );
}

#[test]
fn a_memory_fraction_per_device_is_the_same_in_every_layout() {
    let folder = model_folder();
    let model = local(
        &folder,
        &[
            "vllm",
            "serve",
            "x",
            "{{ port }}",
            "-tp",
            "{{ device_count }}",
            "--enforce-eager",
        ],
    );
    let layouts = model
        .layouts(&BTreeMap::new(), Some(DeviceSize::gpu(Bytes(100 * GIB))))
        .unwrap();
    assert_eq!(layouts.len(), 4);
    assert!(
        layouts
            .iter()
            .all(|layout| layout.bytes_per_device == Bytes(90 * GIB))
    );
}

#[test]
fn the_embedded_engine_has_one_layout() {
    let folder = model_folder();
    let document = json!({"engine_config": {"model_id": "m", "type": "CandleEngine", "model_path": folder.path()}});
    let (model, _) = documents::read(&document).unwrap();
    let layouts = layouts(&model);
    assert_eq!(layouts.len(), 1);
    let (spec, _) = model.spec(&Config::default(), None).unwrap();
    assert_eq!(layouts[0], (1, spec.bytes_per_device.0));
}
