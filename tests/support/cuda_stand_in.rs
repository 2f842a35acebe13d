//! A script in place of `model-pool-cuda` for machines without a GPU: it records its calls, reports one GPU, and runs the plain
//! program on the CPU. It cannot replace CUDA itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// In a separate folder, next to an empty folder of libraries.
pub struct CudaStandIn {
    folder: PathBuf,
}

impl CudaStandIn {
    /// Creates it in a subfolder of `dir`, with `version` as the program's version.
    pub fn new(dir: &Path, version: &str) -> CudaStandIn {
        let response =
            format!(r#"{{"version":"{version}","built_for":13000,"driver":13000,"gpus":1}}"#);
        let plain = crate::program();
        let text = format!(
            r#"case "$1" in cuda-probe) echo '{response}'; exit 0 ;; esac
for word do
    shift
    case "$word" in cuda:*) word=cpu ;; esac
    set -- "$@" "$word"
done
exec '{}' "$@""#,
            plain.display()
        );
        CudaStandIn::saying(dir, &text)
    }

    /// Creates it with other commands after the record.
    pub fn saying(dir: &Path, text: &str) -> CudaStandIn {
        let folder = dir.join("cuda");
        fs::create_dir_all(folder.join("model-pool-cuda-libraries")).unwrap();
        let stand_in = CudaStandIn { folder };
        let notes = stand_in.folder.join("notes");
        let script = format!(
            "#!/bin/sh\necho \"$* libraries=$LD_LIBRARY_PATH\" >>'{}'\n{text}\n",
            notes.display()
        );
        let program = stand_in.program();
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        stand_in
    }

    /// The value for `inventory.cuda_program`.
    pub fn program(&self) -> PathBuf {
        self.folder.join("model-pool-cuda")
    }

    pub fn libraries(&self) -> PathBuf {
        self.folder.join("model-pool-cuda-libraries")
    }

    /// One line per call: its arguments, and `libraries=` with its library path.
    pub fn calls(&self) -> Vec<String> {
        let notes = fs::read_to_string(self.folder.join("notes")).unwrap_or_default();
        notes.lines().map(str::to_owned).collect()
    }
}
