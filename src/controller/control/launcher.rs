//! Builds the launch of a replica from the catalogue's recipe and the placement.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::devices::Devices;
use crate::view::{ModelFacts, remote_device};
use catalog::{ComputeDevice, Entry, Recipe, Secret};
use config::{Length, PoolSection};
use engine::{
    CandleDevice, CandleProgram, CommandProgram, CudaProgram, DeviceAddress, Launch,
    LivenessLimits, Program, ServeProgram, ServeWriters, ServerProgram, Watch,
};
use inventory::DeviceKind;
use pool::{ReplicaId, Share, Span};

/// Inputs shared by all launches.
pub(crate) struct Launcher {
    executable: PathBuf,
    cuda: CudaProgram,
    runtime_dir: PathBuf,
    log_dir: PathBuf,
    serve_writers: Arc<ServeWriters>,
}

impl Launcher {
    /// `executable` is our own binary, which contains the embedded engine, and `cuda` the one for NVIDIA GPUs.
    pub fn new(
        executable: PathBuf,
        cuda: CudaProgram,
        (runtime_dir, log_dir): (PathBuf, PathBuf),
        serve_writers: Arc<ServeWriters>,
    ) -> Launcher {
        Launcher {
            executable,
            cuda,
            runtime_dir,
            log_dir,
            serve_writers,
        }
    }

    /// Writers of the models in Ray Serve.
    pub fn serve_writers(&self) -> &Arc<ServeWriters> {
        &self.serve_writers
    }

    pub fn launch(
        &self,
        replica: ReplicaId,
        model: &ModelFacts,
        placement: &[Share],
        devices: &Devices,
        pool: &PoolSection,
    ) -> Result<Launch, String> {
        let address = |share: &Share| {
            let info = &devices.get(share.device)?.info;
            Some(DeviceAddress {
                id: info.id,
                index: info.index,
                uuid: info.uuid.clone(),
                total: info.installed,
                kind: info.kind,
                variable: info.variable.clone(),
            })
        };
        let entry = &model.entry;
        Ok(Launch {
            replica,
            model_name: entry.name.clone(),
            program: self.program(entry, placement, devices)?,
            devices: placement.iter().filter_map(address).collect(),
            bytes_per_device: placement
                .iter()
                .map(|share| share.bytes)
                .max()
                .unwrap_or_default(),
            runtime_dir: self.runtime_dir.clone(),
            log_dir: self.log_dir.clone(),
            watch: watch(entry, pool),
            member: None,
        })
    }

    fn program(
        &self,
        entry: &Entry,
        placement: &[Share],
        devices: &Devices,
    ) -> Result<Program, String> {
        let wide = |number: u32| number as usize;
        let in_host_memory = placement
            .iter()
            .filter_map(|share| devices.get(share.device))
            .any(|device| device.info.kind == DeviceKind::Host);
        Ok(match &entry.recipe {
            Recipe::Candle(recipe) => Program::Candle(CandleProgram {
                executable: self.executable.clone(),
                cuda: self.cuda.clone(),
                model_dir: recipe.model_path.clone(),
                context_tokens: recipe.context_tokens().map_err(|error| error.to_string())?
                    as usize,
                concurrency: wide(recipe.concurrency),
                threads: recipe.threads.map(wide),
                tokenizer_workers: recipe.tokenizer_workers.map(wide),
                budgets: recipe.budgets,
                speculation: recipe.speculation,
                quantization: recipe.quantization,
                numbers: recipe.numbers,
                verify: recipe.verify,
                task: recipe.task,
                adapters: recipe.adapters.clone(),
                adapter_room: recipe.adapter_room,
                overflows: recipe.overflows,
                device: match recipe.device {
                    ComputeDevice::Cpu => CandleDevice::Cpu,
                    ComputeDevice::Cuda => CandleDevice::Cuda,
                    ComputeDevice::Metal => CandleDevice::Metal,
                },
                env: plain(&recipe.env),
            }),
            Recipe::Command(recipe) => Program::Command(CommandProgram {
                argv: recipe.command.clone(),
                env: plain(&recipe.env),
                listen: recipe.listen.into(),
                ready_path: recipe.ready_path.clone(),
                model_path: recipe.model_path.clone().map(Into::into),
                served_model_name: recipe.served_model_name.clone(),
                working_dir: recipe.working_dir.clone(),
                context: recipe.context.map(wide),
            }),
            Recipe::Server(recipe) => Program::Server(ServerProgram {
                recipe: recipe.clone(),
                weights_per_device: u32::try_from(placement.len())
                    .ok()
                    .filter(|_| recipe.engine.needs_weights(in_host_memory))
                    .and_then(|devices| entry.weights_per_device(devices)),
            }),
            Recipe::Remote(recipe) => Program::Remote(recipe.clone()),
            Recipe::RayServe(recipe) => Program::RayServe(ServeProgram {
                recipe: recipe.clone(),
                writer: self.serve_writers.writer_for(&recipe.place),
            }),
        })
    }
}

/// The pool's limits, with the model file's own values in place of them.
pub(crate) fn watch(entry: &Entry, pool: &PoolSection) -> Watch {
    let own = |from_file: Option<Span>, general: Length| {
        from_file.map_or(general.duration(), |span| Duration::from_millis(span.0))
    };
    let stall_after = own(entry.stall_after, pool.stall_after);
    let model_name = entry.recipe.served_model_name().unwrap_or(&entry.name);
    let limits = LivenessLimits {
        heartbeat: pool.heartbeat.duration(),
        heartbeat_timeout: pool.heartbeat_timeout.duration(),
        heartbeat_misses: pool.heartbeat_misses,
        stall_after,
        first_token_after: own(entry.first_token_after, pool.first_token_after).max(stall_after),
        idle_probe: entry.idle_probe.unwrap_or(pool.idle_probe).duration(),
    };
    Watch {
        activity: Arc::default(),
        limits: if entry.recipe.is_remote() {
            remote_device::gentle(limits)
        } else {
            limits
        },
        model_name: model_name.to_owned(),
        metrics: entry.recipe.metrics(),
    }
}

fn plain(env: &BTreeMap<String, Secret>) -> BTreeMap<String, String> {
    env.iter()
        .map(|(name, value)| (name.clone(), value.0.clone()))
        .collect()
}
