//! GPUs that share the machine's memory, such as GB10 and Jetson. Their driver reports a query of their memory as not supported.

use std::collections::BTreeSet;

use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;

use super::machine::{machine_memory, own_memory};
use super::nvml::{Gpus, ProcessList};
use super::{DeviceInfo, DeviceUse};
use pool::Bytes;

impl Gpus {
    /// A GPU that shares the machine's memory. File pages count as available. The memory of our processes is what NVML reports for
    /// them on the GPU and what they hold as programs of the machine.
    pub(super) fn ask_unified(
        &self,
        gpu: &nvml_wrapper::Device<'_>,
        device: &DeviceInfo,
        ours: &BTreeSet<u32>,
    ) -> Result<DeviceUse, NvmlError> {
        let machine = machine_memory().ok_or(NvmlError::NotSupported)?;
        let used = machine.total.saturating_sub(machine.available);
        let mut listed = ProcessList::new(gpu);
        // An empty list is not certain while engines run: they are probably on the GPU.
        listed.complete &= ours.is_empty() || !listed.processes.is_empty();
        for &pid in ours {
            if let Some(held) = own_memory(pid) {
                let on_gpu = listed.processes.entry(pid).or_insert(Some(Bytes::ZERO));
                *on_gpu = on_gpu.map(|on_gpu| on_gpu + held);
            }
        }
        let own = self.own(device.id, used, &listed, ours);
        // The machine has `available` for the pool; other processes use the rest of the device.
        let foreign = device.total.saturating_sub(machine.available + own);
        Ok(DeviceUse {
            id: device.id,
            total: device.total,
            used: own + foreign,
            own,
            foreign,
            processes: listed.known(),
            utilisation_percent: gpu.utilization_rates().ok().map(|rates| rates.gpu),
            temperature_celsius: gpu.temperature(TemperatureSensor::Gpu).ok(),
        })
    }
}
