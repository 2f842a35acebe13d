//! The devices according to the configuration, for `serve`, `check`, `node` and `simulate`.

use std::path::PathBuf;

use config::{Config, Provider};
use inventory::{DeviceChoice, DeviceInfo, Inventory, InventorySettings};
use pool::DeviceReading;

pub(crate) fn settings(config: &Config) -> InventorySettings {
    let section = &config.inventory;
    InventorySettings {
        provider: section.provider,
        host_memory: section.host_memory.0,
        headroom: section.headroom,
        devices: section
            .devices
            .iter()
            .map(|device| inventory::FixedDevice {
                name: device.name.clone(),
                memory: device.memory.0,
                node: device.node.to_string(),
                product: device.product.clone(),
                labels: device.labels.clone(),
            })
            .collect(),
        choices: section
            .devices
            .iter()
            .filter(|_| section.provider == Provider::Nvml)
            .map(|device| DeviceChoice {
                name: Some(device.name.clone()),
                index: device.index,
                uuid: device.uuid.clone(),
                memory: Some(device.memory.0),
                labels: device.labels.clone(),
            })
            .collect(),
        nvml_library: std::env::var_os("MODEL_POOL_NVML_LIBRARY").map(PathBuf::from),
    }
}

/// The devices that `serve` would find, with no memory in use.
pub(crate) fn found(config: &Config) -> Result<Vec<DeviceReading>, String> {
    let inventory = Inventory::open(&settings(config)).map_err(|error| error.to_string())?;
    Ok(inventory.devices().iter().map(unused).collect())
}

/// The reading of an unused device.
pub(crate) fn unused(info: &DeviceInfo) -> DeviceReading {
    DeviceReading {
        name: info.name.clone(),
        node: info.node,
        total: info.total,
        headroom: info.headroom,
        ..DeviceReading::default()
    }
}

/// The settings, limited to the GPUs in `visible`, which has the format of `CUDA_VISIBLE_DEVICES`. Slurm and Ray lend a job some
/// GPUs of a machine through this variable, and may lend the others to another job. Devices listed in the configuration are not
/// changed.
pub(crate) fn lent(
    mut settings: InventorySettings,
    visible: Option<&str>,
) -> Result<InventorySettings, String> {
    let reads_gpus = matches!(settings.provider, Provider::Auto | Provider::Nvml);
    let Some(visible) = visible.filter(|_| reads_gpus && settings.choices.is_empty()) else {
        return Ok(settings);
    };
    let parts = visible.split(',').map(str::trim);
    // CUDA ignores everything after a part that does not name a device.
    let names =
        parts.take_while(|name| name.parse::<u32>().is_ok() || name.contains('-') && *name != "-1");
    settings.choices = names
        .map(|name| DeviceChoice {
            index: name.parse().ok(),
            uuid: name.parse::<u32>().is_err().then(|| name.to_owned()),
            ..DeviceChoice::default()
        })
        .collect();
    match (settings.choices.is_empty(), settings.provider) {
        (true, Provider::Nvml) => Err(format!(
            "CUDA_VISIBLE_DEVICES is `{visible}`, which names no GPU, and inventory.provider is nvml; request a node with GPUs, or set the provider to auto"
        )),
        (true, _) => {
            settings.provider = Provider::Host;
            Ok(settings)
        }
        (false, _) => Ok(settings),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lent_by(visible: Option<&str>, provider: Provider) -> Result<InventorySettings, String> {
        let mut config = Config::default();
        config.inventory.provider = provider;
        lent(settings(&config), visible)
    }

    #[test]
    fn a_job_uses_the_gpus_that_it_was_lent_and_no_others() {
        let all = lent_by(None, Provider::Auto).expect("all");
        assert!(all.choices.is_empty());
        let two = lent_by(Some("2, 5"), Provider::Auto).expect("two");
        let indices: Vec<_> = two.choices.iter().map(|choice| choice.index).collect();
        assert_eq!(indices, [Some(2), Some(5)]);
        let one = lent_by(Some("GPU-4ac0-17,-1,3"), Provider::Nvml).expect("one");
        let uuids: Vec<_> = one
            .choices
            .iter()
            .map(|choice| choice.uuid.as_deref())
            .collect();
        assert_eq!(uuids, [Some("GPU-4ac0-17")]);
    }

    #[test]
    fn a_job_without_gpus_takes_none() {
        for visible in ["", "-1", "NoDevFiles"] {
            let none = lent_by(Some(visible), Provider::Auto).expect("host");
            assert_eq!((none.provider, none.choices), (Provider::Host, vec![]));
            let refused = lent_by(Some(visible), Provider::Nvml).expect_err("no GPU");
            assert!(refused.contains("names no GPU"), "{refused}");
        }
    }

    #[test]
    fn devices_of_the_configuration_stay() {
        let fixed = lent_by(Some("0"), Provider::Fixed).expect("fixed");
        assert_eq!((fixed.provider, fixed.choices), (Provider::Fixed, vec![]));
    }
}
