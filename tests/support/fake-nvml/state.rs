//! The state of a fake GPU machine: a text file that tests write, test engines change under a lock, and the library reads at each
//! call. Defines the file format, the memory of each process on a GPU, and its release after the process ends. Without
//! dependencies: the library, the stub engine and the tests each compile it in.
//!
//! ```text
//! driver version=570.86 generation=1            `down`: not loaded; another generation: restarted
//! gpu total=85899345920 reserved=0 name=NVIDIA_H100_80GB_HBM3    `_` reads as a blank
//!     uuid=GPU-… pci=00000000:1B:00.0 minor=0 root=0 node=0 utilisation=7 temperature=40 power=300 energy=1000
//!     ecc=0 persistence=1                       each as it is reported; absent: not supported
//!     used=1000                                 instead of the sum of the processes
//!     lost                                      it fell off the bus
//!     nolists noevents                          it refuses the lists of processes, events
//!     board=0 switch=0                          equal ones are on one board, below one PCIe switch
//!     mig                                       it is in MIG mode
//! gpu total=5000 mig_of=0 uuid=MIG-…            a slice of the first GPU; slices follow all GPUs
//! process gpu=0 pid=12 bytes=1000               without bytes=: not available
//! process gpu=0 pid=13 bytes=500 graphics
//! process gpu=0 pid=13 bytes=500 mps             a client of the Multi-Process Service
//! process gpu=0 pid=14 bytes=500 born=88 release=300     an engine's, which ends when it does: its
//!                                               memory comes back 300 ms later; `leak`: never;
//!                                               `listed`: it stays on the list until then
//! nvlink a=0 b=1 links=4                        `switch` instead of b=: to an NVSwitch
//! call name=nvmlDeviceGetName gpu=0 code=999    it fails so; hang=2000: after that many ms;
//!                                               name=*: all; no gpu=: of all
//! event seq=1 gpu=0 xid=79                      `ecc` instead of xid=: a double-bit error
//! ```
//! (A `gpu` is one line.) Indices count the `gpu` lines from 0.
#![allow(dead_code, reason = "each that compiles it in uses a part")]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line(pub Vec<String>);

impl Line {
    pub fn new(text: &str) -> Line {
        Line(text.split_whitespace().map(String::from).collect())
    }

