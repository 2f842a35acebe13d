//! Finds options of llama-server that contradict each other or the number of devices.

use super::llama_offload::{Offload, SplitMode};
use super::tensor_override::{Target, TensorOverride};

impl Offload {
    /// Options that contradict each other or the number of devices.
    pub fn contradictions(&self, devices: usize) -> Vec<String> {
        let mut found = self.problems.clone();
        let usable = self.devices.map_or(devices, |count| count.min(devices));
        if usable == 0 && devices > 0 && self.gpu_layers.is_some_and(|layers| layers > 0) {
            let layers = self.gpu_layers.unwrap_or(0);
            found.push(format!(
                "--device none leaves no GPU for the layers of --n-gpu-layers {layers}"
            ));
        }
        if let Some(count) = self.devices
            && count > devices
            && devices > 0
        {
            found.push(format!(
                "--device names {count} devices, and a replica has {devices} (pool_config.gpus_per_replica)"
            ));
        }
        if usable > 0 && self.main_gpu >= usable && self.split != SplitMode::Layer {
            found.push(format!(
                "--main-gpu is {}, and a replica has {usable} devices, numbered from 0",
                self.main_gpu
            ));
        }
        let parts = self.proportions.len();
        if self.split == SplitMode::None && parts > 1 {
            found.push(format!(
                "--tensor-split has {parts} parts, and --split-mode none uses a single GPU"
            ));
        } else if usable > 0 && parts > usable {
            found.push(format!(
                "--tensor-split has {parts} parts, and a replica has {usable} devices (pool_config.gpus_per_replica)"
            ));
        }
        for TensorOverride { target, pattern } in &self.overrides {
            if let Target::Device(index) = target
                && *index >= usable
                && devices > 0
            {
                found.push(format!(
                    "--override-tensor moves `{}` to device {index}, and a replica has {usable} devices, numbered from 0",
                    pattern.regex()
                ));
            }
        }
        found
    }
}
