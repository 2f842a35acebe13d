//! Computes the memory of a model by place, for engines with options that place its parts.

use super::estimate::{CommandNeed, EstimateError};
use super::figures::Figures;
use super::layouts::DeviceSize;
use super::llama_cpp::{self, Room};
use super::memory_split::MemorySplit;
use crate::engines::EngineKind;
use crate::entries::Entry;
use crate::recipes::{EngineOptions, Recipe};
use model_files::ModelFiles;

impl Entry {
    /// The memory of a replica by place, for a llama.cpp model with a readable GGUF header that runs on GPUs with separate memory. Blocking: reads the
    /// header.
    pub fn memory_split(&self, device: Option<DeviceSize>) -> Option<MemorySplit> {
        Figures::on(self, device).split()
    }

    /// The options of llama-server that decide where parts of the model are.
    pub(crate) fn llama_options(&self, devices: u32) -> Option<(EngineOptions, Option<u32>)> {
        let (options, context) = match &self.recipe {
            Recipe::Command(command) => (command.engine_options(devices), command.context),
            Recipe::Server(server) => (server.engine_options(devices), server.context),
            Recipe::Candle(_) | Recipe::Remote(_) | Recipe::RayServe(_) => return None,
        };
        (options.kind == EngineKind::LlamaCpp).then_some((options, context))
    }
}

impl Figures<'_> {
    pub(super) fn split(&self) -> Option<MemorySplit> {
        if self.in_host_memory || self.in_unified_memory {
            return None;
        }
        let devices = self.entry.devices_per_replica;
        let (options, context) = self.entry.llama_options(devices)?;
        let files = self
            .files()
            .ok()
            .filter(|files| !files.tensors.is_empty())?;
        let room = Room::new(&options, &files.architecture, context).ok()?;
        let need = llama_cpp::on_gpus(&options, files, room, devices);
        Some(MemorySplit {
            gpus: need.devices,
            host: need.host,
            mapped: need.mapped,
            options: options.offload.words,
        })
    }

    /// The memory of llama-server on the device that holds most of the model.
    pub(super) fn llama(
        &self,
        options: &EngineOptions,
        files: &ModelFiles,
        context: Option<u32>,
        devices: u32,
    ) -> Result<CommandNeed, EstimateError> {
        let room = Room::new(options, &files.architecture, context)?;
        let need = if self.in_host_memory {
            llama_cpp::on_host(options, files, room)
        } else {
            llama_cpp::on_gpus(options, files, room, devices)
        };
        let bytes = match need.devices.into_iter().max() {
            Some(most) if self.in_unified_memory => most + need.host,
            Some(most) => most,
            None => need.host,
        };
        Ok(CommandNeed {
            guesses: need.guesses,
            ..CommandNeed::fixed(bytes)
        })
    }
}
