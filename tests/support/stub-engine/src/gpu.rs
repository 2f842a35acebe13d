//! Memory of fake GPUs: the stub allocates it by writing its process id to the file of a fake machine. Decides the GPUs, amount and
//! time, and the exit of an engine without enough memory; the file decides when memory is returned.

#[path = "../../fake-nvml/state.rs"]
mod state;

use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use crate::flags::{milliseconds, number};
use crate::{spawn_grandchild, text};
use state::{State, Wish};

/// On each GPU that `CUDA_VISIBLE_DEVICES` names by index or UUID.
#[derive(Default)]
pub struct Gpu {
    /// `--fake-gpu-state PATH`, or the environment's `MODEL_POOL_FAKE_NVML`.
    state: Option<PathBuf>,
    /// `--fake-gpu-bytes N`: held from the start.
    bytes: u64,
    /// `--grow-to N --grow-after MS`: held from then on.
    grow_to: Option<u64>,
    grow_after: Duration,
    /// `--oom-above N`: this much must be free at the start, although it may hold less.
    needs: u64,
    /// `--release-late MS`: its memory is free this long after its end.
    release_late: Option<u64>,
    /// `--leak`: its memory is never free again.
    leak: bool,
    /// `--stay-listed`: after its end it stays on the list until its memory is free.
    stay_listed: bool,
    /// `--leak-per-request N`: each completion permanently holds this many more bytes.
    leak_per_request: u64,
    leaked: AtomicU64,
    /// `--child-allocates`: a child holds the memory, and prints `grandchild PID`.
    child_allocates: bool,
}

impl Gpu {
    /// Parses a flag. Returns false if it belongs to another group.
    pub fn take(
        &mut self,
        name: &str,
        value: &mut impl FnMut() -> Result<String, String>,
    ) -> Result<bool, String> {
        match name {
            "--fake-gpu-state" => self.state = Some(value()?.into()),
            "--fake-gpu-bytes" => self.bytes = number(name, value()?)?,
            "--grow-to" => self.grow_to = Some(number(name, value()?)?),
            "--grow-after" => self.grow_after = milliseconds(name, value()?)?,
            "--oom-above" => self.needs = number(name, value()?)?,
            "--release-late" => self.release_late = Some(number(name, value()?)?),
            "--leak" => self.leak = true,
            "--stay-listed" => self.stay_listed = true,
            "--leak-per-request" => self.leak_per_request = number(name, value()?)?,
            "--child-allocates" => self.child_allocates = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn words(&self) -> String {
        let late = self.release_late.map(|late| format!("release={late}"));
        let words = [
            late.as_deref(),
            self.leak.then_some("leak"),
            self.stay_listed.then_some("listed"),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

impl Gpu {
    /// Adds one completion's share of the leak.
    pub fn leak(&self) -> Result<(), String> {
        if self.leak_per_request == 0 {
            return Ok(());
        }
        let before = self
            .leaked
            .fetch_add(self.leak_per_request, Ordering::SeqCst);
        let state = self
            .state
            .clone()
            .ok_or("--leak-per-request needs --fake-gpu-state")?;
        for gpu in visible(&state)? {
            let wish = Wish {
                gpu,
                pid: std::process::id(),
                bytes: self.bytes + before + self.leak_per_request,
                words: &self.words(),
            };
            if !take(&state, &wish, 0)? {
                return Err("out of memory".to_owned());
            }
        }
        Ok(())
    }
}

/// Returns only if there is not enough memory, with the exit status.
pub async fn hold(gpu: &Gpu) -> Result<i32, String> {
    if gpu.bytes == 0 && gpu.grow_to.is_none() && gpu.needs == 0 {
        return pending().await;
    }
    if let Some(root) = std::env::var_os("MODEL_POOL_FAKE_KFD") {
        hold_on_amd(Path::new(&root), gpu.bytes)?;
        return pending().await;
    }
    let from_environment = std::env::var_os("MODEL_POOL_FAKE_NVML").map(PathBuf::from);
    let state = gpu.state.clone().or(from_environment);
    let state = state.ok_or("--fake-gpu-bytes needs --fake-gpu-state or MODEL_POOL_FAKE_NVML")?;
    let visible = visible(&state)?;
    let pid = if gpu.child_allocates {
        let child = spawn_grandchild()?;
        println!("grandchild {child}");
        child
    } else {
        std::process::id()
    };
    let words = gpu.words();
    let take = |bytes, needs| -> Result<bool, String> {
        for &index in &visible {
            let wish = Wish {
                gpu: index,
                pid,
                bytes,
                words: &words,
            };
            if !take(&state, &wish, needs)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    if !take(gpu.bytes, gpu.needs)? {
        return Ok(1);
    }
    let Some(more) = gpu.grow_to else {
        return pending().await;
    };
    sleep(gpu.grow_after).await;
    if !take(more, 0)? {
        return Ok(1);
    }
    pending().await
}

/// Refuses with PyTorch's message, which engines print before they exit with status 1.
fn take(file: &Path, wish: &Wish<'_>, needs: u64) -> Result<bool, String> {
    let now = State::read(file).map_err(text)?;
    let free = match now.free(wish.gpu) {
        free if needs > free => free,
        _ => match state::allocate(file, wish).map_err(text)? {
            Ok(()) => return Ok(true),
            Err(free) => free,
        },
    };
    let total = now.gpu(wish.gpu).and_then(|gpu| gpu.figure("total"));
    let gib = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
    eprintln!(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {:.2} GiB. GPU {} has a total capacity of {:.2} GiB of which {:.2} GiB is free.",
        gib(wish.bytes.max(needs)),
        wish.gpu,
        gib(total.unwrap_or(0)),
        gib(free),
    );
    Ok(false)
}

/// Holds memory on each GPU that `HIP_VISIBLE_DEVICES` names by index, below the folder of a fake machine.
fn hold_on_amd(root: &Path, bytes: u64) -> Result<(), String> {
    let kfd = root.join("sys/class/kfd/kfd");
    let names = std::env::var("HIP_VISIBLE_DEVICES").unwrap_or_default();
    for name in names.split(',') {
        let index: u32 = name
            .parse()
            .map_err(|_| format!("HIP_VISIBLE_DEVICES={names}: {name} is not an index"))?;
        // The first node is the processor.
        let node = kfd.join(format!("topology/nodes/{}/gpu_id", index + 1));
        let gpu_id = std::fs::read_to_string(node).map_err(text)?;
        let own = kfd.join("proc").join(std::process::id().to_string());
        std::fs::create_dir_all(&own).map_err(text)?;
        std::fs::write(
            own.join(format!("vram_{}", gpu_id.trim())),
            bytes.to_string(),
        )
        .map_err(text)?;
    }
    Ok(())
}

/// The GPUs of this process, by their index in the file.
fn visible(file: &Path) -> Result<Vec<usize>, String> {
    let names = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let state =
        State::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let count = state.all("gpu").count();
    let find = |name: &str| {
        let by_index = name.parse().ok().filter(|index| *index < count);
        by_index
            .or_else(|| (0..count).find(|index| state.uuid(*index) == name))
            .ok_or_else(|| format!("CUDA_VISIBLE_DEVICES={names}: there is no GPU {name}"))
    };
    let names = names.split(',').filter(|name| !name.is_empty());
    names.map(find).collect()
}
