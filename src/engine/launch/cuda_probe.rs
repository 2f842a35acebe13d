//! Probes the program with CUDA once, at the start: runs it as `PROGRAM cuda-probe`, which opens the driver, and parses its output.
//! If libraries are missing, the dynamic loader's message names them.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;

use super::cuda_program::{CUDA_PROGRAM, CudaProgram, LIBRARY_PATH, ReadyCuda, with_folder};
use super::environment;
use crate::failures::{CudaTrouble, Failure, cuda_trouble};

/// The subcommand that prints the facts.
const PROBE: &str = "cuda-probe";
/// The driver takes seconds to wake many GPUs if nothing else keeps them awake.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);
/// Folder of libraries next to the program.
const LIBRARIES: &str = "model-pool-cuda-libraries";
/// Folder of libraries relative to a program in `bin`.
const LIBRARIES_OF_PREFIX: &str = "../lib/model-pool-cuda-libraries";

/// Places to search, and the version to find.
#[derive(Clone, Debug)]
pub struct CudaSearch {
    /// Our own executable.
    pub own: PathBuf,
    /// Our own executable is built with CUDA, so no other program is needed.
    pub own_has_cuda: bool,
    /// The program that the configuration names.
    pub named: Option<PathBuf>,
    /// Our version. The command lines of both programs have to match.
    pub version: &'static str,
}

impl CudaSearch {
    fn executable(&self) -> PathBuf {
        match &self.named {
            Some(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
            None if self.own_has_cuda => self.own.clone(),
            None => self.own.with_file_name(CUDA_PROGRAM),
        }
    }
}

/// Output of the probe.
#[derive(Debug, Deserialize)]
struct Facts {
    version: String,
    built_for: u32,
    driver: u32,
    gpus: u32,
}

/// Finds the program and probes it. Without a program, runs nothing.
pub async fn find_cuda(search: &CudaSearch) -> CudaProgram {
    let executable = search.executable();
    if !executable.is_file() {
        return CudaProgram::Absent { executable };
    }
    let libraries = libraries_of(&executable);
    let own = std::env::var(LIBRARY_PATH).ok();
    let library_path = with_folder(libraries.as_deref(), own.as_deref());
    let output = run(&executable, library_path.as_deref()).await;
    match output.and_then(|output| facts(&output, search.version)) {
        Ok(facts) => CudaProgram::Ready(ReadyCuda {
            executable,
            built_for: facts.built_for,
            driver: facts.driver,
            gpus: facts.gpus,
            libraries,
            library_path,
        }),
        Err(trouble) => CudaProgram::Unusable {
            executable,
            trouble,
        },
    }
}

/// The folder with CUDA's libraries that was installed with the program.
fn libraries_of(executable: &Path) -> Option<PathBuf> {
    let folder = executable.parent()?;
    let places = [LIBRARIES, LIBRARIES_OF_PREFIX].map(|place| folder.join(place));
    let found = places.into_iter().find(|place| place.is_dir())?;
    Some(std::fs::canonicalize(&found).unwrap_or(found))
}

/// Runs the probe with the variables that an engine gets, and no others.
async fn run(executable: &Path, library_path: Option<&str>) -> Result<Output, CudaTrouble> {
    let own = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut command = Command::new(executable);
    command
        .arg(PROBE)
        .env_clear()
        .envs(environment::passed_on(own))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if let Some(path) = library_path {
        command.env(LIBRARY_PATH, OsString::from(path));
    }
    match tokio::time::timeout(PROBE_TIMEOUT, command.output()).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) => Err(CudaTrouble::new(
            Failure::NotExecutable,
            format!("it cannot be run: {error}; {}", advice(&error)),
        )),
        Err(_) => Err(CudaTrouble::new(
            Failure::Crashed,
            format!(
                "it did not find the GPUs within {} s: check the driver with nvidia-smi, then start model-pool again",
                PROBE_TIMEOUT.as_secs()
            ),
        )),
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "make it executable (chmod 755)",
        _ => "build it for this machine",
    }
}

