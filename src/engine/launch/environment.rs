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
const PREFIXES: [&str; 10] = [
    "AMD_", "CUDA", "HIP_", "HSA_", "LC_", "MIOPEN_", "NVIDIA_", "ONEAPI_", "SYCL_", "ZE_",
];
const SECRET_WORDS: [&str; 5] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"];

/// Variables that only the pool sets.
const RESERVED: [&str; 9] = [
    CUDA,
    CUDA_ORDER,
    HIP,
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    LEVEL_ZERO,
    LEVEL_ZERO_TILES,
    LEVEL_ZERO_ORDER,
    TAG,
];

const CUDA: &str = "CUDA_VISIBLE_DEVICES";
const CUDA_ORDER: &str = "CUDA_DEVICE_ORDER";
const HIP: &str = "HIP_VISIBLE_DEVICES";
const LEVEL_ZERO: &str = "ZE_AFFINITY_MASK";
/// The setting with which each tile of a card has its own index.
const LEVEL_ZERO_TILES: &str = "ZE_FLAT_DEVICE_HIERARCHY";
/// Unset for engines: Level Zero then counts GPUs of the processor last, as the inventory does.
const LEVEL_ZERO_ORDER: &str = "ZE_ENABLE_PCI_ID_DEVICE_ORDER";

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
    all.extend(placed(devices));
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
    !RESERVED.contains(&name)
        && (NAMES.contains(&name)
            || PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !sounds_secret)
}

/// The variables that give an engine exactly the devices of its placement. An engine in host memory must not use GPU memory, none of
/// which is reserved for it.
///
/// vLLM and Ray refuse to start if `CUDA_VISIBLE_DEVICES` and `HIP_VISIBLE_DEVICES` differ, and Ray if `ROCR_VISIBLE_DEVICES` is set.
/// HIP takes an empty list for none given, and -1 for an empty one.
fn placed(devices: &[DeviceAddress]) -> BTreeMap<String, String> {
    let of = |kind: DeviceKind| devices.iter().filter(move |device| device.kind == kind);
    let indices = |kind: DeviceKind| {
        let indices: Vec<String> = of(kind).map(|device| device.index.to_string()).collect();
        (!indices.is_empty()).then(|| indices.join(","))
    };
    let mut all = BTreeMap::new();
    let mut set = |name: &str, value: String| drop(all.insert(name.to_owned(), value));
    // UUIDs if all are known. A MIG slice has no other name.
    let uuids: Option<Vec<String>> = of(DeviceKind::Nvidia)
        .map(|device| device.uuid.clone())
        .collect();
    let nvidia = uuids
        .map(|uuids| uuids.join(","))
        .or_else(|| indices(DeviceKind::Nvidia))
        .unwrap_or_default();
    let amd = indices(DeviceKind::Amd);
    set(CUDA, amd.clone().unwrap_or(nvidia));
    set(CUDA_ORDER, "PCI_BUS_ID".to_owned());
    if !devices.iter().any(|device| device.kind.is_gpu()) {
        set(HIP, "-1".to_owned());
    }
    if let Some(indices) = amd {
        set(HIP, indices);
    }
    if let Some(indices) = indices(DeviceKind::Intel) {
        set(LEVEL_ZERO, indices);
        set(LEVEL_ZERO_TILES, "FLAT".to_owned());
    }
    for device in of(DeviceKind::Other) {
        if let Some(name) = &device.variable {
            let list = all.entry(name.clone()).or_default();
            let separator = if list.is_empty() { "" } else { "," };
            *list = format!("{list}{separator}{}", device.index);
        }
    }
    all
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
            variable: None,
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
    fn unlisted_and_secret_variables_are_not_inherited() {
        let all = complete(
            own(&[
                ("PATH", "/bin"),
                ("LC_ALL", "C"),
                ("CUDA_HOME", "/cuda"),
                ("NVIDIA_API_KEY", "s"),
                ("MODEL_POOL_ADMIN_KEY", "s"),
                ("HF_TOKEN", "s"),
                ("RUST_LOG", "debug"),
                ("HSA_OVERRIDE_GFX_VERSION", "11.0.0"),
                ("ROCR_VISIBLE_DEVICES", "2"),
                ("ZE_AFFINITY_MASK", "2"),
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
                "HIP_VISIBLE_DEVICES",
                "HSA_OVERRIDE_GFX_VERSION",
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
    fn uuids_are_used_only_if_every_gpu_has_one() {
        let both = placed(&[gpu(0, Some("GPU-a")), gpu(3, Some("MIG-b"))]);
        assert_eq!(both["CUDA_VISIBLE_DEVICES"], "GPU-a,MIG-b");
        let one = placed(&[gpu(0, Some("GPU-a")), gpu(3, None)]);
        assert_eq!(one["CUDA_VISIBLE_DEVICES"], "0,3");
        assert!(!one.contains_key("HIP_VISIBLE_DEVICES"), "{one:?}");
    }

    #[test]
    fn each_kind_of_device_has_its_own_variable() {
        let of_kind = |kind, variable: Option<&str>| {
            let device = |index| DeviceAddress {
                kind,
                variable: variable.map(str::to_owned),
                ..gpu(index, Some("GPU-x"))
            };
            let all = placed(&[device(1), device(4)]).into_iter();
            let all = all.filter(|(name, _)| name != "CUDA_DEVICE_ORDER");
            let all: Vec<String> = all.map(|(name, value)| format!("{name}={value}")).collect();
            all.join(" ")
        };
        assert_eq!(
            of_kind(DeviceKind::Amd, None),
            "CUDA_VISIBLE_DEVICES=1,4 HIP_VISIBLE_DEVICES=1,4"
        );
        assert_eq!(
            of_kind(DeviceKind::Intel, None),
            "CUDA_VISIBLE_DEVICES= ZE_AFFINITY_MASK=1,4 ZE_FLAT_DEVICE_HIERARCHY=FLAT"
        );
        assert_eq!(
            of_kind(DeviceKind::Other, Some("NPU_VISIBLE")),
            "CUDA_VISIBLE_DEVICES= NPU_VISIBLE=1,4"
        );
    }

    #[test]
    fn an_engine_in_host_memory_sees_no_gpu_even_if_the_controller_does() {
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
        assert_eq!(all["HIP_VISIBLE_DEVICES"], "-1");
    }
}
