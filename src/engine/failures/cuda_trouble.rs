//! Parses the output of a program with CUDA that could not start: messages of the dynamic loader (glibc), of CUDA's driver, and of
//! the program itself. Reports the missing part and what to do.

use super::failure::Failure;

/// The reason the program cannot be used, with advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaTrouble {
    pub problem: String,
    pub failure: Failure,
}

impl CudaTrouble {
    pub(crate) fn new(failure: Failure, problem: impl Into<String>) -> CudaTrouble {
        CudaTrouble {
            problem: problem.into(),
            failure,
        }
    }
}

/// Lines of output are cut after this many characters.
const LINE_CHARS_MAX: usize = 300;

const INSTALL_DRIVER: &str = "install NVIDIA's driver, 580 or later; in a container, give it the GPUs (docker run --gpus all) and NVIDIA_DRIVER_CAPABILITIES=compute,utility";
const NEWER_DRIVER: &str =
    "install a newer one (580 or later for CUDA 13), or build model-pool-cuda with an older CUDA";
const RESTART: &str = "then start model-pool again";

/// Names of driver errors, with advice.
const DRIVER_ERRORS: &[(&str, &str)] = &[
    (
        "CUDA_ERROR_NO_DEVICE",
        "the driver shows no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES; in a container, give it the GPUs (docker run --gpus all)",
    ),
    (
        "CUDA_ERROR_STUB_LIBRARY",
        "the libcuda.so.1 that was found is the toolkit's stub, not a driver: remove the folder `stubs` from LD_LIBRARY_PATH",
    ),
    (
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "the driver's library and its kernel module are of different versions: restart the machine after an upgrade of the driver",
    ),
    (
        "CUDA_ERROR_SYSTEM_NOT_READY",
        "the GPUs are not ready: start NVIDIA's Fabric Manager (systemctl start nvidia-fabricmanager)",
    ),
    (
        "CUDA_ERROR_UNKNOWN",
        "check that the kernel module nvidia_uvm is loaded (modprobe nvidia_uvm), and that this account may open /dev/nvidia*",
    ),
];

/// Advice for an engine that failed although the program had worked before: kernels that do not fit the driver or the GPU, or a
/// driver that has changed since.
pub(crate) fn advice(output: &str) -> Option<(Failure, &'static str)> {
    const KERNELS: &[(&str, Failure, &str)] = &[
        (
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            Failure::DriverTooOld,
            "the driver is older than the CUDA that model-pool-cuda was built with; install a newer one, or build with an older CUDA",
        ),
        (
            "CUDA_ERROR_NO_BINARY_FOR_GPU",
            Failure::NotExecutable,
            "model-pool-cuda was not built for this GPU: it needs compute capability 8.0 or later, or that of CUDA_COMPUTE_CAP at its build",
        ),
        (
            "error while loading shared libraries",
            Failure::MissingLibrary,
            "a library has disappeared since model-pool was started; `model-pool check` says which one and what to do",
        ),
    ];
    let kernels = KERNELS.iter().find(|(text, ..)| output.contains(text));
    let of_kernels = kernels.map(|(_, failure, advice)| (*failure, *advice));
    let driver = DRIVER_ERRORS.iter().find(|(name, _)| output.contains(name));
    of_kernels.or(driver.map(|(_, advice)| (Failure::MissingLibrary, *advice)))
}

