//! The program that computes on NVIDIA GPUs: `model-pool` built with CUDA. It needs the driver's library to start at all, so it is
//! a second program, used only for engines on GPUs. This module holds the facts found by `cuda_probe`, and chooses the program of
//! an engine.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::report::{CandleDevice, CandleProgram, DeviceKind, Launch};
use crate::failures::cuda_trouble::version;
use crate::failures::{CudaTrouble, EngineError, Failure};

/// File name of the program, next to `model-pool` unless the configuration names another.
pub const CUDA_PROGRAM: &str = "model-pool-cuda";
/// The configuration's key for the program.
pub const CUDA_PROGRAM_KEY: &str = "inventory.cuda_program";

pub(super) const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Result of the search at the start of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CudaProgram {
    Ready(ReadyCuda),
    /// The program exists and cannot be used.
    Unusable {
        executable: PathBuf,
        trouble: CudaTrouble,
    },
    /// The file does not exist.
    Absent {
        executable: PathBuf,
    },
}

/// A program that has opened the driver and found GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyCuda {
    pub executable: PathBuf,
    /// Version in CUDA's notation: 13000 is 13.0.
    pub built_for: u32,
    pub driver: u32,
    pub gpus: u32,
    /// The folder of libraries next to the program, if it exists.
    pub libraries: Option<PathBuf>,
    /// `LD_LIBRARY_PATH` with that folder, unless the model's file sets its own.
    pub library_path: Option<String>,
}

impl Default for CudaProgram {
    /// Another machine's program, or none searched for.
    fn default() -> CudaProgram {
        CudaProgram::Absent {
            executable: CUDA_PROGRAM.into(),
        }
    }
}

impl CudaProgram {
    pub fn is_ready(&self) -> bool {
        matches!(self, CudaProgram::Ready(_))
    }

    /// The reason the program cannot be used, with advice; `None` if it can.
    pub fn trouble(&self) -> Option<CudaTrouble> {
        match self {
            CudaProgram::Ready(_) => None,
            CudaProgram::Unusable {
                executable,
                trouble,
            } => Some(CudaTrouble {
                problem: format!(
                    "{} cannot be used: {}",
                    executable.display(),
                    trouble.problem
                ),
                failure: trouble.failure,
            }),
            CudaProgram::Absent { executable } => Some(CudaTrouble {
                problem: format!(
                    "there is no {}, the program that computes on NVIDIA GPUs: build it with `bash .ci/cuda` and copy it there, or name it in {CUDA_PROGRAM_KEY}, then start model-pool again (docs/guides/gpu.md); or write device: cpu",
                    executable.display()
                ),
                failure: Failure::BinaryMissing,
            }),
        }
    }
}

/// Used in the log and by `model-pool check`.
impl fmt::Display for CudaProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CudaProgram::Ready(ready) = self else {
            let trouble = self.trouble().map(|trouble| trouble.problem);
            return f.write_str(&trouble.unwrap_or_default());
        };
        write!(
            f,
            "{}, built for CUDA {}; the driver supports CUDA up to {}; {} {}",
            ready.executable.display(),
            version(ready.built_for),
            version(ready.driver),
            ready.gpus,
            if ready.gpus == 1 { "GPU" } else { "GPUs" },
        )?;
        match &ready.libraries {
            Some(folder) => write!(f, "; libraries from {}", folder.display()),
            None => f.write_str("; libraries of the system"),
        }
    }
}

/// Chooses the program of an engine, and its environment.
pub(crate) fn choose(
    program: &CandleProgram,
    launch: &Launch,
) -> Result<(PathBuf, BTreeMap<String, String>), EngineError> {
    if program.device != CandleDevice::Cuda {
        return Ok((program.executable.clone(), program.env.clone()));
    }
    let mut devices = launch.devices.iter();
    if devices.any(|device| device.kind != DeviceKind::Nvidia) {
        return Err(EngineError::CudaWithoutGpu {
            model: launch.model_name.clone(),
        });
    }
    match &program.cuda {
        CudaProgram::Ready(ready) => {
            let mut env = program.env.clone();
            let own = env.get(LIBRARY_PATH).map(String::as_str);
            if let Some(path) = library_path_of(ready, own) {
                env.insert(LIBRARY_PATH.to_owned(), path);
            }
            Ok((ready.executable.clone(), env))
        }
        other => {
            let trouble = other
                .trouble()
                .unwrap_or_else(|| CudaTrouble::new(Failure::Crashed, "its program is not known"));
            Err(EngineError::CudaProgram {
                model: launch.model_name.clone(),
                problem: trouble.problem,
                failure: trouble.failure,
            })
        }
    }
}

/// The value of a model's file comes first, since it is set on purpose.
fn library_path_of(ready: &ReadyCuda, of_model: Option<&str>) -> Option<String> {
    match of_model {
        None => ready.library_path.clone(),
        Some(own) => joined([Some(own.into()), ready.libraries.clone()]),
    }
}

/// `LD_LIBRARY_PATH` with this folder before the process's own value. An empty part would mean the working directory.
pub(super) fn with_folder(folder: Option<&Path>, own: Option<&str>) -> Option<String> {
    let folder = folder?;
    joined([Some(folder.to_owned()), own.map(PathBuf::from)])
}

fn joined(parts: [Option<PathBuf>; 2]) -> Option<String> {
    let parts: Vec<String> = parts
        .iter()
        .flatten()
        .map(|part| part.display().to_string())
        .filter(|part| !part.is_empty())
        .collect();
    (!parts.is_empty()).then(|| parts.join(":"))
}

#[cfg(test)]
mod tests;
