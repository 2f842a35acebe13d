//! A fake machine with GPUs: a folder with a stand-in for NVIDIA's library and the file that it reads. Tests describe the machine,
//! change it while programs run on it, and read the memory that engines use. Builds the library; `fake-nvml/state.rs` describes the
//! file format.
#[path = "fake-nvml/state.rs"]
pub mod state;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use state::{Line, State};

pub const GIB: u64 = 1 << 30;

/// Each method changes the machine immediately and atomically.
#[derive(Debug)]
pub struct Machine {
    folder: PathBuf,
}

impl Machine {
    /// A machine without GPUs, in a subfolder of `dir`.
    pub fn new(dir: &Path) -> Machine {
        let folder = dir.join("machine");
        fs::create_dir_all(&folder).unwrap();
        // A copy, because loading one file twice yields a single library.
        fs::copy(library(), folder.join("libnvidia-ml.so.1")).unwrap();
        let machine = Machine { folder };
        machine.set("");
        machine
    }

    /// Adds GPUs of this kind, with four below each PCIe root.
    pub fn gpus(self, count: usize, name: &str, bytes: u64) -> Machine {
        self.edit(|state| {
            let name = name.replace(' ', "_");
            let before = state.all("gpu").count();
            for index in before..before + count {
                let root = index / 4;
                state.push(&format!(
                    "gpu total={bytes} reserved=0 name={name} root={root} node={root} utilisation=0 temperature=35 power=70 ecc=0 persistence=1"
                ));
            }
        });
        self
    }

    /// Connects GPUs 0 and 1, 2 and 3, and so on.
    pub fn nvlink_pairs(self) -> Machine {
        let count = self.state().all("gpu").count();
        for first in (1..count).step_by(2) {
            self.edit(|state| state.push(&format!("nvlink a={} b={first} links=4", first - 1)));
        }
        self
    }

    /// Connects each of these GPUs to each other.
    pub fn nvlink_island(self, gpus: &[usize]) -> Machine {
        for (at, a) in gpus.iter().enumerate() {
            for b in &gpus[at + 1..] {
                self.edit(|state| state.push(&format!("nvlink a={a} b={b} links=2")));
            }
        }
        self
    }

    /// Connects all GPUs over NVSwitch.
    pub fn nvswitch(self) -> Machine {
        for gpu in 0..self.state().all("gpu").count() {
            self.edit(|state| state.push(&format!("nvlink a={gpu} switch links=18")));
        }
        self
    }

    /// The value for `MODEL_POOL_NVML_LIBRARY`.
    pub fn library(&self) -> PathBuf {
        self.folder.join("libnvidia-ml.so.1")
    }