/// Interprets the standard error of a program that ended with an error.
pub(crate) fn read(output: &str) -> CudaTrouble {
    let lines = || {
        output
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    if let Some(trouble) = lines().find_map(of_line) {
        return trouble;
    }
    let last: String = lines()
        .next_back()
        .unwrap_or("it printed nothing")
        .chars()
        .filter(|letter| !letter.is_control())
        .take(LINE_CHARS_MAX)
        .collect();
    CudaTrouble::new(
        Failure::Crashed,
        format!("it does not start: {last}; run it with `version` to see the complete output"),
    )
}

fn of_line(line: &str) -> Option<CudaTrouble> {
    if let Some((_, rest)) = line.split_once("error while loading shared libraries: ") {
        let (library, reason) = rest.split_once(": ").unwrap_or((rest, ""));
        return Some(of_library(library, reason));
    }
    if let Some((_, rest)) = line.split_once("undefined symbol: ") {
        let symbol = rest.split([',', ' ']).next().unwrap_or(rest);
        return Some(of_symbol(symbol));
    }
    // `/lib/libc.so.6: version `GLIBC_2.39' not found (required by …)`
    if let Some((_, rest)) = line.split_once(": version `")
        && let Some((version, _)) = rest.split_once("' not found")
    {
        return Some(CudaTrouble::new(
            Failure::NotExecutable,
            format!(
                "it was built on a newer system (it needs {version}): build it on this system, or on one that is as old"
            ),
        ));
    }
    if let Some((name, advice)) = DRIVER_ERRORS.iter().find(|(name, _)| line.contains(name)) {
        return Some(CudaTrouble::new(
            Failure::MissingLibrary,
            format!("{name}: {advice}; {RESTART}"),
        ));
    }
    if line.contains("built without CUDA") {
        return Some(CudaTrouble::new(
            Failure::NotExecutable,
            "it is a model-pool without CUDA: build it with `--features cuda` (docs/guides/gpu.md)",
        ));
    }
    line.contains("unrecognized subcommand").then(|| {
        CudaTrouble::new(
            Failure::NotExecutable,
            "it is of another version: build it from the same source as model-pool",
        )
    })
}

fn of_library(library: &str, reason: &str) -> CudaTrouble {
    let how = match reason {
        "" => "cannot be opened".to_owned(),
        reason if reason.ends_with("No such file or directory") => "is missing".to_owned(),
        reason => format!("cannot be used ({reason})"),
    };
    let advice = match package_of(library) {
        _ if library.starts_with("libcuda.so") => INSTALL_DRIVER.to_owned(),
        Some(package) => format!(
            "put it into the folder model-pool-cuda-libraries next to the program, or install it (pip install {package}, or NVIDIA's packages) and add its folder to LD_LIBRARY_PATH"
        ),
        None => "install the package that has it".to_owned(),
    };
    CudaTrouble::new(
        Failure::MissingLibrary,
        format!("{library} {how}: {advice}; {RESTART}"),
    )
}

/// The PyPI package of a CUDA library.
fn package_of(library: &str) -> Option<&'static str> {
    let stem = library.split(".so").next().unwrap_or(library);
    match stem {
        "libcublas" | "libcublasLt" => Some("nvidia-cublas"),
        "libcurand" => Some("nvidia-curand"),
        "libcudart" => Some("nvidia-cuda-runtime"),
        "libnvrtc" => Some("nvidia-cuda-nvrtc"),
        _ => None,
    }
}

/// Prefixes of function names, with the library that contains them.
const LIBRARIES: &[(&str, &str)] = &[
    ("cublas", "libcublas"),
    ("curand", "libcurand"),
    ("cuda", "libcudart"),
    ("nvrtc", "libnvrtc"),
];

/// A function missing from a library belongs to a newer version of it.
fn of_symbol(symbol: &str) -> CudaTrouble {
    let mut rows = LIBRARIES.iter();
    if let Some((_, library)) = rows.find(|(beginning, _)| symbol.starts_with(*beginning)) {
        return CudaTrouble::new(
            Failure::MissingLibrary,
            format!(
                "{library} has no {symbol}: it is older than the program; use the version that the program was built with, or remove the older one from LD_LIBRARY_PATH"
            ),
        );
    }
    if symbol.starts_with("cu") {
        CudaTrouble::new(
            Failure::DriverTooOld,
            format!("NVIDIA's driver is too old, it has no {symbol}: {NEWER_DRIVER}"),
        )
    } else {
        CudaTrouble::new(
            Failure::MissingLibrary,
            format!("a library has no {symbol}: build the program on this system"),
        )
    }
}

/// Returns a problem if the driver's major version is older than the one the program was built for.
pub(crate) fn of_versions(built_for: u32, driver: u32) -> Option<CudaTrouble> {
    (driver / 1000 < built_for / 1000).then(|| {
        CudaTrouble::new(
            Failure::DriverTooOld,
            format!(
                "NVIDIA's driver is too old, it supports CUDA up to {}, and the program was built for {}: {NEWER_DRIVER}",
                version(driver),
                version(built_for)
            ),
        )
    })
}

/// 13010 is 13.1.
pub(crate) fn version(number: u32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

#[cfg(test)]
mod tests;