fn facts(output: &Output, version: &str) -> Result<Facts, CudaTrouble> {
    if !output.status.success() {
        return Err(cuda_trouble::read(&String::from_utf8_lossy(&output.stderr)));
    }
    let facts: Facts = serde_json::from_slice(&output.stdout).map_err(|_| {
        CudaTrouble::new(
            Failure::NotExecutable,
            format!("it is not a model-pool program: its response to {PROBE} cannot be read; build it from the same source as model-pool"),
        )
    })?;
    if facts.version != version {
        return Err(CudaTrouble::new(
            Failure::NotExecutable,
            format!(
                "its version is {}, and that of model-pool {version}: install the same version of both",
                facts.version
            ),
        ));
    }
    match cuda_trouble::of_versions(facts.built_for, facts.driver) {
        Some(trouble) => Err(trouble),
        None if facts.gpus == 0 => Err(cuda_trouble::read("CUDA_ERROR_NO_DEVICE")),
        None => Ok(facts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const RESPONSE: &str = r#"{"version":"1.2.3","built_for":13000,"driver":13000,"gpus":1}"#;

    fn search(folder: &Path, named: Option<PathBuf>) -> CudaSearch {
        CudaSearch {
            own: folder.join("model-pool"),
            own_has_cuda: false,
            named,
            version: "1.2.3",
        }
    }

    fn script(path: &Path, text: &str) {
        fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
    }

    /// The result of a search in which this script is the program.
    async fn found(text: &str) -> CudaProgram {
        let folder = tempfile::tempdir().expect("a folder");
        script(&folder.path().join(CUDA_PROGRAM), text);
        find_cuda(&search(folder.path(), None)).await
    }

    #[track_caller]
    fn is_trouble(cuda: &CudaProgram, failure: Failure, part: &str) {
        let trouble = cuda.trouble().unwrap_or_else(|| panic!("{cuda:?}"));
        assert_eq!(trouble.failure, failure, "{trouble:?}");
        assert!(trouble.problem.contains(part), "{part}: {trouble:?}");
    }

    #[tokio::test]
    async fn a_missing_cuda_program_is_reported_with_its_path_and_not_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let cuda = find_cuda(&search(folder.path(), None)).await;
        let expected = folder.path().join("model-pool-cuda");
        is_trouble(
            &cuda,
            Failure::BinaryMissing,
            &expected.display().to_string(),
        );
        let named = Some("/nowhere/of/mine".into());
        let cuda = find_cuda(&search(folder.path(), named)).await;
        is_trouble(&cuda, Failure::BinaryMissing, "/nowhere/of/mine");
    }

    #[tokio::test]
    async fn the_cuda_program_gets_the_adjacent_library_folder_in_its_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let libraries = folder.path().join(LIBRARIES);
        fs::create_dir(&libraries).expect("made");
        let notes = folder.path().join("notes");
        let text = format!(
            "echo \"$1 $LD_LIBRARY_PATH\" >{}\necho '{RESPONSE}'",
            notes.display()
        );
        script(&folder.path().join(CUDA_PROGRAM), &text);
        let cuda = find_cuda(&search(folder.path(), None)).await;
        let CudaProgram::Ready(ready) = &cuda else {
            panic!("{cuda}")
        };
        let libraries = fs::canonicalize(libraries).expect("there");
        assert_eq!(ready.libraries.as_ref(), Some(&libraries));
        let noted = fs::read_to_string(notes).expect("it was run");
        let expected = format!("cuda-probe {}", libraries.display());
        assert!(noted.starts_with(&expected), "{noted}");
    }

    #[tokio::test]
    async fn errors_printed_by_a_program_that_cannot_start_are_parsed() {
        let lacks = "echo 'x: error while loading shared libraries: libcurand.so.10: cannot open shared object file: No such file or directory' >&2; exit 127";
        is_trouble(
            &found(lacks).await,
            Failure::MissingLibrary,
            "nvidia-curand",
        );
        let other = RESPONSE.replace("1.2.3", "1.2.4");
        let cuda = found(&format!("echo '{other}'")).await;
        is_trouble(&cuda, Failure::NotExecutable, "its version is 1.2.4");
        let old = RESPONSE.replace("\"driver\":13000", "\"driver\":12040");
        let cuda = found(&format!("echo '{old}'")).await;
        is_trouble(&cuda, Failure::DriverTooOld, "up to 12.4");
        let none = RESPONSE.replace("\"gpus\":1", "\"gpus\":0");
        let cuda = found(&format!("echo '{none}'")).await;
        is_trouble(&cuda, Failure::MissingLibrary, "shows no GPU");
        is_trouble(
            &found("echo hello").await,
            Failure::NotExecutable,
            "not a model-pool program",
        );
    }

    #[tokio::test]
    async fn a_file_that_is_not_executable_is_reported_with_advice() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(CUDA_PROGRAM), "#!/bin/sh\n").expect("written");
        let cuda = find_cuda(&search(folder.path(), None)).await;
        is_trouble(&cuda, Failure::NotExecutable, "chmod 755");
    }
}