    pub fn is(&self, kind: &str) -> bool {
        self.0.first().is_some_and(|word| word == kind)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        let mut words = self.0.iter();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    pub fn figure(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    pub fn says(&self, word: &str) -> bool {
        self.0.iter().any(|own| own == word)
    }

    pub fn put(&mut self, name: &str, value: impl std::fmt::Display) {
        self.remove(name);
        self.0.push(format!("{name}={value}"));
    }

    /// Removes `name=…` and the bare word.
    pub fn remove(&mut self, name: &str) {
        self.0
            .retain(|word| word != name && word.split_once('=').is_none_or(|(key, _)| key != name));
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State(pub Vec<Line>);

impl State {
    pub fn parse(text: &str) -> State {
        State(text.lines().map(Line::new).collect())
    }

    /// The current state. Ended processes hold only memory that is not released yet.
    pub fn read(path: &Path) -> io::Result<State> {
        let mut state = State::parse(&fs::read_to_string(path)?);
        if state.clone().settle() {
            state = edit(path, |_| ())?;
        }
        Ok(state)
    }

    pub fn all<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Line> {
        self.0.iter().filter(move |line| line.is(kind))
    }

    pub fn gpu(&self, index: usize) -> Option<&Line> {
        self.all("gpu").nth(index)
    }

    pub fn gpu_mut(&mut self, index: usize) -> Option<&mut Line> {
        self.0.iter_mut().filter(|line| line.is("gpu")).nth(index)
    }

    pub fn push(&mut self, text: &str) {
        self.0.push(Line::new(text));
    }

    pub fn uuid(&self, index: usize) -> String {
        match self.gpu(index).and_then(|gpu| gpu.text("uuid")) {
            Some(uuid) => uuid.to_owned(),
            None => format!("GPU-00000000-0000-0000-0000-{index:012}"),
        }
    }

    pub fn pci(&self, index: usize) -> String {
        match self.gpu(index).and_then(|gpu| gpu.text("pci")) {
            Some(pci) => pci.to_owned(),
            None => format!("00000000:{:02X}:00.0", 0x10 + index),
        }
    }

    /// All memory in use on a GPU, including that of processes on no list.
    pub fn used(&self, index: usize) -> u64 {
        if let Some(used) = self.gpu(index).and_then(|gpu| gpu.figure("used")) {
            return used;
        }
        let mut held: Vec<(Option<u64>, u64)> = Vec::new();
        for line in self.processes(index) {
            let (pid, bytes) = (line.figure("pid"), line.figure("bytes").unwrap_or(0));
            // A process on both lists is reported with equal bytes in each.
            match held.iter_mut().find(|(known, _)| *known == pid) {
                Some(known) => known.1 = known.1.max(bytes),
                None => held.push((pid, bytes)),
            }
        }
        held.into_iter().map(|(_, bytes)| bytes).sum()
    }

    pub fn free(&self, index: usize) -> u64 {
        let figure = |name| self.gpu(index).and_then(|gpu| gpu.figure(name));
        let taken = figure("reserved").unwrap_or(0) + self.used(index);
        figure("total").unwrap_or(0).saturating_sub(taken)
    }

    pub fn processes(&self, index: usize) -> impl Iterator<Item = &Line> {
        self.all("process")
            .filter(move |line| line.figure("gpu") == Some(index as u64))
    }

    /// Frees the memory of ended processes. Returns true if anything changed.
    fn settle(&mut self) -> bool {
        let before = self.clone();
        let now = now_ms();
        self.0.retain_mut(|line| {
            let (Some(pid), Some(born)) = (line.figure("pid"), line.figure("born")) else {
                return true;
            };
            if !line.is("process") || line.says("leak") && line.figure("dead").is_some() {
                return true;
            }
            if birth(pid) == Some(born) {
                return true;
            }
            let dead = line.figure("dead").unwrap_or(now);
            line.put("dead", dead);
            line.says("leak") || now < dead + line.figure("release").unwrap_or(0)
        });
        *self != before
    }
}

/// Changes the file under its lock, which prevents torn reads and lost changes. Returns the written state.
pub fn edit(path: &Path, change: impl FnOnce(&mut State)) -> io::Result<State> {
    let lock = File::create(beside(path, "lock"))?;
    lock.lock()?;
    let mut state = State::parse(&fs::read_to_string(path)?);
    state.settle();
    change(&mut state);
    write(path, &state)?;
    Ok(state)
}

/// Writes the complete file atomically. The caller holds the lock, or is the only user.
pub fn write(path: &Path, state: &State) -> io::Result<()> {
    let lines: Vec<String> = state.0.iter().map(|line| line.0.join(" ")).collect();
    let next = beside(path, "next");
    fs::write(&next, lines.join("\n") + "\n")?;
    fs::rename(next, path)
}

/// The memory that a test engine needs on a GPU.
pub struct Wish<'a> {
    pub gpu: usize,
    pub pid: u32,
    pub bytes: u64,
    /// Additional words of its line, such as `leak`.
    pub words: &'a str,
}

/// Allocates memory for the process, replacing its earlier memory there, or returns `Ok(Err(free))` with the free bytes.
pub fn allocate(path: &Path, wish: &Wish<'_>) -> io::Result<Result<(), u64>> {
    let mut response = Ok(());
    edit(path, |state| {
        let own = |line: &Line| {
            line.is("process")
                && line.figure("gpu") == Some(wish.gpu as u64)
                && line.figure("pid") == Some(u64::from(wish.pid))
                && line.figure("dead").is_none()
        };
        let held = state.0.iter().filter(|line| own(line));
        let held: u64 = held.filter_map(|line| line.figure("bytes")).sum();
        let free = state.free(wish.gpu) + held;
        if wish.bytes > free {
            response = Err(free);
            return;
        }
        state.0.retain(|line| !own(line));
        let born = birth(u64::from(wish.pid)).unwrap_or(0);
        let (gpu, pid, bytes) = (wish.gpu, wish.pid, wish.bytes);
        state.push(&format!(
            "process gpu={gpu} pid={pid} bytes={bytes} born={born} {}",
            wish.words
        ));
    })?;
    Ok(response)
}

/// The start time of a living process in clock ticks. `None` once it has ended, even before it is reaped: its memory is free at
/// that time.
pub fn birth(pid: u64) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // proc(5): state is the first field after the command in parentheses, starttime the twentieth.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X" | "x") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

pub fn now_ms() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH);
    passed.map_or(0, |passed| passed.as_millis() as u64)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}