    /// The value for the stub engine's `--fake-gpu-state`.
    pub fn state_file(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Replaces the machine's description.
    pub fn set(&self, text: &str) {
        state::write(&self.state_file(), &State::parse(text)).unwrap();
    }

    pub fn state(&self) -> State {
        State::read(&self.state_file()).unwrap()
    }

    pub fn edit(&self, change: impl FnOnce(&mut State)) {
        state::edit(&self.state_file(), change).unwrap();
    }

    pub fn gpu(&self, gpu: usize, change: impl FnOnce(&mut Line)) {
        self.edit(|state| change(state.gpu_mut(gpu).expect("a GPU of this machine")));
    }

    /// Sets the memory of a foreign process; 0 removes it.
    pub fn foreign(&self, gpu: usize, pid: u32, bytes: u64) {
        self.edit(|state| {
            state.0.retain(|line| {
                !line.is("process")
                    || line.figure("gpu") != Some(gpu as u64)
                    || line.figure("pid") != Some(u64::from(pid))
            });
            if bytes > 0 {
                state.push(&format!("process gpu={gpu} pid={pid} bytes={bytes}"));
            }
        });
    }

    /// The GPU falls off the bus, without an event.
    pub fn lose(&self, gpu: usize) {
        self.gpu(gpu, |line| line.0.push("lost".into()));
    }

    pub fn find_again(&self, gpu: usize) {
        self.gpu(gpu, |line| line.remove("lost"));
    }

    /// Reports a failure through the driver.
    pub fn xid(&self, gpu: usize, code: u64) {
        self.event(gpu, &format!("xid={code}"));
    }

    pub fn double_bit(&self, gpu: usize) {
        self.event(gpu, "ecc");
    }

    fn event(&self, gpu: usize, what: &str) {
        self.edit(|state| {
            let numbers = state.all("event").filter_map(|line| line.figure("seq"));
            let next = numbers.max().unwrap_or(0) + 1;
            state.push(&format!("event seq={next} gpu={gpu} {what}"));
        });
    }

    /// Delays this NVML call (`*` for all) by milliseconds, for one GPU or all.
    pub fn hang(&self, call: &str, gpu: Option<usize>, ms: u64) {
        self.misbehave(call, gpu, &format!("hang={ms}"));
    }

    /// Makes this call fail with this `nvmlReturn_t`.
    pub fn fail(&self, call: &str, gpu: Option<usize>, code: u32) {
        self.misbehave(call, gpu, &format!("code={code}"));
    }

    fn misbehave(&self, call: &str, gpu: Option<usize>, how: &str) {
        let of = gpu.map(|gpu| format!("gpu={gpu}")).unwrap_or_default();
        self.edit(|state| state.push(&format!("call name={call} {of} {how}")));
    }

    /// Ends all delays and failures, including those of running calls.
    pub fn mend(&self) {
        self.edit(|state| state.0.retain(|line| !line.is("call")));
    }

    /// Unloads the driver.
    pub fn stop_driver(&self) {
        self.driver(|line| line.0.push("down".into()));
    }

    /// Loads the driver again. It does not know programs that used the earlier one.
    pub fn start_driver(&self) {
        self.driver(|line| {
            line.remove("down");
            let next = line.figure("generation").unwrap_or(1) + 1;
            line.put("generation", next);
        });
    }

    fn driver(&self, change: impl FnOnce(&mut Line)) {
        self.edit(|state| {
            if !state.0.iter().any(|line| line.is("driver")) {
                state.push("driver version=999.1 generation=1");
            }
            let mut lines = state.0.iter_mut();
            change(lines.find(|line| line.is("driver")).expect("just written"));
        });
    }

    /// All memory in use on a GPU.
    pub fn used(&self, gpu: usize) -> u64 {
        self.state().used(gpu)
    }

    /// Process ids and bytes on a GPU, including ended processes.
    pub fn held(&self, gpu: usize) -> Vec<(u32, u64)> {
        let state = self.state();
        let held = state.processes(gpu).filter_map(|line| {
            let pid = u32::try_from(line.figure("pid")?).ok()?;
            Some((pid, line.figure("bytes").unwrap_or(0)))
        });
        held.collect()
    }
}

/// Built once, and again after its sources change.
fn library() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(find_or_build).clone()
}

fn find_or_build() -> PathBuf {
    let sources = crate::root().join("tests/support/fake-nvml");
    let built = crate::profile_dir().join("libfake-nvml.so");
    let changed = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let files = fs::read_dir(&sources).expect("the sources of the library");
    let newest = files.flatten().map(|file| changed(&file.path())).max();
    if newest.is_some_and(|newest| changed(&built) > newest) {
        return built;
    }
    let next = built.with_extension(format!("{}.so", std::process::id()));
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition", "2024", "--crate-type", "cdylib", "-A"])
        .args(["warnings", "-C", "strip=symbols", "-C", "panic=abort", "-o"])
        .arg(&next)
        .arg(sources.join("fake_nvml.rs"))
        .output()
        .expect("rustc runs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    fs::rename(next, &built).unwrap();
    built
}
