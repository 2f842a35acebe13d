//! The environment of an engine process: an allow-list of the controller's variables, the recipe's variables,
//! the devices of the placement, and the tag that identifies stray processes. Nothing else from the
//! controller's environment reaches an engine, in particular no key.

use std::collections::BTreeMap;

use super::report::{DeviceAddress, DeviceKind};
use crate::failures::EngineError;

/// Variables passed on by exact name.
const NAMES: [&str; 25] = [
    "HF_DATASETS_CACHE",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_DISABLE_TELEMETRY",
    "HF_HUB_OFFLINE",
    "HOME",
    "HUGGINGFACE_HUB_CACHE",
    "LANG",
    "LANGUAGE",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "PATH",
    "RAYON_NUM_THREADS",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "TORCH_HOME",
    "TRANSFORMERS_CACHE",
    "TRANSFORMERS_OFFLINE",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
];

/// Variables passed on by prefix, unless the name looks like a secret (`NVIDIA_API_KEY`).
const PREFIXES: [&str; 3] = ["CUDA", "LC_", "NVIDIA_"];
const SECRET_WORDS: [&str; 5] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"];

/// Variables that only the pool sets.
const RESERVED: [&str; 3] = [VISIBLE_DEVICES, DEVICE_ORDER, TAG];

const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
const DEVICE_ORDER: &str = "CUDA_DEVICE_ORDER";

/// Marks every process of an engine, even in another session.
pub(crate) const TAG: &str = "MODEL_POOL_ENGINE";

/// Refuses a recipe that sets a reserved variable: the engine would use devices that are not reserved for it.
pub(crate) fn check(model: &str, recipe: &BTreeMap<String, String>) -> Result<(), EngineError> {
    match RESERVED.iter().find(|name| recipe.contains_key(**name)) {
        None => Ok(()),
        Some(name) => Err(EngineError::ReservedVariable {
            model: model.to_owned(),
            name: (*name).to_owned(),
        }),
    }
}

/// The complete environment of one engine. `own` is the controller's; the recipe's values override it, and the
/// placement overrides both.
pub(crate) fn complete(
    own: impl Iterator<Item = (String, String)>,
    recipe: BTreeMap<String, String>,
    devices: &[DeviceAddress],
    tag: &str,
) -> BTreeMap<String, String> {
    let mut all: BTreeMap<_, _> = passed_on(own).collect();
    all.extend(recipe);
    all.insert(VISIBLE_DEVICES.to_owned(), visible_devices(devices));
    all.insert(DEVICE_ORDER.to_owned(), "PCI_BUS_ID".to_owned());
    all.insert(TAG.to_owned(), tag.to_owned());
    all
}

/// The controller's variables that every engine gets.
pub(super) fn passed_on(
    own: impl Iterator<Item = (String, String)>,
) -> impl Iterator<Item = (String, String)> {
    own.filter(|(name, _)| is_passed_on(name))
}

fn is_passed_on(name: &str) -> bool {
    let sounds_secret = SECRET_WORDS.iter().any(|word| name.contains(word));
    NAMES.contains(&name)
        || (PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !sounds_secret)
}

/// UUIDs if all are known, otherwise indices. Empty for a placement in host memory: such an engine must not use GPU memory, none of
/// which is reserved for it.
fn visible_devices(devices: &[DeviceAddress]) -> String {
    let gpus = || {
        devices
            .iter()
            .filter(|device| device.kind == DeviceKind::Nvidia)
    };
    let uuids: Option<Vec<String>> = gpus().map(|device| device.uuid.clone()).collect();
    uuids
        .unwrap_or_else(|| gpus().map(|device| device.index.to_string()).collect())
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::{Bytes, DeviceId};

    fn gpu(index: u32, uuid: Option<&str>) -> DeviceAddress {
        DeviceAddress {
            id: DeviceId(index),
            index,
            uuid: uuid.map(str::to_owned),
            kind: DeviceKind::Nvidia,
            total: Bytes::ZERO,
        }
    }

    fn own(pairs: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        pairs.into_iter()
    }

    #[test]
    fn what_is_not_on_the_list_or_sounds_secret_stays_behind() {
        let all = complete(
            own(&[
                ("PATH", "/bin"),
                ("LC_ALL", "C"),
                ("CUDA_HOME", "/cuda"),
                ("NVIDIA_API_KEY", "s"),
                ("MODEL_POOL_ADMIN_KEY", "s"),
                ("HF_TOKEN", "s"),
                ("RUST_LOG", "debug"),
            ]),
            BTreeMap::new(),
            &[],
            "t",
        );
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "CUDA_DEVICE_ORDER",
                "CUDA_HOME",
                "CUDA_VISIBLE_DEVICES",
                "LC_ALL",
                "MODEL_POOL_ENGINE",
                "PATH"
            ]
        );
    }

    #[test]
    fn a_recipe_cannot_choose_its_own_gpus() {
        let recipe = own(&[("CUDA_VISIBLE_DEVICES", "0")]).collect();
        let error = check("org/model", &recipe).unwrap_err().to_string();
        assert!(error.contains("env.CUDA_VISIBLE_DEVICES"), "{error}");
        assert!(check("org/model", &own(&[("CUDA_CACHE_PATH", "/c")]).collect()).is_ok());
    }

    #[test]
    fn uuids_are_used_only_when_all_are_known() {
        assert_eq!(
            visible_devices(&[gpu(0, Some("GPU-a")), gpu(3, Some("GPU-b"))]),
            "GPU-a,GPU-b"
        );
        assert_eq!(
            visible_devices(&[gpu(0, Some("GPU-a")), gpu(3, None)]),
            "0,3"
        );
    }

    #[test]
    fn an_engine_in_host_memory_sees_no_gpu_also_when_the_controller_does() {
        let host = DeviceAddress {
            kind: DeviceKind::Host,
            total: Bytes::ZERO,
            ..gpu(0, None)
        };
        let all = complete(
            own(&[("CUDA_VISIBLE_DEVICES", "0,1")]),
            BTreeMap::new(),
            &[host],
            "t",
        );
        assert_eq!(all["CUDA_VISIBLE_DEVICES"], "");
    }
}
