//! Finds the devices of each maker, and applies what the environment and the configuration leave of them.

use std::time::Duration;

use super::source::FoundDevices;
use super::sysfs::Root;
use super::{
    InventoryError, InventorySettings, Provider, amd, choice, command_devices, host, intel, nvml,
    visible,
};

/// The search for devices.
pub(super) struct Opening<'a> {
    pub settings: &'a InventorySettings,
    pub deadline: Duration,
    pub root: &'a Root,
    pub excluded: Vec<String>,
    pub notices: Vec<String>,
}

impl Opening<'_> {
    /// The devices of each maker, or the host.
    pub fn all_makers(&mut self) -> Result<Vec<FoundDevices>, InventoryError> {
        let mut all = Vec::new();
        let mut reason = String::new();
        for provider in [Provider::Nvml, Provider::Amd, Provider::Intel] {
            match self.one(provider, !all.is_empty()) {
                Ok(found) => all.push(found),
                // A driver exists but does not respond: host memory would not be a replacement.
                Err(error @ InventoryError::Hangs { .. }) => return Err(error),
                // A variable that names a device which does not exist is a mistake.
                Err(error @ InventoryError::NotVisible { .. }) => return Err(error),
                Err(error) => {
                    let separator = if reason.is_empty() { "" } else { "; " };
                    reason = format!("{reason}{separator}{}", error.why_no_gpu());
                }
            }
        }
        if all.is_empty() {
            // A named library that does not work is probably a mistake; a missing driver is not.
            if self.settings.nvml_library.is_some() {
                tracing::warn!(%reason, "no GPU here, also not through the named library of NVIDIA; the pool uses the host's memory");
            } else {
                tracing::info!(%reason, "no GPU here; the pool uses the host's memory");
            }
            all.push(host::open(self.settings.host_memory, self.root)?);
        }
        Ok(all)
    }

    /// The devices of a provider that finds them, as far as the environment or the configuration leaves them.
    pub fn one(
        &mut self,
        provider: Provider,
        with_nvidia: bool,
    ) -> Result<FoundDevices, InventoryError> {
        let (settings, root, deadline) = (self.settings, self.root, self.deadline);
        let is_only = settings.provider == provider;
        let mut found = match provider {
            Provider::Amd => amd::open(root, deadline, is_only)?,
            Provider::Intel => intel::open(root, deadline)?,
            Provider::Command => command_devices::open(&settings.command, deadline)?,
            _ => {
                let library = settings.nvml_library.as_deref();
                nvml::open(library, root, &settings.environment, deadline)?
            }
        };
        self.excluded.append(&mut found.excluded);
        let all = std::mem::take(&mut found.devices);
        let environment = &settings.environment;
        let visible = if provider == Provider::Command {
            Ok(None)
        } else {
            visible::visible(&all, environment, provider, with_nvidia)
        };
        found.devices = if settings.choices.is_empty() {
            match visible? {
                Some(visible) => {
                    if let Some(others) = visible::left_out(&all, &visible.devices) {
                        self.excluded.push(format!(
                            "{} leaves out the GPUs of {others}: the pool does not use them",
                            visible.by
                        ));
                    }
                    self.notices
                        .extend(visible::ambiguous_order(&all, environment));
                    visible.devices
                }
                None => all,
            }
        } else {
            let chosen = choice::choose(all, &settings.choices)?;
            let lent = match &visible {
                Ok(None) => None,
                Ok(Some(visible)) => visible::left_out(&chosen, &visible.devices)
                    .map(|others| (visible.by.as_str(), others)),
                Err(
                    InventoryError::NoneVisible { variable, .. }
                    | InventoryError::NotVisible { variable, .. },
                ) => visible::left_out(&chosen, &[]).map(|others| (*variable, others)),
                Err(_) => None,
            };
            if let Some((by, others)) = lent {
                self.notices.push(format!(
                    "inventory.devices takes the GPUs of {others}, which {by} leaves out: the configuration counts"
                ));
            }
            chosen
        };
        Ok(found)
    }
}
